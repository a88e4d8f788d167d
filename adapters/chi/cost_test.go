package watertightchi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/adapters/chi"
)

var costs = []struct {
	name, path string
	// allocs of finding a route with parameters, all of them chi's: two strings in Find for
	// each router that it goes down, and up to two in RoutePattern, which writes
	// the patterns of several routers together.
	allocs float64
}{
	{"root", "/items/1", 0},
	{"literal", "/health", 0},
	{"literal, mounted", "/api/health", 0},
	{"mounted", "/api/items/1", 4},
	{"mounted twice", "/api/v1/items/1", 6},
	{"mounted, bare", "/api", 0},
	{"not found", "/no", 0},
	{"not found below", "/api/no", 1},
}

// routes is what costs are measured on: nothing that allocates, but chi.
func routes(uses ...mw) http.Handler {
	nothing := func(http.ResponseWriter, *http.Request) {}
	r := chi.NewRouter()
	r.Use(uses...)
	r.Get("/items/{id}", nothing)
	r.Get("/health", nothing)
	r.NotFound(nothing)
	r.Route("/api", func(r chi.Router) {
		r.Get("/health", nothing)
		r.Get("/", nothing)
		r.Get("/items/{id}", nothing)
		r.Route("/v1", func(r chi.Router) { r.Get("/items/{id}", nothing) })
	})
	return r
}

const roomy = "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 100}}]}"

// The middleware adds nothing to what chi needs for the look-up.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	bare := routes(func(next http.Handler) http.Handler { return next })
	guarded := routes(watertightchi.Middleware(guard(t, roomy)))
	for _, cost := range costs {
		r := request("GET", cost.path)
		w := httptest.NewRecorder()
		allocs := func(h http.Handler) float64 {
			return testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) })
		}
		assert.InDelta(t, cost.allocs, allocs(guarded)-allocs(bare), 0.5, cost.name)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for _, chain := range []struct {
		name string
		h    http.Handler
	}{
		{"chi alone", routes()},
		{"guarded", routes(watertightchi.Middleware(guard(b, roomy)))},
		{"chi's Throttle", routes(chimiddleware.Throttle(100))}, // one limit for all, no policy, no key
		{"a new context each time", routes(func(next http.Handler) http.Handler { return lookedUpAnew{next} })},
	} {
		for _, cost := range costs {
			b.Run(chain.name+"/"+cost.name, func(b *testing.B) {
				r := request("GET", cost.path)
				w := httptest.NewRecorder()
				b.ReportAllocs()
				for b.Loop() {
					chain.h.ServeHTTP(w, r)
				}
			})
		}
	}
}

// A middleware alone, around nothing, where Use puts it: what chi itself costs
// would drown the difference. The rival has one limit for all, and neither a policy
// nor a key.
func BenchmarkAroundNothing(b *testing.B) {
	for _, around := range []struct {
		name string
		mw   mw
	}{
		{"guarded", watertightchi.Middleware(guard(b, roomy))},
		{"chi's Throttle", chimiddleware.Throttle(100)},
	} {
		h := around.mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		w := httptest.NewRecorder()
		rctx := chi.NewRouteContext()
		rctx.Routes = routes().(chi.Routes)
		ctx, cancel := context.WithCancel(context.WithValue(b.Context(), chi.RouteCtxKey, rctx))
		defer cancel()
		for name, path := range map[string]string{"": "/items/1", ", literal": "/health"} {
			r := request("GET", path).WithContext(ctx)
			b.Run(around.name+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					h.ServeHTTP(w, r)
				}
			})
			b.Run(around.name+name+", all cores", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						h.ServeHTTP(w, r)
					}
				})
			})
		}
	}
}

// lookedUpAnew is the rival: the look-up alone, without a pool.
type lookedUpAnew struct{ next http.Handler }

func (h lookedUpAnew) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rctx := chi.NewRouteContext()
	chi.RouteContext(r.Context()).Routes.Find(rctx, r.Method, r.URL.Path)
	h.next.ServeHTTP(w, r)
}

func BenchmarkParallel(b *testing.B) {
	h := routes(watertightchi.Middleware(guard(b, roomy)))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := request("GET", "/api/items/1")
		w := httptest.NewRecorder()
		for pb.Next() {
			h.ServeHTTP(w, r)
		}
	})
}
