package watertightchi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/policy"
)

// A probe is a middleware of this package with a Guard of its own, which notes
// the route that the Guard was told.
type probe struct {
	name  string
	guard *watertight.Guard
}

type sightingsKey struct{}

// sightings are the routes that the probes saw for one request; "" is none.
type sightings map[string]string

func newProbe(t require.TestingT, name string) *probe {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "all", Side: policy.Server, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1000},
	}}})
	require.NoError(t, err)
	return &probe{name, watertight.New(set, watertight.WithHooks(watertight.Hooks{
		// Not called for requests without a route.
		Arrive: func(ctx context.Context, req *policy.Request) context.Context {
			ctx.Value(sightingsKey{}).(sightings)[name] = req.Route
			return nil
		},
	}))}
}

func (p *probe) middleware(next http.Handler) http.Handler {
	h := watertightchi.Middleware(p.guard)(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(sightingsKey{}).(sightings)[p.name] = ""
		h.ServeHTTP(w, r)
	})
}

// A forest grows random trees of routers with probes in all places.
type forest struct {
	t      *rapid.T
	probes int
	served string // what chi says about the last request, if a handler ran
}

func (f *forest) probe() func(http.Handler) http.Handler {
	f.probes++
	return newProbe(f.t, fmt.Sprint("probe ", f.probes)).middleware
}

func (f *forest) coin() bool { return rapid.Bool().Draw(f.t, "coin") }

func (f *forest) pattern() string {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "b", "ab", "{x}", "{y}", "{x:[ab]+}", "a-{x}", "{x}.{z}",
	}), 0, 2).Draw(f.t, "segments")
	return "/" + strings.Join(segments, "/")
}

// sameName keeps apart what this package cannot: chi no longer lists a mount at
// /{x} once a route for all methods of /{y}/* was registered over it, and what
// is left of the mount, /{x} itself, passes for a route.
func (f *forest) sameName(pattern string) string { return strings.ReplaceAll(pattern, "{y}", "{x}") }

func (f *forest) endpoint(_ http.ResponseWriter, r *http.Request) {
	f.served = chi.RouteContext(r.Context()).RoutePattern()
}

// plant registers what chi accepts: it panics on conflicts.
func plant(register func()) {
	defer func() { _ = recover() }()
	register()
}

func (f *forest) router(depth int, uses ...func(http.Handler) http.Handler) *chi.Mux {
	r := chi.NewRouter()
	r.Use(uses...)
	mounted := map[string]bool{} // chi's own check for doubles has gaps
	if f.coin() {
		r.Use(f.probe())
	}
	for range rapid.IntRange(1, 4).Draw(f.t, "registrations") {
		var here chi.Router = r
		switch rapid.IntRange(0, 3).Draw(f.t, "place") {
		case 0:
			here = r.With(f.probe())
		case 1:
			r.Group(func(g chi.Router) {
				g.Use(f.probe())
				here = g
			})
		}
		pattern := f.pattern()
		switch kind := rapid.IntRange(0, 6).Draw(f.t, "kind"); {
		case kind <= 1:
			plant(func() { here.Get(pattern, f.endpoint) })
		case kind == 2:
			plant(func() { here.Post(pattern, f.endpoint) })
		case kind == 3:
			wild := f.sameName(strings.TrimSuffix(pattern, "/")) + "/*"
			if f.coin() {
				plant(func() { here.HandleFunc(wild, f.endpoint) })
			} else {
				plant(func() { here.Get(wild, f.endpoint) })
			}
		case depth == 0:
			plant(func() { here.HandleFunc(pattern, f.endpoint) })
		default:
			pattern = f.sameName(pattern)
			if mounted[pattern] {
				continue
			}
			mounted[pattern] = true
			if f.coin() {
				pattern = strings.TrimSuffix(pattern, "/") + "/"
			}
			var sub http.Handler = f.router(depth - 1)
			if rapid.IntRange(0, 3).Draw(f.t, "wrapped") == 0 {
				p := newProbe(f.t, fmt.Sprint("wrapped ", f.probes))
				f.probes++
				wrapped := watertightchi.Middleware(p.guard)(sub)
				sub = routerSeenBy{wrapped, wrapped.(chi.Routes), p.name}
			}
			plant(func() { here.Mount(pattern, sub) })
			if f.coin() { // a route over the mount
				over := rapid.SampledFrom([]string{"", "/", "/*"}).Draw(f.t, "over")
				plant(func() { here.Get(strings.TrimSuffix(pattern, "/")+over, f.endpoint) })
			}
		}
	}
	return r
}

// routerSeenBy is a wrapped router that notes that its probe was passed.
type routerSeenBy struct {
	http.Handler
	tree
	name string
}

type tree interface{ chi.Routes }

func (s routerSeenBy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Context().Value(sightingsKey{}).(sightings)[s.name] = ""
	s.Handler.ServeHTTP(w, r)
}

// E23, E24, E26: wherever the middleware stands, it knows at admission what
// chi says when the handler runs, and routing goes on as if it had not looked.
func TestRouteIsWhatChiServes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &forest{t: t}
		var uses []func(http.Handler) http.Handler
		if f.coin() {
			// What these do comes before the probe, so it must see it.
			uses = append(uses, rapid.SampledFrom([]func(http.Handler) http.Handler{
				chimw.StripSlashes, chimw.CleanPath, chimw.GetHead, chimw.URLFormat,
			}).Draw(t, "rewriter"))
		}
		uses = append(uses, newProbe(t, "root").middleware)
		root := chi.NewRouter()
		// A mount at "/" has one pattern, one at "/top" three.
		switch rapid.IntRange(0, 3).Draw(t, "root") {
		case 0:
			root.Use(uses...)
			root.Mount("/", f.router(2))
		case 1:
			root.Use(uses...)
			root.With(newProbe(t, "with root").middleware).Mount("/top", f.router(2))
		case 2:
			root = f.router(0, uses...) // without mounts
		default:
			root = f.router(2, uses...)
		}

		for range 20 {
			path := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
				"a", "b", "ab", "ba", "a-b", "a.b", "top", "", "x%2Fy",
			}), 0, 5).Draw(t, "path"), "/")
			if strings.HasPrefix(path, "//") && f.coin() {
				path = "/top" + path[1:]
			}
			method := rapid.SampledFrom([]string{"GET", "GET", "GET", "POST", "HEAD", "BREW", "*"}).Draw(t, "method")
			for range 2 { // a route that was met is found in another way
				f.served = ""
				seen := sightings{}
				r := httptest.NewRequest(method, path, nil)
				r = r.WithContext(context.WithValue(r.Context(), sightingsKey{}, seen))
				root.ServeHTTP(httptest.NewRecorder(), r)
				require.Contains(t, seen, "root")
				for name, route := range seen {
					require.Equalf(t, f.served, route, "%s of %s %s", name, method, path)
				}
			}
		}
	})
}
