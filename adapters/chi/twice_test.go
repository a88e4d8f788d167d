package watertightchi_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/middleware"
)

// E27: the same Guard in Use, in With and in front of the router takes one
// permit, also as two middleware values.
func TestOneGuardInSeveralPlacesCountsOnce(t *testing.T) {
	g := guard(t, oneEach)
	m, again := watertightchi.Middleware(g), watertightchi.Middleware(g)
	r := chi.NewRouter()
	r.Use(m)
	r.With(m, again).Get("/", ok)
	r.With(again).Route("/sub", func(r chi.Router) {
		r.Use(again)
		r.With(m).Get("/{id}", ok)
	})
	h := again(r)
	for _, path := range []string{"/", "/sub/1"} {
		require.Equal(t, 200, get(h, path).Code, path)
	}
	for _, key := range []string{"/", "/sub/{id}"} {
		c := compartment(t, g, "routes", key)
		assert.EqualValues(t, 1, c.Granted, key)
		assert.Equal(t, 1, c.Bulkhead.Peak, key)
		assert.Zero(t, c.InFlight, key)
	}
}

// E27: two Guards both count.
func TestTwoGuardsBothCount(t *testing.T) {
	outer, inner := guard(t, oneEach), guard(t, oneEach)
	slow := newGate()
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(outer))
	r.With(watertightchi.Middleware(inner)).Method("GET", "/{id}", slow)
	held := slow.hold(r, "/1")
	assert.EqualValues(t, 1, compartment(t, outer, "routes", "/{id}").InFlight)
	assert.EqualValues(t, 1, compartment(t, inner, "routes", "/{id}").InFlight)
	close(slow.open)
	<-held
}

// E27: a request that a handler sends through the router once more stays in the
// compartment that it is in.
func TestSentThroughTheRouterAgain(t *testing.T) {
	g := guard(t, oneEach)
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g, middleware.Reentrant()))
	r.Get("/old", func(w http.ResponseWriter, req *http.Request) {
		req.URL.Path = "/new"
		r.ServeHTTP(w, req)
	})
	r.Get("/new", ok)
	require.Equal(t, 200, get(r, "/old").Code)
	require.Equal(t, []string{"/old"}, keys(g, "routes"))
	assert.EqualValues(t, 1, compartment(t, g, "routes", "/old").Granted)
}
