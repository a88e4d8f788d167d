package main

import (
	"context"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/zeromicro/go-zero/core/syncx"

	watertightchi "github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/middleware"
)

// A wrapper is what a middleware does to a handler.
type wrapper = func(http.Handler) http.Handler

type server struct {
	name string
	make func() wrapper
}

// servers are the middlewares that limit how many requests are inside.
var servers = []server{
	{throttleName, func() wrapper { return chimiddleware.Throttle(limit) }},
	{"chi ThrottleBacklog", func() wrapper { return chimiddleware.ThrottleBacklog(limit, limit, time.Hour) }},
	{"go-zero syncx.Limit, as its MaxConns does (no queue)", maxConns},
	{"failsafehttp, bulkhead", func() wrapper {
		return failsafeWrapper(failsafeBulkhead[*http.Response]())
	}},
}

// breakingServers have a breaker, too.
var breakingServers = []server{
	{"failsafehttp, bulkhead and breaker (no slow-call rate)", func() wrapper {
		return failsafeWrapper(failsafeBulkhead[*http.Response](), failsafeBreaker[*http.Response]())
	}},
}

const throttleName = "chi Throttle"

func failsafeWrapper(policies ...failsafe.Policy[*http.Response]) wrapper {
	return func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, policies...) }
}

// maxConns is what go-zero's rest/handler.MaxConnsHandler comes to. That package
// would bring gRPC and the exporters of four tracing systems with it.
func maxConns() wrapper {
	return func(next http.Handler) http.Handler {
		latch := syncx.NewLimit(limit)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !latch.TryBorrow() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			defer func() { must(latch.Return() == nil) }()
			next.ServeHTTP(w, r)
		})
	}
}

func serverRows() []row {
	ours := func(keys string) func() wrapper {
		return func() wrapper { return watertightchi.Middleware(guard(keys)) }
	}
	rows := []row{{
		name:  "server middleware in a flat chi router, around an empty handler",
		goals: []goal{faster(throttleName), extra(120)},
		rivals: append([]rival{
			around("watertight, per route", ours("per: route, "+withBulkhead)),
			around("watertight, per policy (the route is found and not used)", ours("per: policy, "+withBulkhead)),
			around("watertight without chi, per policy", func() wrapper {
				return middleware.New(guard("per: policy, " + withBulkhead))
			}),
		}, eachServer(servers)...),
	}, {
		name: "server middleware with bulkhead and breaker, the same",
		rivals: append([]rival{
			around("watertight, per route", ours("per: route, "+withBulkhead+", "+withBreaker)),
		}, eachServer(breakingServers)...),
	}}
	for i := range rows {
		rows[i].plus = true
		rows[i].raw = around("the handler alone", func() wrapper {
			return func(next http.Handler) http.Handler { return next }
		})
	}
	return rows
}

func eachServer(all []server) []rival {
	var rivals []rival
	for _, s := range all {
		rivals = append(rivals, around(s.name, s.make))
	}
	return rivals
}

func around(name string, make func() wrapper) rival {
	return rival{name, func(m *meter, ops int) {
		alone(m, ops, func(ctx context.Context, ops int) { serve(ctx, ops, make()(empty)) })
	}}
}

var served int

var empty = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })

// serve has h, as the innermost middleware of a router, serve the same request
// again and again: what the server and the router do for each is not to be
// measured.
func serve(ctx context.Context, ops int, h http.Handler) {
	r := chi.NewRouter()
	r.Use(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served = 0
			for range ops {
				h.ServeHTTP(w, r)
			}
			must(served == ops)
		})
	})
	for _, thing := range []string{"orders", "users", "reports", "items", "carts"} {
		r.Get("/"+thing, empty)
		r.Post("/"+thing, empty)
		r.Get("/"+thing+"/{id}", empty)
	}
	r.ServeHTTP(writer{http.Header{}}, request(ctx, "/reports/17"))
}

func request(ctx context.Context, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://reports.internal"+path, nil)
	must(err == nil)
	return r
}

// A writer is all that a middleware needs of a server's.
type writer struct{ header http.Header }

func (w writer) Header() http.Header         { return w.header }
func (w writer) Write(p []byte) (int, error) { return len(p), nil }
func (w writer) WriteHeader(int)             {}
