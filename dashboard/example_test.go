package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
	"github.com/watertight-go/watertight/policy"
)

func ExampleHandler() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "reports", Side: policy.Server, Per: policy.PerPolicy,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 20},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)

	// On a listener of its own: go http.ListenAndServe("127.0.0.1:6060", admin).
	admin := http.NewServeMux()
	admin.Handle("/watertight/", dashboard.Handler(wt))

	answer := httptest.NewRecorder()
	admin.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/watertight/snapshot.json", nil))
	var snapshot watertight.Snapshot
	if err := json.NewDecoder(answer.Body).Decode(&snapshot); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Code, "version", snapshot.Version, "compartments", len(snapshot.Compartments))
	// Output: 200 version 1 compartments 0
}

// A look five times a second, for at most four who watch.
func ExampleWithInterval() {
	wt := watertight.New(nil)
	page := dashboard.Handler(wt, dashboard.WithInterval(200*time.Millisecond), dashboard.WithMaxWatchers(4))

	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/snapshot.json", nil))
	var snapshot struct{ IntervalMs int }
	if err := json.NewDecoder(answer.Body).Decode(&snapshot); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the next look is in", snapshot.IntervalMs, "ms")
	// Output: the next look is in 200 ms
}
