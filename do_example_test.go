package watertight_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// A database that is down is asked twice, and then left alone.
func ExampleGuard_Do() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies:
  - name: orders-db
    side: client
    match: [{method: [DO]}] # no HTTP request has this method, so the policy is for Do alone
    bulkhead: {maxConcurrent: 20, maxWait: 50ms}
    breaker: {failureRate: 50, minCalls: 2}
`))
	if err != nil {
		log.Fatal(err)
	}
	wt := watertight.New(policies)

	for range 3 {
		err := wt.Do(context.Background(), "orders-db", func(ctx context.Context) error {
			return errors.New("connection refused") // such as db.PingContext(ctx)
		})
		if errors.Is(err, breaker.ErrOpen) {
			fmt.Println("not asked:", errors.Unwrap(err))
			continue
		}
		fmt.Println(err)
	}
	fmt.Println(wt.Do(context.Background(), "orders", func(context.Context) error { return nil }))
	// Output:
	// connection refused
	// connection refused
	// not asked: breaker: open
	// watertight: there is no policy "orders"; those for the client side are "orders-db"
}

// Bad arguments say nothing about the database, and a row that is not there is
// an answer like any other.
func ExampleIgnore() {
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "orders-db",
		Side:    policy.Client,
		Match:   []policy.Match{{Method: []string{"DO"}}},
		Breaker: &policy.Breaker{MinCalls: 1},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	wt := watertight.New(policies)

	errSyntax, errNoRows := errors.New("syntax error"), errors.New("no rows")
	query := func(text string) error {
		if text == "" {
			return errSyntax
		}
		return errNoRows
	}
	order := func(text string) error {
		var answer error
		err := wt.Do(context.Background(), "orders-db", func(context.Context) error {
			switch err := query(text); err {
			case errSyntax:
				return watertight.Ignore(err) // no outcome
			case errNoRows:
				answer = err
				return nil // a success
			default:
				return err // a failure, unless it is nil
			}
		})
		if err != nil {
			return err
		}
		return answer
	}
	fmt.Println(order(""))
	fmt.Println(wt.Snapshot().Compartments[0].Breaker.Calls)
	fmt.Println(order("SELECT 1 WHERE FALSE"))
	fmt.Println(wt.Snapshot().Compartments[0].Breaker.Calls)
	// Output:
	// syntax error
	// 0
	// no rows
	// 1
}
