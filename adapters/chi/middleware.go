package watertightchi

import (
	"net/http"
	"slices"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// Middleware returns a middleware that admits requests through wt and gives
// each chi route pattern a compartment of its own; see the package's
// documentation for where to put it, and package middleware for what a refused
// caller gets. One value may be used in several places and by several routers.
// Options are those of package middleware; one that finds the route wins over
// chi. Middleware panics if wt is nil.
func Middleware(wt *watertight.Guard, opts ...middleware.Option) func(http.Handler) http.Handler {
	if wt == nil {
		panic("watertightchi: Middleware needs a Guard, got nil; make one with watertight.New")
	}
	var met routers
	inside := middleware.New(wt, routed(met.route, opts)...)
	return func(next http.Handler) http.Handler {
		if routes, ok := next.(chi.Routes); ok {
			return outside(wt, next, routes, opts)
		}
		return &handler{
			routed: inside(next),
			// Made only if needed: a second handler would make the Guard mark
			// every request.
			unrouted: sync.OnceValue(func() http.Handler { return middleware.New(wt, opts...)(next) }),
		}
	}
}

// routed puts the route in front of opts, where any of these can overrule it.
func routed(route func(*http.Request) string, opts []middleware.Option) []middleware.Option {
	return slices.Insert(slices.Clone(opts), 0, middleware.WithRoute(route))
}

// A handler stands in a chain of middleware, where chi has left its context in
// the request, unless the chain is not chi's.
type handler struct {
	routed   http.Handler
	unrouted func() http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rootOf(chi.RouteContext(r.Context())) != nil {
		h.routed.ServeHTTP(w, r)
		return
	}
	h.unrouted().ServeHTTP(w, r)
}

// outside wraps a router. The result is one too, so that a router in which it
// is mounted can still see the routes.
func outside(wt *watertight.Guard, next http.Handler, routes chi.Routes, opts []middleware.Option) http.Handler {
	// Not now: the routes may be registered later.
	rt := sync.OnceValue(func() *router { return newRouter(routes) })
	route := func(r *http.Request) string { return rt().next(r, chi.RouteContext(r.Context())) }
	return &wrapped{middleware.New(wt, routed(route, opts)...)(next), routes}
}

// A wrapped is a router behind the middleware.
type wrapped struct {
	http.Handler
	tree
}

// tree is chi.Routes by a name that does not hide its method Routes.
type tree interface{ chi.Routes }
