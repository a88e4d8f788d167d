// Package prometheus_test holds what the project gives to those who run Prometheus to the
// real thing: the metrics to promtool, the alerts to their tests, the dashboard's queries
// to a Prometheus that scrapes the example server. It has no other code.
package prometheus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

const (
	root      = "../.."
	rulesFile = root + "/deploy/prometheus/rules.yml"
)

// binary returns where a program of Prometheus is. Without it the test is skipped, or
// fails where it has to run.
func binary(t *testing.T, program string) string {
	t.Helper()
	variable := "WATERTIGHT_" + strings.ToUpper(program)
	name := os.Getenv(variable)
	if name == "" {
		name = program
	}
	bin, err := exec.LookPath(name)
	if err == nil {
		return bin
	}
	missing := fmt.Sprintf("there is no %s (%v): install the package prometheus (2.42 or newer), or name the program by %s", program, err, variable)
	for _, v := range []string{"CI", "WATERTIGHT_REQUIRE_PROMETHEUS"} {
		if required, _ := strconv.ParseBool(os.Getenv(v)); required {
			require.FailNow(t, missing)
		}
	}
	t.Skip(missing)
	return ""
}

// promtool runs promtool with the input, and returns what it said and its exit status.
func promtool(t *testing.T, input string, args ...string) (output string, status int) {
	t.Helper()
	cmd := exec.Command(binary(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A prometheus is a Prometheus that runs.
type prometheus struct{ url string }

// startPrometheus starts one with the project's own configuration, but for what it scrapes
// and how often, and with alerts that do not wait.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	bin := binary(t, "prometheus")
	config := read(t, root+"/deploy/prometheus/prometheus.yml")
	for from, to := range map[string]string{
		"127.0.0.1:6060":          target,
		"scrape_interval: 5s":     "scrape_interval: 250ms",
		"evaluation_interval: 5s": "evaluation_interval: 250ms",
	} {
		require.Contains(t, config, from)
		config = strings.ReplaceAll(config, from, to)
	}
	rules := read(t, rulesFile)
	for _, minutes := range []string{"1m", "2m", "5m", "15m"} {
		require.Contains(t, rules, "for: "+minutes+"\n")
		rules = strings.ReplaceAll(rules, "for: "+minutes+"\n", "for: 1s\n")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "prometheus.yml"), config)
	write(t, filepath.Join(dir, "rules.yml"), rules)

	p := program.Start(t, nil, bin, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	pr := &prometheus{url: "http://" + p.Says(t, `msg="?Listening on"? address=(127\.0\.0\.1:[1-9]\d*)`)}
	require.Eventually(t, func() bool {
		resp, err := client.Get(pr.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, patience, poll, "Prometheus should be ready")
	return pr
}

// ask returns the data of an answer of Prometheus's API.
func ask[T any](p *prometheus, path string, query url.Values) (T, error) {
	var answer struct {
		Status, Error string
		Data          T
	}
	resp, err := client.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return answer.Data, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return answer.Data, err
	}
	if answer.Status != "success" {
		return answer.Data, fmt.Errorf("%s: %s", path, answer.Error)
	}
	return answer.Data, nil
}

// A sample is one of the answer to a query.
type sample struct {
	Metric map[string]string
	Value  [2]any // when, and the figure as text
}

// query returns the samples of an instant, without those that are not a number: a panel
// does not show them either.
func (p *prometheus) query(expr string) ([]sample, error) {
	data, err := ask[struct{ Result []sample }](p, "/api/v1/query", url.Values{"query": {expr}})
	var found []sample
	for _, s := range data.Result {
		if s.Value[1] != "NaN" {
			found = append(found, s)
		}
	}
	return found, err
}

// client keeps no connections, so that no test has to close them.
var client = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true},
	Timeout:   patience,
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}
