package watertightchi_test

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/middleware"
)

func apiRouter() *chi.Mux {
	r := chi.NewRouter()
	r.Get("/x/{id}", ok)
	return r
}

// Wrapped round a router, the middleware sees its routes, and a router in which
// the whole is mounted sees through it.
func TestWrappedRoundARouter(t *testing.T) {
	outer, inner := guard(t, oneEach), guard(t, oneEach)
	api := chi.NewRouter()
	wrapped := watertightchi.Middleware(inner)(api)
	api.Get("/x/{id}", ok) // later than it was wrapped

	require.Equal(t, 200, get(wrapped, "/x/1").Code)
	assert.Equal(t, []string{"/x/{id}"}, keys(inner, "routes"))
	require.Equal(t, 404, get(wrapped, "/y").Code)
	assert.Len(t, keys(inner, "routes"), 1)

	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(outer))
	r.Mount("/api", wrapped)
	require.Equal(t, 200, get(r, "/api/x/1").Code)
	require.Equal(t, 404, get(r, "/api/y").Code)
	assert.Equal(t, []string{"/api/x/{id}"}, keys(outer, "routes"))
	assert.Equal(t, []string{"/api/x/{id}", "/x/{id}"}, keys(inner, "routes"))

	var walked []string
	require.NoError(t, chi.Walk(r, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		walked = append(walked, method+" "+route)
		return nil
	}))
	assert.Equal(t, []string{"GET /api/x/{id}"}, walked)
}

// Under an http.ServeMux and http.StripPrefix, the keys are those of the chi
// router, as its RoutePattern is.
func TestBehindAServeMux(t *testing.T) {
	g := guard(t, oneEach)
	api := chi.NewRouter()
	api.Use(watertightchi.Middleware(g))
	api.Get("/x/{id}", ok)
	api.Route("/sub", func(r chi.Router) { r.Get("/{id}", ok) })
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", api))
	require.Equal(t, 200, get(mux, "/api/x/1").Code)
	require.Equal(t, 200, get(mux, "/api/x/a%2Fb").Code)
	require.Equal(t, 200, get(mux, "/api/sub/1").Code)
	require.Equal(t, 404, get(mux, "/api/api/x/1").Code)
	assert.Equal(t, []string{"/sub/{id}", "/x/{id}"}, keys(g, "routes"))
}

// chi cannot see a router that is hidden in a plain handler: for all above it
// is one route.
func TestHiddenRouter(t *testing.T) {
	above, on, in, round := guard(t, oneEach), guard(t, oneEach), guard(t, oneEach), guard(t, oneEach)
	hidden := chi.NewRouter()
	hidden.Use(watertightchi.Middleware(on))
	hidden.With(watertightchi.Middleware(in)).Get("/x/{id}", ok)
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(above))
	r.Mount("/api", http.StripPrefix("/api", watertightchi.Middleware(round)(hidden)))

	require.Equal(t, 200, get(r, "/api/x/1").Code)
	assert.Equal(t, []string{"/api/*"}, keys(above, "routes"))
	assert.Equal(t, []string{"/api/*"}, keys(on, "routes"))
	assert.Equal(t, []string{"/api/x/{id}"}, keys(in, "routes"))
	assert.Equal(t, []string{"/api/x/{id}"}, keys(round, "routes"), "this one holds the router in its hands")
}

// Where no chi router is in sight, the policy's path pattern is the key, as it
// is for package middleware; ServeMux tells its own.
func TestWithoutChi(t *testing.T) {
	const yaml = `
version: 1
policies:
  - {name: reports, side: server, match: [{path: "/reports/{id}"}], bulkhead: {maxConcurrent: 1}}
  - {name: rest, side: server, bulkhead: {maxConcurrent: 1}}
`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", ok)
	for name, test := range map[string]struct {
		h    http.Handler
		keys []string
	}{
		"a handler":    {http.HandlerFunc(ok), []string{"/reports/{id}"}},
		"a ServeMux":   {mux, []string{"GET /reports/{id}"}},
		"a hidden one": {chimw.RequestID(apiRouter()), []string{"/reports/{id}"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, yaml)
			h := watertightchi.Middleware(g)(test.h)
			get(h, "/reports/1")
			assert.Equal(t, test.keys, keys(g, "reports"))
			get(h, "/other")
			if name != "a ServeMux" {
				assert.Equal(t, []string{""}, keys(g, "rest"))
			}
		})
	}
}

// Tests of handlers make route contexts of their own, without a root.
func TestContextWithoutARoot(t *testing.T) {
	g := guard(t, oneEach)
	rctx := chi.NewRouteContext()
	rctx.URLParams.Add("id", "1")
	r := request("GET", "/x/1")
	r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx))
	for _, next := range []http.Handler{http.HandlerFunc(ok), apiRouter()} {
		require.Equal(t, 200, do(watertightchi.Middleware(g)(next), r).Code)
	}
	assert.Equal(t, []string{"", "/x/{id}"}, keys(g, "routes"))
}

// Options that find the route win over chi.
func TestOptionsWin(t *testing.T) {
	g := guard(t, oneEach)
	m := watertightchi.Middleware(g, middleware.WithRoute(func(*http.Request) string { return "mine" }))
	r := chi.NewRouter()
	r.Use(m)
	r.Get("/", ok)
	require.Equal(t, 200, get(r, "/").Code)
	require.Equal(t, 200, get(m(apiRouter()), "/x/1").Code)
	require.Equal(t, 200, get(m(http.HandlerFunc(ok)), "/").Code)
	assert.Equal(t, []string{"mine"}, keys(g, "routes"))
}

// A router that is mounted in many roots, as in one for each test, does not
// make the middleware remember them all, and is right in each.
func TestManyRoots(t *testing.T) {
	g := guard(t, oneEach)
	shared := chi.NewRouter()
	shared.Use(watertightchi.Middleware(g))
	shared.Get("/{id}", ok)
	var roots []*chi.Mux
	var collected atomic.Int64
	for range 20 {
		r := chi.NewRouter()
		r.Mount("/shared", shared)
		runtime.AddCleanup(r, func(int64) { collected.Add(1) }, 1)
		roots = append(roots, r)
	}
	for range 3 {
		for _, r := range roots {
			require.Equal(t, 200, get(r, "/shared/1").Code)
			require.Equal(t, 404, get(r, "/shared").Code)
		}
	}
	assert.Equal(t, []string{"/shared/{id}"}, keys(g, "routes"))
	assert.EqualValues(t, 60, compartment(t, g, "routes", "/shared/{id}").Granted)

	clear(roots)
	for range 1000 {
		if runtime.GC(); collected.Load() >= 10 {
			break
		}
	}
	assert.GreaterOrEqual(t, collected.Load(), int64(10))
	runtime.KeepAlive(shared)
}

// chi lets two routers be mounted in each other; a request may then meet the
// same handler several times.
func TestRoutersMountedInEachOther(t *testing.T) {
	g := guard(t, oneEach)
	a, b := chi.NewRouter(), chi.NewRouter()
	a.Use(watertightchi.Middleware(g, middleware.Reentrant()))
	a.Get("/x", ok)
	a.Mount("/b", b)
	b.Get("/y", ok)
	b.Mount("/a", a)
	require.Equal(t, 200, get(a, "/b/a/b/a/x").Code)
	require.Equal(t, 200, get(a, "/b/a/b/y").Code)
	assert.Equal(t, []string{"/b/a/b/a/x", "/b/a/b/y"}, keys(g, "routes"))
}

// A type of the user's own that wraps a chi router is one as well, also if it
// cannot be compared.
func TestRouterOfAnotherType(t *testing.T) {
	g := guard(t, oneEach)
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Mount("/api", application{apiRouter(), nil})
	require.Equal(t, 200, get(r, "/api/x/1").Code)
	require.Equal(t, 200, get(watertightchi.Middleware(g)(application{apiRouter(), nil}), "/x/1").Code)
	assert.Equal(t, []string{"/api/x/{id}", "/x/{id}"}, keys(g, "routes"))
}

type application struct {
	chi.Router
	parts map[string]any
}

func TestMiddlewareWantsAGuard(t *testing.T) {
	assert.PanicsWithValue(t, "watertightchi: Middleware needs a Guard, got nil; make one with watertight.New", func() {
		watertightchi.Middleware(nil)
	})
}
