package prometheus_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

// An incident: too many calls for their compartments, and an upstream that fails.
const incident = `
version: 1
policies:
  - name: narrow
    side: server
    match: [{route: "/delay/{ms}"}]
    bulkhead: {maxConcurrent: 2, maxQueue: 2, maxWait: 30ms}
  - name: watched
    side: server
    match: [{route: "/status/{code}"}]
    mode: observe
    bulkhead: {maxConcurrent: 1}
  - name: upstreams
    side: client
    bulkhead: {maxConcurrent: 50}
    breaker: {minCalls: 5, openFor: 1h, slowCall: 10s}
`

// Whoever opens the dashboard in the middle of an incident sees something in every panel,
// and is woken up for what is wrong. The queries are those of the file, all of them, and
// what they ask is a Prometheus with the project's own rules that scrapes the example
// server.
func TestIncident(t *testing.T) {
	binary(t, "prometheus") // before anything is built
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, policies, incident)
	fails := upstream(t, http.StatusInternalServerError)
	works := upstream(t, http.StatusOK)
	server := program.Start(t, nil, build(t), "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-policy", policies,
		"-upstream", "fails="+fails, "-upstream", "works="+works)
	base := server.Says(t, `listening on (\S+)\n`)
	admin := server.Says(t, `for operators: (\S+)\n`)
	target, err := url.Parse(admin)
	require.NoError(t, err)
	p := startPrometheus(t, target.Host)

	keepCalling(t, 6, base+"/delay/20")        // granted, queued, refused, out of time
	keepCalling(t, 2, base+"/status/200")      // would be refused
	keepCalling(t, 1, base+"/upstream/fails/") // until its breaker opens
	keepCalling(t, 1, base+"/upstream/works/")
	keepCalling(t, 14, base+"/pool/20") // more than the workers and their backlog

	write(t, policies, incident+"  - {name: more, match: [{path: /more}], bulkhead: {maxConcurrent: 1}}\n")
	requireSeries(t, p, `watertight_policy_reloads_total{watertight_result="ok"} > 0`)
	write(t, policies, "version: 1\npolicies: [{name: bad}]\n")
	requireSeries(t, p, `watertight_policy_reload_failing > 0`)

	b := loadBoard(t)
	for _, q := range b.queries(t) {
		for _, part := range selectors(t, q.expr) { // one that finds nothing may hide behind another
			requireSeries(t, p, part.String())
		}
		requireSeries(t, p, q.expr)
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		label, series := v.asks(t)
		values, err := ask[[]string](p, "/api/v1/label/"+label+"/values", url.Values{"match[]": {substitute(series)}})
		require.NoError(t, err, v.Name)
		assert.NotEmpty(t, values, "variable %s", v.Name)
	}

	firing := map[string]bool{}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		data, err := ask[struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}](p, "/api/v1/alerts", nil)
		require.NoError(c, err)
		for _, a := range data.Alerts {
			if a.State == "firing" {
				firing[a.Labels["alertname"]+" "+a.Labels["watertight_policy"]] = true
			}
		}
		for _, want := range []string{
			"WatertightCompartmentSaturated narrow", "WatertightCompartmentSaturated jobs", "WatertightBreakerOpen upstreams",
			"WatertightReloadFailing ", "WatertightBudgetBurnsFast narrow", "WatertightBudgetBurnsSlowly upstreams",
		} {
			assert.Contains(c, firing, want)
		}
	}, patience, poll)
	for alert := range firing {
		assert.False(t, strings.HasPrefix(alert, "WatertightLeakedBodies") || strings.HasPrefix(alert, "WatertightTableFull") || strings.HasPrefix(alert, "WatertightBreakerFlapping"), "%s: nothing of that kind happened", alert)
	}

	groups, err := ask[struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}](p, "/api/v1/rules", nil)
	require.NoError(t, err)
	var names []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			assert.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
			names = append(names, r.Name)
		}
	}
	for _, r := range rules(t) {
		assert.True(t, slices.Contains(names, r.Record+r.Alert), "%s%s is not evaluated", r.Record, r.Alert)
		for _, part := range selectors(t, r.Expr) {
			if part.Name != "" { // what it looks for beside that need not be the case here
				requireSeries(t, p, part.Name)
			}
		}
		if r.Record != "" {
			requireSeries(t, p, r.Record)
		}
	}
}

// selectors returns what a query reads.
func selectors(t *testing.T, expr string) (found []*parser.VectorSelector) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err)
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	require.NotEmpty(t, found, expr)
	return found
}

// requireSeries waits until the query has a result.
func requireSeries(t *testing.T, p *prometheus, expr string) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		var found []sample
		found, err = p.query(expr)
		return err == nil && len(found) > 0
	}, patience, poll, "no result of %s", expr)
	require.NoError(t, err)
}

// upstream starts a service that answers with the status.
func upstream(t *testing.T, status int) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(s.Close)
	return s.URL
}

// keepCalling has callers ask for the URL again and again until the test ends, each 50
// times a second at most.
func keepCalling(t *testing.T, callers int, url string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(stop)
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	var answered atomic.Bool
	for range callers {
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if !assert.NoError(t, err) {
					return
				}
				if resp, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					answered.Store(true)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	require.Eventually(t, answered.Load, patience, poll, "nobody answers at %s", url)
}
