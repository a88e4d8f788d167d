package stacking_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/watertight-go/watertight"
	watertightchi "github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

// A stack is a server whose handler is h, at GET /items/{id}.
type stack struct {
	name            string
	served, refused string // names of otelhttp's span
	build           func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler
}

func muxOf(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", h)
	return mux
}

func chiOf(h http.Handler, use ...func(http.Handler) http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(use...)
	router.Method(http.MethodGet, "/items/{id}", h)
	return router
}

// The order to prefer: otelhttp's span is that of the request, with all that the Guard
// does to it.
var outside = []stack{
	{"otelhttp around the mux", "GET /items/{id}", "GET /items/{id}", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		return r.traced(middleware.New(wt)(muxOf(h)))
	}},
	{"chi, otelhttp used first", "GET /items/{id}", "GET /items/{id}", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		return chiOf(h, r.traced, watertightchi.Middleware(wt))
	}},
	// chi says so to a copy of the request, which nobody outside sees.
	{"otelhttp around chi", "GET", "GET", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		return r.traced(chiOf(h, watertightchi.Middleware(wt)))
	}},
}

var inside = []stack{
	{"otelhttp in the middle", "GET /items/{id}", "", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		mux := muxOf(h)
		return middleware.New(wt, middleware.WithRouter(mux.(*http.ServeMux)))(r.traced(mux))
	}},
	{"chi, otelhttp used last", "GET /items/{id}", "", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		return chiOf(h, watertightchi.Middleware(wt), r.traced)
	}},
	{"otelhttp around the handler", "GET /items/{id}", "", func(r *rig, wt *watertight.Guard, h http.Handler) http.Handler {
		return chiOf(r.traced(h), watertightchi.Middleware(wt))
	}},
}

const oneItem = "  - {name: items, side: server, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}}\n"

// incident has one request inside, one in the queue, and one turned away. It returns the
// traces of the last two: begun by their caller, who has otelhttp too, or not.
func incident(t *testing.T, s stack, traced bool) (queued, refused story) {
	t.Helper()
	r := newRig(t)
	wt := r.guard(oneItem)
	g := r.gate()
	url := r.serve(s.build(r, wt, g)) + "/items/7"
	plain := r.wire(1)
	first := make(chan int, 1)
	go func() { first <- r.getIn(t.Context(), plain, url) }()
	<-g.arrived

	call := func() int { return r.getIn(t.Context(), plain, url) }
	if traced {
		call = func() int { return r.get(r.tracedBy(plain), url) }
	}
	second := make(chan int, 1)
	go func() { second <- call() }()
	r.queued(wt, 1)
	require.Equal(t, http.StatusServiceUnavailable, call())
	g.open()
	require.Equal(t, http.StatusOK, <-first)
	require.Equal(t, http.StatusOK, <-second)
	return r.storyOf("bulkhead.wait"), r.storyOf("bulkhead.reject")
}

func TestServerWithOtelhttpOutside(t *testing.T) {
	for _, s := range outside {
		t.Run(s.name, func(t *testing.T) {
			queued, refused := incident(t, s, true)
			assert.Equal(t, ""+
				"program\n"+
				"  HTTP GET\n"+
				"    "+s.served+"\n"+
				"      bulkhead.wait (server)\n"+
				"      bulkhead.grant (server)\n", queued.tree())
			// The wait is part of the request, for whoever measures how long that takes.
			requireWithin(t, queued.only(s.served), queued.only("bulkhead.wait"))
			requireWithin(t, queued.only(s.served), queued.only("bulkhead.grant"))
			assert.Equal(t, ""+
				"program\n"+
				"  HTTP GET !\n"+
				"    "+s.refused+" !\n"+
				"      bulkhead.reject (server) !\n", refused.tree())
			assert.Contains(t, refused.only(s.refused).Attributes(), attribute.Int("http.response.status_code", http.StatusServiceUnavailable))

			queued, refused = incident(t, s, false)
			assert.Equal(t, ""+
				s.served+"\n"+
				"  bulkhead.wait (server)\n"+
				"  bulkhead.grant (server)\n", queued.tree())
			assert.Equal(t, ""+
				s.refused+" !\n"+
				"  bulkhead.reject (server) !\n", refused.tree())
		})
	}
}

// The other order works, but tells less. otelhttp reads the caller from the headers again,
// and so puts its span beside the permit; and it does not see who is refused, nor who
// waits.
func TestServerWithOtelhttpInside(t *testing.T) {
	for _, s := range inside {
		t.Run(s.name, func(t *testing.T) {
			queued, refused := incident(t, s, true)
			assert.Equal(t, ""+
				"program\n"+
				"  HTTP GET\n"+
				"    bulkhead.wait (server)\n"+
				"    bulkhead.grant (server)\n"+
				"    "+s.served+"\n", queued.tree())
			requireWithin(t, queued.only("bulkhead.grant"), queued.only(s.served))
			assert.Equal(t, ""+
				"program\n"+
				"  HTTP GET !\n"+
				"    bulkhead.reject (server) !\n", refused.tree())

			// Without a caller there is nothing that holds the parts together.
			queued, refused = incident(t, s, false)
			assert.Equal(t, "bulkhead.wait (server)\n", queued.tree())
			assert.Equal(t, "bulkhead.reject (server) !\n", refused.tree())
			r := newRig(t)
			r.getIn(t.Context(), r.wire(1), r.serve(s.build(r, r.guard(oneItem), http.HandlerFunc(r.work)))+"/items/7")
			assert.Equal(t, ""+
				"bulkhead.grant (server)\n"+
				"  "+s.served+"\n"+
				"    work\n", r.tree())
		})
	}
}

// A clientStack is the transport of a client.
type clientStack func(r *rig, wt *watertight.Guard) http.RoundTripper

func beneath(r *rig, wt *watertight.Guard) http.RoundTripper {
	return transport.New(r.tracedBy(r.wire(1)), wt)
}

func above(r *rig, wt *watertight.Guard) http.RoundTripper {
	return r.tracedBy(transport.New(r.wire(1), wt))
}

// clientIncident does what incident does, with a client whose upstream has one permit.
func clientIncident(t *testing.T, build clientStack) (queued, refused story) {
	t.Helper()
	r := newRig(t)
	wt := r.guard("  - {name: up, side: client, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}}\n")
	g := r.gate()
	url := r.serve(r.traced(g))
	rt := build(r, wt)
	first := make(chan int, 1)
	go func() { first <- r.getIn(t.Context(), rt, url) }()
	<-g.arrived
	second := make(chan int, 1)
	go func() { second <- r.get(rt, url) }()
	r.queued(wt, 1)
	require.Zero(t, r.get(rt, url))
	g.open()
	require.Equal(t, http.StatusOK, <-first)
	require.Equal(t, http.StatusOK, <-second)
	return r.storyOf("bulkhead.wait"), r.storyOf("bulkhead.reject")
}

func TestClientWithOtelhttpBeneath(t *testing.T) {
	queued, refused := clientIncident(t, beneath)
	assert.Equal(t, ""+
		"program\n"+
		"  bulkhead.wait (client)\n"+
		"  bulkhead.grant (client)\n"+
		"    HTTP GET\n"+
		"      GET\n", queued.tree())
	// What is on the wire is what the span of the request lasts for.
	wait, wire := queued.only("bulkhead.wait"), queued.only("HTTP GET")
	assert.False(t, wire.StartTime().Before(wait.EndTime()))
	requireWithin(t, queued.only("bulkhead.grant"), wire)
	// A request that never was has no span.
	assert.Equal(t, ""+
		"program\n"+
		"  bulkhead.reject (client) !\n", refused.tree())
}

func TestClientWithOtelhttpAbove(t *testing.T) {
	queued, refused := clientIncident(t, above)
	// The headers are written before there is a permit, so that what the server does is
	// beside the permit and not under it.
	assert.Equal(t, ""+
		"program\n"+
		"  HTTP GET\n"+
		"    bulkhead.wait (client)\n"+
		"    bulkhead.grant (client)\n"+
		"    GET\n", queued.tree())
	// The span of the request counts the queue as its own time.
	requireWithin(t, queued.only("HTTP GET"), queued.only("bulkhead.wait"))
	// A request that never was has a span, and it failed.
	assert.Equal(t, ""+
		"program\n"+
		"  HTTP GET !\n"+
		"    bulkhead.reject (client) !\n", refused.tree())
	for _, kv := range refused.only("HTTP GET").Attributes() {
		assert.NotEqual(t, attribute.Key("http.response.status_code"), kv.Key)
	}
}

// A body that is still read holds the permit in either order, and both spans.
func TestSpansLastAsLongAsTheBody(t *testing.T) {
	for name, build := range map[string]clientStack{"beneath": beneath, "above": above} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			more := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "some")
				_ = http.NewResponseController(w).Flush()
				<-more
			}))
			defer s.Close()
			wt := r.guard("  - {name: up, side: client, bulkhead: {maxConcurrent: 1}}\n")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
			require.NoError(t, err)
			resp, err := build(r, wt).RoundTrip(req)
			require.NoError(t, err)
			assert.Empty(t, r.recorder.Ended())
			close(more)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			inner, outer := r.only("HTTP GET"), r.only("bulkhead.grant")
			if name == "above" {
				inner, outer = outer, inner
			}
			requireWithin(t, outer, inner)
			assert.Equal(t, outer.SpanContext().SpanID(), inner.Parent().SpanID())
		})
	}
}
