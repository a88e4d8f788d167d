package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
)

// seriesOf returns the lines of a scrape that begin with a metric's name.
func seriesOf(t *testing.T, a *app.App, metric string) (lines []string) {
	t.Helper()
	got := do(t, http.MethodGet, a.AdminURL()+"metrics")
	require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	for line := range strings.Lines(got.body) {
		if strings.HasPrefix(line, metric+"{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Who looks at an overloaded or draining server is not turned away by it, and nobody
// else gets to see what operators do.
func TestAdminIsBesideTheService(t *testing.T) {
	gate := newGate(t)
	a := start(t, "version: 1\npolicies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]\n", app.Config{
		Admin:     "127.0.0.1:0",
		Upstreams: map[string]string{"gate": gate.url},
		Drain:     time.Hour,
	})
	inside := later(t, http.MethodGet, a.URL()+"/upstream/gate/")
	receive(t, gate.arrived)
	require.Equal(t, "full", do(t, http.MethodGet, a.URL()+"/status/200").reason())
	const want = `watertight_calls_total{otel_scope_name="github.com/watertight-go/watertight/metrics",otel_scope_schema_url="",otel_scope_version="0.0.0",` +
		`watertight_policy="all",watertight_result="full",watertight_side="server"} 1`
	assert.Contains(t, seriesOf(t, a, "watertight_calls_total"), want)

	page := do(t, http.MethodGet, a.AdminURL()+"snapshot.json")
	assert.Equal(t, http.StatusOK, page.StatusCode)
	assert.Contains(t, page.body, `"full":1`)
	watching, err := http.Get(a.AdminURL() + "events")
	require.NoError(t, err)
	defer watching.Body.Close()

	ended := make(chan error, 1)
	go func() { ended <- a.Shutdown(t.Context()) }()
	eventually(t, func() bool { return !a.Guard().Ready() }, "draining should begin")
	assert.Contains(t, seriesOf(t, a, "watertight_calls_total"), want)

	gate.open()
	receive(t, inside)
	require.NoError(t, receive(t, ended))
	_, _ = io.Copy(io.Discard, watching.Body) // ends, in whatever way
	_, err = http.Get(a.AdminURL() + "metrics")
	assert.Error(t, err, "the listener should be closed")
}

func TestMetricsAreNotOnTheServicesListener(t *testing.T) {
	a := start(t, "", app.Config{Admin: "127.0.0.1:0"})
	assert.Equal(t, http.StatusNotFound, do(t, http.MethodGet, a.URL()+"/metrics").StatusCode)
	assert.Equal(t, http.StatusMethodNotAllowed, do(t, http.MethodPost, a.AdminURL()+"metrics").StatusCode)
}

func TestWithoutAdmin(t *testing.T) {
	assert.Empty(t, start(t, "", app.Config{}).AdminURL())
}

func TestAdminCannotListen(t *testing.T) {
	a := start(t, "", app.Config{Admin: "127.0.0.1:0"})
	taken := strings.TrimSuffix(strings.TrimPrefix(a.AdminURL(), "http://"), "/")
	_, err := app.Start(t.Context(), app.Config{Admin: taken})
	require.ErrorContains(t, err, taken)
	assert.ErrorContains(t, err, "-admin")
}
