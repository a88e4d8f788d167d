package app_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

func span(t *testing.T, tr tracestore.Trace, name string) *tracestore.Span {
	t.Helper()
	for _, s := range tr.Spans {
		if s.Name == name {
			return s
		}
	}
	require.FailNow(t, "no span "+name, "%s", tr)
	return nil
}

// latest waits for the trace, which is complete only after its client has read
// the response.
func latest(t *testing.T, a *app.App, name string) (found tracestore.Trace) {
	t.Helper()
	eventually(t, func() bool {
		var ok bool
		found, ok = a.Traces().Latest(name, nil)
		return ok
	}, "a trace with "+name)
	return found
}

func TestTracesPageShowsWhatHappened(t *testing.T) {
	gate := newGate(t)
	a := start(t, narrow, app.Config{Upstreams: map[string]string{"gate": gate.url}})
	url := a.URL() + "/upstream/gate/x"
	first := later(t, http.MethodGet, url)
	receive(t, gate.arrived)
	second := later(t, http.MethodGet, url)
	eventually(t, func() bool { return queued(a, "narrow", "/upstream/{name}/*") == 1 }, "the second call should queue")
	refused := do(t, http.MethodGet, url)
	assert.Equal(t, "full", refused.reason())
	gate.open()
	assert.Equal(t, http.StatusOK, receive(t, first).StatusCode)
	assert.Equal(t, http.StatusOK, receive(t, second).StatusCode)

	waited := latest(t, a, "bulkhead.wait")
	request := span(t, waited, "GET /upstream/{name}/*")
	grant := span(t, waited, "bulkhead.grant")
	assert.Equal(t, request.ID, span(t, waited, "bulkhead.wait").Parent)
	assert.Equal(t, request.ID, grant.Parent)
	assert.Equal(t, grant.ID, span(t, waited, "HTTP GET").Parent, "the call's own spans hang under the grant")

	rejected := latest(t, a, "bulkhead.reject")
	assert.Equal(t, span(t, rejected, "GET /upstream/{name}/*").ID, span(t, rejected, "bulkhead.reject").Parent,
		"the span of a refused request knows its route, too")

	page := do(t, http.MethodGet, a.URL()+"/debug/traces")
	assert.Equal(t, "text/plain; charset=utf-8", page.Header.Get("Content-Type"))
	for _, want := range []string{"├─ bulkhead.wait", "└─ bulkhead.grant", "   └─ HTTP GET", "└─ bulkhead.reject", "reason=full"} {
		assert.Contains(t, page.body, want)
	}
	page = do(t, http.MethodGet, a.URL()+"/debug/traces?span=bulkhead.reject")
	assert.NotContains(t, page.body, "bulkhead.wait")
}

func TestTraceFollowsTheCallAcrossTheWire(t *testing.T) {
	got := make(chan http.Header, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"up": up}})
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, upgrade := range []string{"", "h2c"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/upstream/up/", nil)
		require.NoError(t, err)
		req.Header.Set("Traceparent", "00-"+id+"-"+parent+"-01")
		req.Header.Set("Baggage", "tenant=acme")
		if upgrade != "" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		assert.Equal(t, http.StatusOK, send(t, req).StatusCode)
		sent := receive(t, got)
		assert.Regexp(t, "^00-"+id+"-[0-9a-f]{16}-01$", sent.Get("Traceparent"))
		assert.NotContains(t, sent.Get("Traceparent"), parent, "its parent is a span of the gateway")
		assert.Equal(t, "tenant=acme", sent.Get("Baggage"))
		assert.Len(t, sent.Values("Traceparent"), 1)
	}
	traceID, err := trace.TraceIDFromHex(id)
	require.NoError(t, err)
	var tr tracestore.Trace
	eventually(t, func() bool {
		tr, _ = a.Traces().Trace(traceID)
		return tr.Running == 0 && len(tr.Spans) > 0
	}, "the trace should be complete")
	assert.Equal(t, parent, span(t, tr, "GET /upstream/{name}/*").Parent.String())
}

// Names of spans are a small set, whatever callers ask for.
func TestSpanNamesAreFew(t *testing.T) {
	a := start(t, "", app.Config{})
	for _, path := range []string{"/delay/0", "/delay/1", "/status/200", "/status/500", "/nowhere/1", "/nowhere/2"} {
		do(t, http.MethodGet, a.URL()+path)
	}
	do(t, "BREW", a.URL()+"/delay/0")
	names := make(map[string]bool)
	eventually(t, func() bool { return len(a.Traces().Traces()) == 7 }, "all traces should be complete")
	for _, tr := range a.Traces().Traces() {
		for _, s := range tr.Spans {
			names[s.Name] = true
		}
	}
	assert.Equal(t, map[string]bool{
		"GET /delay/{ms}": true, "GET /status/{code}": true, "GET": true, "HTTP": true, "bulkhead.grant": true,
	}, names)
}

// With a collector the spans go there, the last ones too, and no page shows
// them.
func TestCollectorGetsTheSpans(t *testing.T) {
	var mu sync.Mutex
	var bodies bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&bodies, r.Body)
	}))
	defer collector.Close()
	a := start(t, "", app.Config{OTLP: collector.URL, ServiceName: "my-service"})
	assert.Nil(t, a.Traces())
	assert.Equal(t, http.StatusOK, do(t, http.MethodGet, a.URL()+"/delay/0").StatusCode)
	assert.Equal(t, http.StatusNotFound, do(t, http.MethodGet, a.URL()+"/debug/traces").StatusCode)
	require.NoError(t, a.Shutdown(t.Context()))
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"my-service", "GET /delay/{ms}", "bulkhead.grant"} {
		assert.Contains(t, bodies.String(), want)
	}
}

func TestWrongCollectorURL(t *testing.T) {
	_, err := app.Start(t.Context(), app.Config{OTLP: "127.0.0.1:4318"})
	assert.ErrorContains(t, err, "otlp")
}
