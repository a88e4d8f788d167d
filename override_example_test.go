package watertight_test

import (
	"context"
	"fmt"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// An operator's tool reads while everything is busy; the calls that
// customers wait for are limited, and its own are not.
func ExampleWithoutLimits() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "upstream",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	read := func(context.Context) error { fmt.Println("read"); return nil }
	ctx := context.Background()

	err = wt.Do(ctx, "upstream", func(ctx context.Context) error {
		fmt.Println(wt.Do(ctx, "upstream", read))
		return wt.Do(watertight.WithoutLimits(ctx, policy.Client), "upstream", read)
	})
	fmt.Println(err)
	// Output:
	// watertight: policy upstream refused the call, full: bulkhead: full; retry after 1s
	// read
	// <nil>
}

// Calls of a nightly job get a share of their own, which no policy could find
// in the requests themselves.
func ExampleWithPolicy() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies:
  - name: nightly
    side: client
    match: [{method: [NIGHTLY]}] # no request has this method: the program names the policy
    bulkhead: {maxConcurrent: 2}
  - name: upstreams
    side: client
    bulkhead: {maxConcurrent: 50}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	ctx := watertight.WithPolicy(context.Background(), policy.Client, "nightly")

	// What transport does for each request that is sent with this context.
	call, err := wt.Admit(ctx, &policy.Request{Side: policy.Client, Scheme: "https", Host: "payments.internal"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer call.Release()
	for _, c := range wt.Snapshot().Compartments {
		fmt.Println(c.Policy, c.Key, c.InFlight)
	}
	// Output:
	// nightly https://payments.internal:443 1
}
