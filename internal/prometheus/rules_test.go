package prometheus_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestRulesAreLawful(t *testing.T) {
	out, status := promtool(t, "", "check", "rules", rulesFile)
	require.Zero(t, status, "%s", out)
	out, status = promtool(t, "", "check", "config", root+"/deploy/prometheus/prometheus.yml")
	require.Zero(t, status, "%s", out)
}

func TestAlertsFireAtTheirEdges(t *testing.T) {
	out, status := promtool(t, "", "test", "rules", root+"/deploy/prometheus/rules_test.yml")
	require.Zero(t, status, "%s", out)
}

// A rule is one of rules.yml.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, rulesFile)), &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// Who is woken up is told what to do, and whoever changes an alert sees a test fail.
func TestAlertsSayWhatToDo(t *testing.T) {
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, root+"/deploy/prometheus/rules_test.yml")), &tests))
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, tt := range tests.Tests {
		for _, a := range tt.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				rests[a.Alertname] = true
			}
		}
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(read(t, root+"/docs/observe.md"), -1) {
		sections[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		assert.True(t, fires[r.Alert], "%s: no test in which it fires", r.Alert)
		assert.Contains(t, r.Labels, "severity", r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		page, section, ok := strings.Cut(r.Annotations["runbook_url"], "#")
		assert.True(t, ok, r.Alert)
		assert.Equal(t, "https://github.com/watertight-go/watertight/blob/main/docs/observe.md", page)
		assert.True(t, sections[section], "%s: docs/observe.md has no section %s", r.Alert, section)
		assert.True(t, rests[r.Alert], "%s: no test in which it does not fire", r.Alert)
	}
}
