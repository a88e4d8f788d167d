package watertightchi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/adapters/chi"
)

func request(method, target string) *http.Request { return httptest.NewRequest(method, target, nil) }

// E24, E29: what the handler finds in its request is what it finds without the
// middleware, and so does what stands outside when the handler has returned,
// also when a hook makes the Guard copy the request.
func TestRoutingIsLeftAlone(t *testing.T) {
	type key struct{}
	for name, opts := range map[string][]watertight.Option{
		"plain": nil,
		"with a hook": {watertight.WithHooks(watertight.Hooks{
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
				return context.WithValue(ctx, key{}, 1)
			},
		})},
	} {
		t.Run(name, func(t *testing.T) {
			var outside string
			r := chi.NewRouter()
			r.Use(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					next.ServeHTTP(w, r)
					outside = r.Pattern
				})
			})
			r.Use(watertightchi.Middleware(guard(t, oneEach, opts...)))
			r.Route("/api", func(r chi.Router) {
				r.Get("/x/{id}", func(w http.ResponseWriter, r *http.Request) {
					rctx := chi.RouteContext(r.Context())
					assert.Equal(t, "/api/x/{id}", rctx.RoutePattern())
					assert.Equal(t, []string{"*", "id"}, rctx.URLParams.Keys)
					assert.Equal(t, []string{"", "7"}, rctx.URLParams.Values)
					assert.Equal(t, "7", chi.URLParam(r, "id"))
					assert.Equal(t, "7", r.PathValue("id"))
					assert.Equal(t, "/api/x/{id}", r.Pattern)
					io.WriteString(w, "ok")
				})
			})
			require.Equal(t, 200, get(r, "/api/x/7").Code)
			assert.Equal(t, "/api/x/{id}", outside)
		})
	}
}

// What rewrites the path or the method before the middleware is honoured, on
// each level.
func TestRewrittenRequests(t *testing.T) {
	var served string
	note := func(_ http.ResponseWriter, r *http.Request) { served = chi.RouteContext(r.Context()).RoutePattern() }
	versioned := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rctx := chi.RouteContext(r.Context())
			rctx.RoutePath = "/v1" + rctx.RoutePath
			next.ServeHTTP(w, r)
		})
	}
	routers := map[string]func(m mw) chi.Router{
		"on the root": func(m mw) chi.Router {
			r := chi.NewRouter()
			r.Use(chimw.CleanPath, chimw.StripSlashes, chimw.URLFormat, chimw.GetHead, m)
			r.Get("/item/{id}", note)
			r.Route("/sub", func(r chi.Router) {
				r.Use(m)
				r.With(m).Get("/item/{id}", note)
			})
			return r
		},
		"in a router below": func(m mw) chi.Router {
			r := chi.NewRouter()
			r.Get("/item/{id}", note)
			r.Route("/sub", func(r chi.Router) {
				r.Use(chimw.StripSlashes, chimw.URLFormat, chimw.GetHead, m)
				r.Get("/item/{id}", note)
			})
			return r
		},
		"by another prefix": func(m mw) chi.Router {
			r := chi.NewRouter()
			r.Route("/sub", func(r chi.Router) {
				r.Use(versioned, m)
				r.Get("/v1/item/{id}", note)
				r.Group(func(r chi.Router) {
					r.Use(m)
					r.Route("/v1/deep", func(r chi.Router) { r.Get("/{id}", note) })
				})
			})
			return r
		},
	}
	for _, test := range []struct{ routers, method, path, key string }{
		{"on the root", "GET", "/item/1/", "/item/{id}"},
		{"on the root", "GET", "//item/x/../1", "/item/{id}"},
		{"on the root", "HEAD", "/item/1", "/item/{id}"},
		{"on the root", "GET", "/item/1.json", "/item/{id}"},
		{"on the root", "GET", "/item/a%2Fb", "/item/{id}"},
		{"on the root", "GET", "/sub/item/1/", "/sub/item/{id}"},
		{"on the root", "HEAD", "/sub//item/1.json", "/sub/item/{id}"},
		{"on the root", "GET", "/sub/item/a%2Fb", "/sub/item/{id}"},
		{"in a router below", "GET", "/sub/item/1/", "/sub/item/{id}"},
		{"in a router below", "GET", "/sub/item/1.json", "/sub/item/{id}"},
		{"by another prefix", "GET", "/sub/item/1", "/sub/v1/item/{id}"},
		{"by another prefix", "GET", "/sub/deep/1", "/sub/v1/deep/{id}"},
	} {
		t.Run(test.routers+" "+test.method+" "+test.path, func(t *testing.T) {
			served = ""
			g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 10}}]}")
			r := routers[test.routers](watertightchi.Middleware(g))
			w := do(r, request(test.method, test.path))
			require.Equal(t, 200, w.Code)
			require.Equal(t, test.key, served)
			assert.Equal(t, []string{test.key}, keys(g, "routes"))
			assert.EqualValues(t, 1, compartment(t, g, "routes", test.key).Granted)
		})
	}
}
