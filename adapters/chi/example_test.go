package watertightchi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/watertight-go/watertight"
	watertightchi "github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/policy"
)

func ExampleMiddleware() {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "routes",
		Side:     policy.Server,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}, // of each route
	}}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(set)

	router := chi.NewRouter()
	router.Use(watertightchi.Middleware(wt))
	router.Route("/api", func(r chi.Router) {
		r.Get("/ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pong") })
		// While this handler runs, its route is full. The other is not.
		r.Get("/reports/{id}", func(w http.ResponseWriter, _ *http.Request) {
			for _, path := range []string{"/api/reports/2", "/api/ping"} {
				answer := httptest.NewRecorder()
				router.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
				fmt.Println(path, answer.Code)
			}
		})
	})

	answer := httptest.NewRecorder()
	router.ServeHTTP(answer, httptest.NewRequest("GET", "/api/reports/1", nil))
	fmt.Println("/api/reports/1", answer.Code)
	for _, c := range wt.Snapshot().Compartments {
		fmt.Println(c.Key, "granted", c.Granted, "refused", c.Rejected["full"])
	}
	// Output:
	// /api/reports/2 503
	// /api/ping 200
	// /api/reports/1 200
	// /api/ping granted 1 refused 0
	// /api/reports/{id} granted 1 refused 1
}
