package watertightchi_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
)

type mw = func(http.Handler) http.Handler

// E23: /users/1 and /users/2 share a compartment that /ping is not in, wherever
// the middleware stands.
func TestEachRouteIsACompartment(t *testing.T) {
	for name, place := range map[string]struct {
		prefix, key string // of what is mounted
		routes      func(m mw, user http.Handler) chi.Router
	}{
		"Use on the root": {routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.Use(m)
			r.Method("GET", "/users/{id}", user)
			r.Get("/ping", ok)
			return r
		}},
		"With": {routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.With(m).Method("GET", "/users/{id}", user)
			r.With(m).Get("/ping", ok)
			return r
		}},
		"Group": {routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.Group(func(r chi.Router) {
				r.Use(m)
				r.Method("GET", "/users/{id}", user)
				r.Get("/ping", ok)
			})
			return r
		}},
		"Use above Route": {prefix: "/api", key: "/api", routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.Use(m)
			r.Route("/api", func(r chi.Router) {
				r.Method("GET", "/users/{id}", user)
				r.Get("/ping", ok)
			})
			return r
		}},
		"Use in Route": {prefix: "/api", key: "/api", routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.Route("/api", func(r chi.Router) {
				r.Use(m)
				r.Method("GET", "/users/{id}", user)
				r.Get("/ping", ok)
			})
			return r
		}},
		"With in front of Route": {prefix: "/api", key: "/api", routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.With(m).Route("/api", func(r chi.Router) {
				r.Method("GET", "/users/{id}", user)
				r.Get("/ping", ok)
			})
			return r
		}},
		"Group in front of Mount, one below": {prefix: "/v/2/api", key: "/v/{v}/api", routes: func(m mw, user http.Handler) chi.Router {
			api := chi.NewRouter()
			api.Method("GET", "/users/{id}", user)
			api.Get("/ping", ok)
			r := chi.NewRouter()
			r.Route("/v/{v}", func(r chi.Router) {
				r.Group(func(r chi.Router) {
					r.Use(m)
					r.Mount("/api", api)
				})
			})
			return r
		}},
		"With, two below": {prefix: "/v/2/api", key: "/v/{v}/api", routes: func(m mw, user http.Handler) chi.Router {
			r := chi.NewRouter()
			r.Route("/v/{v}", func(r chi.Router) {
				r.Route("/api", func(r chi.Router) {
					r.With(m).Method("GET", "/users/{id}", user)
					r.With(m).Get("/ping", ok)
				})
			})
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, oneEach)
			user := newGate()
			h := place.routes(watertightchi.Middleware(g), user)

			held := user.hold(h, place.prefix+"/users/1")
			require.Equal(t, []string{place.key + "/users/{id}"}, keys(g, "routes"), "the key at admission")
			requireFull(t, get(h, place.prefix+"/users/2"))
			require.Equal(t, 200, get(h, place.prefix+"/ping").Code)
			close(user.open)
			require.Equal(t, 200, (<-held).Code)
			require.Equal(t, 200, get(h, place.prefix+"/users/3").Code)

			users := compartment(t, g, "routes", place.key+"/users/{id}")
			assert.EqualValues(t, 2, users.Granted)
			assert.EqualValues(t, 1, users.Rejected["full"])
			assert.Equal(t, 1, users.Bulkhead.Peak)
			assert.EqualValues(t, 1, compartment(t, g, "routes", place.key+"/ping").Granted)
		})
	}
}

// All methods of a pattern share a compartment.
func TestMethodsShareARoute(t *testing.T) {
	g := guard(t, oneEach)
	slow := newGate()
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Get("/users/{id}", ok)
	r.Method("POST", "/users/{id}", slow)
	held := make(chan struct{})
	go func() {
		defer close(held)
		do(r, request("POST", "/users/1"))
	}()
	<-slow.entered
	requireFull(t, get(r, "/users/2"))
	close(slow.open)
	<-held
}

// match.route compares with the pattern that chi reports.
func TestPoliciesMatchOnTheRoute(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: reports
    side: server
    match: [{route: "/api/reports/{id}"}]
    bulkhead: {maxConcurrent: 1}
  - {name: rest, side: server, per: policy, bulkhead: {maxConcurrent: 10}}
`)
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Route("/api", func(r chi.Router) {
		r.Get("/reports/{id}", ok)
		r.Get("/reports/new", ok)
	})
	for _, path := range []string{"/api/reports/1", "/api/reports/2", "/api/reports/new"} {
		require.Equal(t, 200, get(r, path).Code)
	}
	assert.EqualValues(t, 2, compartment(t, g, "reports", "/api/reports/{id}").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "rest", "").Granted)
}

// The patterns that chi itself writes together are the keys.
func TestKeysAreNormalisedAsChiDoes(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 10}}]}")
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Get("/", ok)
	r.Get("/slash/", ok)
	r.Get("/files/*", ok)
	r.Get("/n/{id:[0-9]+}", ok)
	r.Route("/a", func(r chi.Router) {
		r.Get("/", ok)
		r.Route("/b", func(r chi.Router) {
			r.Get("/", ok)
			r.Get("/c", ok)
		})
	})
	for path, key := range map[string]string{
		"/":          "/",
		"/slash/":    "/slash",
		"/files/x/y": "/files/*",
		"/n/12":      "/n/{id:[0-9]+}",
		"/a":         "/a",
		"/a/":        "/a",
		"/a/b":       "/a/b",
		"/a/b/":      "/a/b",
		"/a/b/c":     "/a/b/c",
		"/n/%31":     "", // chi routes by the escaped path, and %31 is no digit
	} {
		before := len(keys(g, "routes"))
		w := get(r, path)
		if key == "" {
			require.Equal(t, 404, w.Code, path)
			require.Len(t, keys(g, "routes"), before, path)
			continue
		}
		require.Equal(t, 200, w.Code, path)
		require.Contains(t, keys(g, "routes"), key, path)
	}
	assert.Len(t, keys(g, "routes"), 7)
}

// A route is the whole way to it, also the second time, and also where a router is
// mounted below itself, so that the same router is at the beginning and further down.
func TestRoutesThatWereMet(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 10}}]}")
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Get("/health", ok)
	between := chi.NewRouter()
	r.Mount("/again", between)
	between.Mount("/", r)
	for range 3 {
		for _, path := range []string{"/health", "/again/health", "/none"} {
			get(r, path)
		}
	}
	require.Equal(t, []string{"/again/health", "/health"}, keys(g, "routes"))
	// Further down, the same request asks for a permit once more.
	assert.EqualValues(t, 6, compartment(t, g, "routes", "/again/health").Granted)
	assert.EqualValues(t, 3, compartment(t, g, "routes", "/health").Granted)
}
