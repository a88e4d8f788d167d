package watertightchi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
)

// E26: what has no route gets chi's answer though every route is full, and
// adds no key.
func TestScannersMeetNoLimitAndMakeNoKeys(t *testing.T) {
	g := guard(t, oneEach)
	m := watertightchi.Middleware(g)
	slow := newGate()
	r := chi.NewRouter()
	r.Use(m)
	r.Method("GET", "/users/{id}", slow)
	r.Route("/api", func(r chi.Router) {
		r.Use(m)
		r.Method("GET", "/x/{id}", slow)
	})
	// Nothing at "/" in the one, only POST in the other.
	r.Route("/bare", func(r chi.Router) { r.Method("GET", "/{id}", slow) })
	r.Route("/posts", func(r chi.Router) { r.Method("POST", "/", slow) })
	held := []string{"/users/1", "/api/x/1", "/bare/1"}
	for _, path := range held {
		slow.hold(r, path)
	}
	go do(r, request("POST", "/posts"))
	<-slow.entered
	t.Cleanup(func() { close(slow.open) })

	for range 10_000 {
		path := fmt.Sprintf("/%x", rand.Uint64())
		if rand.N(2) == 0 {
			path = "/api" + path
		}
		require.Equal(t, 404, get(r, path).Code, path)
	}
	for i := range 100 {
		require.Equal(t, 405, do(r, request(fmt.Sprint("BREW", i), "/users/1")).Code)
	}
	for _, target := range []string{"/users/1", "/api/x/1", "/bare/1"} {
		w := do(r, request("POST", target))
		require.Equal(t, 405, w.Code, target)
		require.Equal(t, "GET", w.Header().Get("Allow"), target)
	}
	for _, target := range []string{"/bare", "/bare/"} {
		require.Equal(t, 404, get(r, target).Code, target)
	}
	for _, target := range []string{"/posts", "/posts/"} {
		w := get(r, target)
		require.Equal(t, 405, w.Code, target)
		require.Equal(t, "POST", w.Header().Get("Allow"), target)
	}
	for _, target := range held {
		requireFull(t, get(r, target))
	}

	assert.ElementsMatch(t, []string{"/users/{id}", "/api/x/{id}", "/bare/{id}", "/posts"}, keys(g, "routes"))
	// 10 000 + 100 + 3 + 2 + 2, each counted once though /api asks twice.
	assert.EqualValues(t, 10_107, compartment(t, g, "(unmatched)", "").Granted)
}

// A NotFound handler under With or Group is no route either.
func TestNotFoundHandlersAreUnmatched(t *testing.T) {
	g := guard(t, oneEach)
	m := watertightchi.Middleware(g)
	r := chi.NewRouter()
	r.Get("/", ok)
	r.Route("/api", func(r chi.Router) {
		r.Get("/", ok)
		r.With(m).NotFound(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
		r.With(m).MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) })
	})
	r.With(m).NotFound(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	require.Equal(t, 404, get(r, "/no").Code)
	require.Equal(t, 404, get(r, "/api/no").Code)
	require.Equal(t, 405, do(r, request("POST", "/api")).Code)
	require.Equal(t, 405, do(r, request("POST", "/api/")).Code)
	assert.Empty(t, keys(g, "routes"))
	assert.EqualValues(t, 4, compartment(t, g, "(unmatched)", "").Granted)
}

// E28: chi runs no middleware on a router without routes, and what answers in
// front of this one is out of its reach.
func TestWhatTheMiddlewareDoesNotSee(t *testing.T) {
	g := guard(t, oneEach)
	empty := chi.NewRouter()
	empty.Use(watertightchi.Middleware(g))
	require.Equal(t, 404, get(empty, "/").Code)
	assert.Empty(t, g.Snapshot().Compartments)

	slow := newGate()
	r := chi.NewRouter()
	r.Use(chimw.Heartbeat("/alive"), watertightchi.Middleware(g))
	r.Method("GET", "/*", slow)
	held := slow.hold(r, "/any")
	requireFull(t, get(r, "/any"))
	require.Equal(t, 200, get(r, "/alive").Code)
	close(slow.open)
	<-held
	assert.Equal(t, []string{"/*"}, keys(g, "routes"))
}

// What is rewritten behind the middleware has no route when that looks, and is let
// through: the order is the user's to get right, and (unmatched) shows if it is wrong.
func TestRewrittenTooLate(t *testing.T) {
	g := guard(t, oneEach)
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g), chimw.StripSlashes, chimw.GetHead)
	r.Get("/x/{id}", ok)
	require.Equal(t, 200, get(r, "/x/1/").Code)
	require.Equal(t, 200, do(r, request("HEAD", "/x/1")).Code)
	assert.Empty(t, keys(g, "routes"))
	assert.EqualValues(t, 2, compartment(t, g, "(unmatched)", "").Granted)
}
