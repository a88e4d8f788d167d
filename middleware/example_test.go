package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func Example() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: routes
    side: server
    bulkhead: {maxConcurrent: 1}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") })
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "pong") })
	busy, finish := make(chan bool), make(chan bool)
	mux.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, _ *http.Request) {
		busy <- true
		<-finish
	})
	server := httptest.NewServer(middleware.New(wt)(mux))
	defer server.Close()

	go http.Get(server.URL + "/reports/1")
	<-busy // one report is in the making; that is all this route may have
	for _, path := range []string{"/reports/2", "/ping", "/healthz"} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(path, resp.Status, resp.Header.Get("Content-Type"))
		if resp.StatusCode == http.StatusOK {
			fmt.Println(string(body))
		}
	}
	close(finish)
	// Output:
	// /reports/2 503 Service Unavailable application/problem+json
	// /ping 200 OK text/plain; charset=utf-8
	// pong
	// /healthz 200 OK text/plain; charset=utf-8
	// fine
}

// one returns a Guard that lets one request of each route in.
func one() *watertight.Guard {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "routes",
		Side:     policy.Server,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		panic(err)
	}
	return watertight.New(policies)
}

// answer returns what h answers to a GET.
func answer(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func ExampleNew() {
	mux := http.NewServeMux()
	limited := middleware.New(one())(mux)
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /reports/{id}", func(http.ResponseWriter, *http.Request) {
		// While this report is in the making, its route has no permit left.
		w := answer(limited, "/reports/2")
		fmt.Print(w.Code, " ", w.Body)
		fmt.Println(answer(limited, "/ping").Code)
	})
	fmt.Println(answer(limited, "/reports/1").Code)
	// Output:
	// 503 {"type":"https://github.com/watertight-go/watertight/blob/main/docs/rejections.md#full","title":"At capacity","status":503,"detail":"All permits for this kind of request are in use. The request was not processed.","reason":"full"}
	// 200
	// 200
}

// What stands in front of the router must not hide it.
func ExampleWithRouter() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(http.ResponseWriter, *http.Request) {})
	logged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("log:", r.URL)
		mux.ServeHTTP(w, r)
	})

	wt := one()
	limited := middleware.New(wt, middleware.WithRouter(mux))(logged)
	answer(limited, "/reports/1")
	answer(limited, "/reports/2")
	for _, c := range wt.Snapshot().Compartments {
		fmt.Println(c.Key, c.Granted)
	}
	// Output:
	// log: /reports/1
	// log: /reports/2
	// GET /reports/{id} 2
}

// Routes that are wrapped one by one are behind the router, which has left the
// pattern on the request.
func ExampleWithRoute() {
	wt := one()
	limit := middleware.New(wt, middleware.WithRoute(func(r *http.Request) string { return r.Pattern }))

	mux := http.NewServeMux()
	mux.Handle("GET /reports/{id}", limit(http.NotFoundHandler()))
	mux.Handle("GET /exports/{id}", limit(http.NotFoundHandler()))
	answer(mux, "/reports/1")
	answer(mux, "/exports/1")
	answer(mux, "/exports/2")
	for _, c := range wt.Snapshot().Compartments {
		fmt.Println(c.Key, c.Granted)
	}
	// Output:
	// GET /exports/{id} 2
	// GET /reports/{id} 1
}

func ExampleReentrant() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	limited := middleware.New(watertight.New(policies), middleware.Reentrant())(mux)
	mux.HandleFunc("/new", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "found") })
	mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
		again := r.Clone(r.Context()) // by its context the request is known
		again.URL.Path = "/new"
		limited.ServeHTTP(w, again)
	})
	w := answer(limited, "/old")
	fmt.Println(w.Code, w.Body)
	// Output: 200 found
}

// A gateway tells its callers when the upstream's compartment refused.
func ExampleWriteRejection() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies: [{name: upstreams, side: client, breaker: {minCalls: 2, openFor: 30s}}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	limited := transport.New(nil, watertight.New(policies))
	defer limited.CloseIdleConnections()
	gateway := &httputil.ReverseProxy{
		Transport: limited,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var rejected *watertight.RejectedError
			if errors.As(err, &rejected) {
				middleware.WriteRejection(w, r, rejected)
				return
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	for range 3 {
		w := answer(gateway, "/")
		fmt.Printf("%d Retry-After: %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 500 Retry-After: ""
	// 500 Retry-After: ""
	// 503 Retry-After: "30"
}
