package watertight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// One Guard for a process. It takes its policies from a file (policy.Load), from
// bytes, or from Go (policy.New), and is handed to middleware.New,
// transport.New and the adapters.
func ExampleNew() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies:
  - name: upstreams
    side: client
    bulkhead: {maxConcurrent: 50, maxWait: 100ms}
    breaker: {failureRate: 50, slowCall: 800ms}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	fmt.Println(len(wt.Policies().Rules()), "policy, ready:", wt.Ready())
	// Output: 1 policy, ready: true
}

// A Guard can guard what does not go through net/http, such as the calls of a
// database driver: by a Request that describes them.
func ExampleGuard_Admit() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "databases",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 10, MaxWait: 50 * time.Millisecond},
		Breaker:  &policy.Breaker{MinCalls: 2, OpenFor: time.Minute},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)

	query := func(ctx context.Context, do func(context.Context) error) error {
		call, err := wt.Admit(ctx, &policy.Request{Side: policy.Client, Scheme: "postgres", Host: "db.internal:5432"})
		if err != nil {
			return err
		}
		// A panic passes both, and is no outcome; middleware and transport
		// take it for a failure.
		defer call.Release()
		ctx, _ = call.Context()
		if err := do(ctx); err != nil {
			call.SettleFailure()
			return err
		}
		call.SettleStatus(http.StatusOK)
		return nil
	}

	refuse := func(context.Context) error { return errors.New("connection refused") }
	for range 3 {
		err := query(context.Background(), refuse)
		var rejected *watertight.RejectedError
		if errors.As(err, &rejected) {
			fmt.Printf("not tried: %s of %s is %s\n", rejected.Key, rejected.Policy, rejected.Reason)
			continue
		}
		fmt.Println(err)
	}
	// Output:
	// connection refused
	// connection refused
	// not tried: postgres://db.internal:5432 of databases is open
}

// Drain first, while the listener still answers; then shut the server down.
func ExampleGuard_Drain() {
	wt := watertight.New(nil)
	server := http.Server{}
	request := &policy.Request{Side: policy.Server, EscapedPath: "/"}
	call, err := wt.Admit(context.Background(), request)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println("with a request inside:", wt.Drain(ctx))
	_, err = wt.Admit(context.Background(), request)
	fmt.Println("a new one:", err)

	call.Release()
	fmt.Println("when it has gone:", wt.Drain(context.Background()))
	fmt.Println("shut down:", server.Shutdown(context.Background()))
	// Output:
	// with a request inside: context deadline exceeded
	// a new one: watertight: policy (unmatched) refused the call, draining: bulkhead: closed; retry after 1s
	// when it has gone: <nil>
	// shut down: <nil>
}

// A readiness probe outside the middleware, so that it is always answered.
func ExampleGuard_Ready() {
	wt := watertight.New(nil)
	readyz := func(w http.ResponseWriter, _ *http.Request) {
		if !wt.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	probe := func() int {
		w := httptest.NewRecorder()
		readyz(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	fmt.Println(probe())
	_ = wt.Drain(context.Background())
	fmt.Println(probe())
	// Output:
	// 200
	// 503
}

func ExampleGuard_Snapshot() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "reports", Side: policy.Server,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		Breaker:  &policy.Breaker{},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	request := &policy.Request{Side: policy.Server, EscapedPath: "/reports/7", Route: "/reports/{id}", RouteKnown: true}
	call, err := wt.Admit(context.Background(), request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer call.Release()
	_, _ = wt.Admit(context.Background(), request) // one too many

	snapshot := wt.Snapshot()
	snapshot.Policies.Since = time.Time{} // else the output would be another each time
	snapshot.Compartments[0].Bulkhead.PressedSince = nil
	text, err := json.MarshalIndent(snapshot, "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))
	// Output:
	// {
	//   "version": 1,
	//   "policies": {
	//     "version": "",
	//     "since": "0001-01-01T00:00:00Z",
	//     "reloads": 0,
	//     "failed": 0
	//   },
	//   "compartments": [
	//     {
	//       "policy": "reports",
	//       "side": "server",
	//       "per": "route",
	//       "key": "/reports/{id}",
	//       "granted": 1,
	//       "rejected": {
	//         "draining": 0,
	//         "full": 1,
	//         "open": 0,
	//         "wait_timeout": 0
	//       },
	//       "left": 0,
	//       "leaked": 0,
	//       "inFlight": 1,
	//       "bulkhead": {
	//         "limit": 1,
	//         "inFlight": 1,
	//         "queued": 0,
	//         "peak": 1,
	//         "maxQueue": 0,
	//         "maxWaitMs": 0
	//       },
	//       "breaker": {
	//         "state": "closed",
	//         "failureRate": -1,
	//         "slowCallRate": -1,
	//         "calls": 0,
	//         "openRemainingMs": 0,
	//         "overdue": 0,
	//         "probesLeft": 0,
	//         "attempt": 0,
	//         "maxFailureRate": 50,
	//         "maxSlowCallRate": 0,
	//         "slowCallMs": 0,
	//         "minCalls": 20,
	//         "probes": 10,
	//         "failed": 0,
	//         "slow": 0
	//       }
	//     }
	//   ],
	//   "transitions": [],
	//   "draining": false,
	//   "closed": false
	// }
}

// Hooks hear what happens. Those of package metrics make spans of it.
func ExampleWithHooks() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "uploads", Side: policy.Server, Per: policy.PerPolicy, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies, watertight.WithHooks(watertight.Hooks{
		Attach: func(*watertight.Guard) func() {
			fmt.Println("attached")
			return func() { fmt.Println("detached") }
		},
		Grant: func(_ context.Context, e watertight.GrantEvent) context.Context {
			fmt.Printf("%s: %d of %d permits out\n", e.Policy, e.InFlight, e.Limit)
			return nil // the call runs under its own context
		},
		Release: func(_ context.Context, e watertight.ReleaseEvent) {
			fmt.Printf("%s: released\n", e.Policy)
		},
		Reject: func(_ context.Context, e watertight.RejectEvent) {
			fmt.Printf("%s: %s\n", e.Policy, e.Reason)
		},
	}))
	defer wt.Close()

	request := &policy.Request{Side: policy.Server, Method: "POST", EscapedPath: "/upload"}
	call, err := wt.Admit(context.Background(), request)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = wt.Admit(context.Background(), request)
	call.Release()
	// Output:
	// attached
	// uploads: 1 of 1 permits out
	// uploads: full
	// uploads: released
	// detached
}

// The Guard's own log is about what somebody should mend, such as a response
// body that nobody closed.
func ExampleWithLogger() {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime}))
	wt := watertight.New(nil, watertight.WithLogger(logger))

	call, err := wt.Admit(context.Background(), &policy.Request{Side: policy.Client, Host: "up.internal"})
	if err != nil {
		fmt.Println(err)
		return
	}
	call.Leak() // what package transport does when the garbage collector finds the body
	// Output:
	// level=WARN msg="watertight: a response body was dropped without Close; its permit was held until the garbage collector found it" policy=(unmatched) side=client
}

// What a user of http.Client gets is a *url.Error around it: errors.Is and
// errors.As see through.
func ExampleRejectedError() {
	err := fmt.Errorf("Get %q: %w", "http://up.internal/", &watertight.RejectedError{
		Policy:     "upstreams",
		Key:        "http://up.internal:80",
		Reason:     policy.ReasonOpen,
		RetryAfter: 30 * time.Second,
		Err:        breaker.ErrOpen,
	})

	var rejected *watertight.RejectedError
	switch {
	case errors.Is(err, bulkhead.ErrFull), errors.Is(err, bulkhead.ErrWaitTimeout):
		fmt.Println("too many calls")
	case errors.As(err, &rejected):
		fmt.Printf("%s is %s; try again in %v\n", rejected.Key, rejected.Reason, rejected.RetryAfter)
		fmt.Println("a gateway answers", rejected.StatusCode())
	}
	// Output:
	// http://up.internal:80 is open; try again in 30s
	// a gateway answers 503
}

// An answer with a status that the policy counts as failure is one for the
// breaker, although the call itself went well.
func ExampleCall_SettleStatus() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "search", Side: policy.Client, Per: policy.PerPolicy,
		Breaker: &policy.Breaker{MinCalls: 4, FailureStatus: []policy.StatusRange{{From: 429}, {From: 500, To: 599}}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	for _, status := range []int{200, 404, 429, 503, 200} {
		call, err := wt.Admit(context.Background(), &policy.Request{Side: policy.Client, Host: "search.internal"})
		if errors.Is(err, breaker.ErrOpen) {
			fmt.Println("open")
			continue
		}
		call.SettleStatus(status)
		call.Release()
		fmt.Println(status)
	}
	// Output:
	// 200
	// 404
	// 429
	// 503
	// open
}
