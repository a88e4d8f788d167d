package watertightchi

import (
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
)

// A router is a chi router and those mounted in it. chi has this only as a list
// that is made anew each time that one asks. It does not change, but for what it has met.
type router struct {
	routes chi.Routes
	mounts map[string]mount // by pattern
	plain  *plain           // nil: routes is not chi's own

	literals literals
}

// A mount is where requests go on to another router.
type mount struct {
	sub *router
	// over has the methods of routes that were registered over the mount: they
	// end here.
	over map[string]http.Handler
}

// below returns the router in which a request goes on that took the pattern p
// in rt, or nil if p is where it ends.
func (rt *router) below(p, method string) *router {
	m, ok := rt.mounts[p]
	if !ok {
		return nil
	}
	if _, over := m.over[method]; over {
		return nil
	}
	return m.sub
}

func newRouter(routes chi.Routes) *router {
	return build(routes, make(map[chi.Routes]*router))
}

// build makes one router for each in seen, since routers may be mounted in each
// other.
func build(routes chi.Routes, seen map[chi.Routes]*router) *router {
	// A router that wraps chi's may be a struct that cannot be a map's key.
	hashable := reflect.ValueOf(routes).Comparable()
	if hashable && seen[routes] != nil {
		return seen[routes]
	}
	rt := &router{routes: routes, mounts: make(map[string]mount)}
	if hashable {
		seen[routes] = rt
	}
	list := routes.Routes()
	rt.plain = newPlain(routes, list)
	handlers := make(map[string]map[string]http.Handler, len(list))
	for _, route := range list {
		handlers[route.Pattern] = route.Handlers
	}
	for _, route := range list {
		if route.SubRoutes == nil {
			continue
		}
		sub := build(route.SubRoutes, seen)
		// chi mounts at /x/*, and unless it was told /x/, also at /x/ and /x. It
		// lists these two only with the routes registered over them.
		slash := strings.TrimSuffix(route.Pattern, "*")
		for _, p := range []string{route.Pattern, slash, strings.TrimSuffix(slash, "/")} {
			rt.mounts[p] = mount{sub: sub, over: handlers[p]}
		}
	}
	return rt
}

// maxRoots bounds how many root routers a middleware remembers: one, unless a
// router is mounted in several.
const maxRoots = 8

// routers are the root routers that a middleware has met.
type routers struct {
	roots atomic.Pointer[[]*router] // the slice is never changed, only replaced
}

// at returns the router for a root.
func (rs *routers) at(root *chi.Mux) *router {
	met := rs.roots.Load()
	var roots []*router
	if met != nil {
		roots = *met
	}
	for _, rt := range roots {
		if rt.routes == chi.Routes(root) {
			return rt
		}
	}
	rt := newRouter(root)
	if len(roots) == maxRoots {
		roots = nil
	}
	grown := append(roots[:len(roots):len(roots)], rt)
	// Whoever loses the race has worked in vain, and its root is met again by
	// the next request.
	rs.roots.CompareAndSwap(met, &grown)
	return rt
}

// rootOf returns the router through which the request came to chi; nil if there
// is none, as in tests that make a context of their own.
func rootOf(live *chi.Context) *chi.Mux {
	if live == nil {
		return nil
	}
	root, _ := live.Routes.(*chi.Mux)
	return root
}
