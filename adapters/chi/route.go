package watertightchi

import (
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
)

// contexts are for looking routes up. chi writes what it finds into the context
// that it is given. With the request's own, routing would start from there:
// the route would not be found, or its parameters would be there twice.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// route returns the pattern of the route that r takes, or "" if it has none. r
// must have a chi context with a root.
//
// chi may be anywhere between its first look-up and its last. So route follows
// the patterns that chi has found down to the router that comes next, which
// finds the rest.
func (rs *routers) route(r *http.Request) string {
	live := chi.RouteContext(r.Context())
	rt := rs.at(rootOf(live))
	method := methodOf(r, live)
	if len(live.RoutePatterns) == 0 {
		return rt.find(nil, method, pathOf(r, live))
	}
	for _, p := range live.RoutePatterns {
		sub := rt.below(p, method)
		if sub == nil {
			// The end of the way, as far as anybody can see.
			return live.RoutePattern()
		}
		rt = sub
	}
	return rt.find(live.RoutePatterns, method, restOf(r, live))
}

// next returns the pattern of the route that r takes if it goes to rt now. live
// is nil if chi has not seen the request.
func (rt *router) next(r *http.Request, live *chi.Context) string {
	var before []string
	if live != nil {
		before = live.RoutePatterns
	}
	return rt.find(before, methodOf(r, live), pathOf(r, live))
}

// find returns the pattern of the route that a request takes which reached rt
// by the given patterns, or "" if it has none.
func (rt *router) find(before []string, method, path string) string {
	if len(before) == 0 {
		if p := rt.plain.find(method, path); p != "" {
			return p
		}
		if p := rt.literals.find(method, path); p != "" {
			return p
		}
	}
	rctx := contexts.Get().(*chi.Context)
	defer contexts.Put(rctx)
	rctx.Reset()
	rctx.RoutePatterns = append(rctx.RoutePatterns, before...)
	if !rt.serves(rctx, method, path) {
		return ""
	}
	pattern := rctx.RoutePattern()
	if pattern == path {
		rt.literals.add(method, pattern)
	}
	return pattern
}

// serves reports whether a handler serves the path, and adds the patterns that
// lead there to rctx.
//
// Find alone does not tell. It takes the path at which a router is mounted,
// without anything behind it, for a route, while chi goes on to the route "/"
// of that router; and it looks into a mounted router also where a route was
// registered over the mount.
func (rt *router) serves(rctx *chi.Context, method, path string) bool {
	for {
		n := len(rctx.RoutePatterns)
		found := rt.routes.Find(rctx, method, path) != ""
		stub := false
		for i, p := range rctx.RoutePatterns[n:] {
			sub := rt.below(p, method)
			if sub == nil {
				rctx.RoutePatterns = rctx.RoutePatterns[:n+i+1]
				return true
			}
			rt, stub = sub, !strings.HasSuffix(p, "*")
		}
		// No router is mounted at "/" without a wildcard, so path ends the loop
		// also where some router other than chi's says so.
		if !stub || path == "/" {
			return found
		}
		path = "/"
	}
}

// methodOf, pathOf and restOf say what chi's next look-up will be for.

func methodOf(r *http.Request, live *chi.Context) string {
	if live != nil && live.RouteMethod != "" {
		return live.RouteMethod
	}
	return r.Method
}

func pathOf(r *http.Request, live *chi.Context) string {
	switch {
	case live != nil && live.RoutePath != "":
		return live.RoutePath
	case r.URL.RawPath != "":
		return r.URL.RawPath
	case r.URL.Path != "":
		return r.URL.Path
	}
	return "/"
}

// restOf returns the path that is left for the mounted router to which chi's
// last look-up led.
//
// There are two places to be in. In front of the mount, as With and Group are,
// RoutePath is still that of the router above. Behind it, as Use is, RoutePath
// is the rest, and the parameter "*", which held it, has been emptied; but the
// copy in the request, written at the look-up, still holds it. If that is empty
// too, the rest is "/" in both places.
func restOf(r *http.Request, live *chi.Context) string {
	rest := r.PathValue("*")
	if rest == "" {
		return "/"
	}
	params := live.URLParams
	if i := len(params.Keys) - 1; i >= 0 && i < len(params.Values) && params.Keys[i] == "*" && params.Values[i] == "" {
		return live.RoutePath
	}
	if path := pathOf(r, live); strings.HasSuffix(path, "/"+rest) {
		return path[len(path)-len(rest)-1:] // without a new string
	}
	return "/" + rest
}
