package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

const perRoute = "{version: 1, policies: [{name: all, side: server, bulkhead: {maxConcurrent: 1}}]}"

// passThrough stands for any middleware between the two that hides the router,
// and copies the request, as one that adds to its context does.
func passThrough(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ctxKey{}, "clone")))
	})
}

// Where the route comes from. The handler sees its path value in any case.
func TestSourcesOfTheRoute(t *testing.T) {
	newMux := func() *http.ServeMux {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /a/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("id")) })
		return mux
	}
	pattern := middleware.WithRoute(func(r *http.Request) string { return r.Pattern })
	fixed := middleware.WithRoute(func(*http.Request) string { return "fixed" })
	const withPath = "{version: 1, policies: [{name: all, side: server, match: [{path: '/b'}, {path: '/a/{x}'}], bulkhead: {maxConcurrent: 1}}]}"

	for _, test := range []struct {
		name string
		yaml string
		wrap func(g *watertight.Guard) http.Handler
		key  string
	}{
		{"ServeMux behind it", perRoute, func(g *watertight.Guard) http.Handler { return middleware.New(g)(newMux()) }, "GET /a/{id}"},
		{"a clone in front of it", perRoute, func(g *watertight.Guard) http.Handler { return passThrough(middleware.New(g)(newMux())) }, "GET /a/{id}"},
		{"WithRouter, a clone between", perRoute, func(g *watertight.Guard) http.Handler {
			mux := newMux()
			return middleware.New(g, middleware.WithRouter(mux))(passThrough(mux))
		}, "GET /a/{id}"},
		{"WithRoute", perRoute, func(g *watertight.Guard) http.Handler { return middleware.New(g, fixed)(newMux()) }, "fixed"},
		{"the last option wins", perRoute, func(g *watertight.Guard) http.Handler {
			mux := newMux()
			return middleware.New(g, middleware.WithRouter(http.NewServeMux()), fixed, middleware.WithRouter(mux))(mux)
		}, "GET /a/{id}"},
		{"nil options change nothing", perRoute, func(g *watertight.Guard) http.Handler {
			return middleware.New(g, fixed, middleware.WithRouter(nil), middleware.WithRoute(nil))(newMux())
		}, "fixed"},
		{"behind the router", perRoute, func(g *watertight.Guard) http.Handler {
			inner, outer := newMux(), http.NewServeMux()
			outer.Handle("GET /a/{id}", middleware.New(g, pattern)(inner))
			return outer
		}, "GET /a/{id}"},
		{"none", perRoute, func(g *watertight.Guard) http.Handler { return middleware.New(g)(passThrough(newMux())) }, ""},
		{"none, but the policy has a path", withPath, func(g *watertight.Guard) http.Handler {
			return middleware.New(g)(passThrough(newMux()))
		}, "/a/{x}"},
		{"the router knows better than the policy", withPath, func(g *watertight.Guard) http.Handler { return middleware.New(g)(newMux()) }, "GET /a/{id}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, test.yaml)
			h := test.wrap(g)
			w := get(h, "/a/7")
			require.Equal(t, 200, w.Code)
			assert.Equal(t, "7", w.Body.String())
			assert.Equal(t, []string{test.key}, keys(g, "all"))
		})
	}
}

// E29: the key is known before the mux has run, so a refusal has it, too; after
// the call Pattern is on the request that was passed in, however it was copied.
func TestPatternIsVisibleOutside(t *testing.T) {
	for name, opts := range map[string][]middleware.Option{"the same request": nil, "a copy": {middleware.Reentrant()}} {
		t.Run(name, func(t *testing.T) {
			gate := newGate()
			mux := http.NewServeMux()
			mux.Handle("GET /a/{id}", gate)
			var rejected []string
			g := guard(t, perRoute, watertight.WithHooks(watertight.Hooks{Reject: func(_ context.Context, e watertight.RejectEvent) {
				rejected = append(rejected, e.Key)
			}}))
			h := middleware.New(g, opts...)(mux)
			r := httptest.NewRequest("GET", "/a/1", nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				do(h, r)
			}()
			<-gate.entered
			requireRefused(t, get(h, "/a/2"), 503, "full")
			assert.Equal(t, []string{"GET /a/{id}"}, rejected)
			close(gate.open)
			<-done
			assert.Equal(t, "GET /a/{id}", r.Pattern)
		})
	}
}

// E26: what no route matches passes unlimited, even while every route is full, and
// scanners do not fill the tables.
func TestNoRouteIsUnlimitedAndGrowsNothing(t *testing.T) {
	g := guard(t, perRoute)
	gate := newGate()
	mux := http.NewServeMux()
	mux.Handle("GET /a/{id}", gate)
	mux.Handle("POST /b/", gate)
	mux.Handle("/tree/{id}/", ok)
	h := middleware.New(g)(mux)
	held := gate.hold(h, "/a/1")
	requireRefused(t, get(h, "/a/2"), 503, "full")
	before := len(g.Snapshot().Compartments)

	for i := range 10_000 {
		require.Equal(t, 404, get(h, fmt.Sprintf("/scan/%x/%x", i, rand.Uint64())).Code)
	}
	for i := range 100 {
		w := do(h, httptest.NewRequest(fmt.Sprintf("X%x", i), "/a/1", nil))
		require.Equal(t, 405, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		require.Equal(t, 405, get(h, fmt.Sprintf("/b/%x", rand.Uint64())).Code)
		// The redirects of ServeMux itself, to the clean path and to the slash.
		for _, path := range []string{"/tree/%x", "/tree//%x", "/tree/./%x", "/tree/%x%%2F", "/tree/%x/../x%[1]x"} {
			path = fmt.Sprintf(path, rand.Uint64())
			require.Equal(t, 307, get(h, path).Code)
			require.Contains(t, []int{200, 307}, do(h, connect(path)).Code, "CONNECT %s", path)
		}
		require.Equal(t, 404, do(h, connect("/scan")).Code)
	}
	assert.LessOrEqual(t, len(g.Snapshot().Compartments), before+2)
	for _, key := range keys(g, "all") {
		assert.Contains(t, []string{"GET /a/{id}", "/tree/{id}/"}, key)
	}
	unmatched := compartment(t, g, "(unmatched)", "")
	assert.GreaterOrEqual(t, unmatched.Granted, uint64(10_200))
	assert.Zero(t, unmatched.InFlight)
	close(gate.open)
	<-held
}

// connect is a CONNECT request with a path, which HTTP/1 servers let through.
func connect(path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Method = "CONNECT"
	return r
}

// A redirect that somebody registered is a route like any other.
func TestRegisteredRedirectIsARoute(t *testing.T) {
	g := guard(t, perRoute)
	mux := http.NewServeMux()
	mux.Handle("/old/", http.RedirectHandler("/new", http.StatusMovedPermanently))
	mux.Handle("/{$}", http.RedirectHandler("/new", http.StatusFound))
	mux.Handle("/moved/{id}", http.RedirectHandler("/new", http.StatusFound))
	h := middleware.New(g)(mux)
	assert.Equal(t, 301, get(h, "/old/page").Code)
	assert.Equal(t, 302, get(h, "/").Code)
	assert.Equal(t, 302, get(h, "/moved/1").Code)
	assert.ElementsMatch(t, []string{"/old/", "/{$}", "/moved/{id}"}, keys(g, "all"))
}

// per: host on a server is the Host header's, in one spelling.
func TestPerHost(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: all, side: server, per: host, bulkhead: {maxConcurrent: 1}}]}")
	h := middleware.New(g)(ok)
	for _, host := range []string{"example.com", "EXAMPLE.com", "example.com:80", "example.com:443", "example.com."} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		require.Equal(t, 200, do(h, r).Code)
	}
	assert.Equal(t, []string{"example.com"}, keys(g, "all"))
}

// The matcher sees the request as it came: method, host, headers, escaped path.
func TestWhatPoliciesSee(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    side: server
    per: policy
    match:
      - method: [PUT]
        path: "/a/{id}/b"
        host: api.internal
        headers: {X-Plan: {exact: free}}
    bulkhead: {maxConcurrent: 1}
`)
	h := middleware.New(g)(ok)
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Method = "POST" },
		func(r *http.Request) { r.URL.RawPath, r.URL.Path = "", "/a/x/y/b" },
		func(r *http.Request) { r.Host = "other.internal" },
		func(r *http.Request) { r.Header.Set("X-Plan", "paid") },
		func(*http.Request) {},
	} {
		require.NotContains(t, keys(g, "all"), "", "nothing matched so far")
		r := httptest.NewRequest("PUT", "http://api.internal:80/a/x%2Fy/b", nil)
		r.Header.Set("X-Plan", "free")
		change(r)
		require.Equal(t, 200, do(h, r).Code)
	}
	assert.EqualValues(t, 1, compartment(t, g, "all", "").Granted)
	assert.EqualValues(t, 4, compartment(t, g, "(unmatched)", "").Granted)
}
