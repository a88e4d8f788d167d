package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

const once = `
version: 1
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: all, side: server, match: [{path: /}], per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, window: {calls: 10}}}
  - {name: host, side: server, match: [{host: other}], per: policy, bulkhead: {maxConcurrent: 1}}
`

// E27: the same middleware round the router and round a route, at a limit of one:
// the only request in the system does not refuse itself, and counts once.
func TestSameGuardTwiceCountsOnce(t *testing.T) {
	g := guard(t, once)
	wrap := middleware.New(g)
	ran := 0
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })
	mux := http.NewServeMux()
	mux.Handle("/work", wrap(wrap(count)))
	mux.Handle("/healthz", wrap(count))
	inner := http.NewServeMux() // has no route, so what gets here is unmatched
	mux.Handle("/lost/", wrap(inner))
	h := wrap(mux)

	require.Equal(t, 200, get(h, "/work").Code)
	c := compartment(t, g, "all", "")
	assert.EqualValues(t, 1, c.Granted)
	assert.Equal(t, 1, c.Bulkhead.Peak)
	assert.Equal(t, 1, c.Breaker.Calls)
	assert.Zero(t, c.InFlight)

	require.Equal(t, 200, get(h, "/healthz").Code)
	assert.EqualValues(t, 1, compartment(t, g, "health", "").Granted)
	assert.Zero(t, compartment(t, g, "health", "").InFlight)

	require.Equal(t, 404, get(h, "/none").Code)
	assert.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted)
	require.Equal(t, 404, get(h, "/lost/1").Code)
	assert.EqualValues(t, 2, compartment(t, g, "all", "").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted, "it was admitted further out")
	assert.Equal(t, 2, ran)
}

// E27: directly inside one another, the outer one asks the router that the inner
// one knows.
func TestNestedHandlersShareTheRoute(t *testing.T) {
	g := guard(t, perRoute)
	wrap := middleware.New(g)
	mux := http.NewServeMux()
	mux.Handle("GET /a/{id}", ok)
	h := wrap(wrap(mux))
	require.Equal(t, 200, get(h, "/a/1").Code)
	require.Equal(t, 404, get(h, "/none").Code)
	assert.Equal(t, []string{"GET /a/{id}"}, keys(g, "all"))
	assert.EqualValues(t, 1, compartment(t, g, "all", "GET /a/{id}").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted)
}

// E27: two Guards know nothing of each other; both count.
func TestTwoGuardsBothCount(t *testing.T) {
	outer, inner := guard(t, once), guard(t, once)
	require.Equal(t, 200, get(middleware.New(outer)(middleware.New(inner)(ok)), "/").Code)
	for _, g := range []*watertight.Guard{outer, inner} {
		assert.EqualValues(t, 1, compartment(t, g, "all", "").Granted)
		assert.Equal(t, 1, compartment(t, g, "all", "").Breaker.Calls)
	}
}

// E27: a handler that sends its request through the router again.
func TestReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name    string
			opts    []middleware.Option
			status  int
			granted uint64
		}{
			{"with", []middleware.Option{middleware.Reentrant()}, 200, 1},
			{"without it waits for itself", nil, 408, 1},
		} {
			g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}]}")
			mux := http.NewServeMux()
			h := middleware.New(g, test.opts...)(mux)
			mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = "/new"
				h.ServeHTTP(w, r)
			})
			mux.Handle("/new", ok)
			assert.Equal(t, test.status, get(h, "/old").Code, test.name)
			c := compartment(t, g, "all", "")
			assert.Equal(t, test.granted, c.Granted, test.name)
			assert.Zero(t, c.InFlight, test.name)
		}
	})
}

// E27: another compartment is another limit; it counts, and may refuse. What the
// outer one holds comes back either way.
func TestAnotherCompartmentFurtherInCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, perRoute)
		gate := newGate()
		mux := http.NewServeMux()
		h := middleware.New(g, middleware.Reentrant())(mux)
		mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
			inner := r.Clone(r.Context())
			inner.URL.Path = "/new"
			h.ServeHTTP(w, inner)
		})
		mux.Handle("/new", gate)

		held := gate.hold(h, "/old")
		assert.EqualValues(t, 1, compartment(t, g, "all", "/old").InFlight)
		assert.EqualValues(t, 1, compartment(t, g, "all", "/new").InFlight)
		requireRefused(t, get(h, "/new"), 503, "full")
		close(gate.open)
		require.Equal(t, 200, (<-held).Code)

		gate.open = make(chan struct{})
		held = gate.hold(h, "/new")
		requireRefused(t, get(h, "/old"), 503, "full")
		assert.Zero(t, compartment(t, g, "all", "/old").InFlight)
		assert.EqualValues(t, 2, compartment(t, g, "all", "/old").Granted)
		close(gate.open)
		<-held
	})
}

// The mark is the request's: it does not reach another that merely came from it.
func TestTheMarkEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, once)
		gate := newGate()
		wrap := middleware.New(g)
		h := wrap(wrap(gate))
		held := gate.hold(h, "/")
		requireRefused(t, get(h, "/"), 503, "full")
		close(gate.open)
		require.Equal(t, 200, (<-held).Code)
		require.Equal(t, 200, get(h, "/").Code)
	})
}

// Draining lets a request that is inside pass the same Guard further in.
func TestDrainingLetsThoseInsideGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, once)
		gate := newGate()
		wrap := middleware.New(g)
		inner := wrap(ok)
		h := wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			gate.entered <- r
			<-gate.open
			inner.ServeHTTP(w, r)
		}))
		held := gate.hold(h, "/")
		drained := make(chan error, 1)
		go func() { drained <- g.Drain(t.Context()) }()
		synctest.Wait()
		requireRefused(t, do(inner, httptest.NewRequest("GET", "/", nil)), 503, "draining")
		close(gate.open)
		require.Equal(t, 200, (<-held).Code)
		require.NoError(t, <-drained)
	})
}
