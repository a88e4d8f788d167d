package watertight_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
)

// Reports are rendered two at a time, whoever asks for them, and show beside
// everything else that the Guard knows.
func ExampleGuard_Pool() {
	wt := watertight.New(nil)
	reports, err := wt.Pool("reports", bulkhead.PoolConfig{Core: 1, Max: 2, Backlog: 10})
	if err != nil {
		log.Fatal(err) // the name is taken
	}

	ctx := context.Background()
	err = reports.Do(ctx, func(ctx context.Context) error {
		c := wt.Snapshot().Compartments[0]
		fmt.Println(c.Policy, c.Side, c.InFlight, "of", c.Pool.Max)
		return nil
	})
	fmt.Println(err)

	fmt.Println(wt.Drain(ctx)) // runs what was accepted, and ends the workers
	err = reports.Do(ctx, func(context.Context) error { return nil })
	var refused *watertight.RejectedError
	fmt.Println(errors.As(err, &refused), refused.Policy, refused.Reason)
	// Output:
	// reports client 1 of 2
	// <nil>
	// <nil>
	// true reports draining
}

func ExampleSubmit() {
	wt := watertight.New(nil)
	reports, err := wt.Pool("reports", bulkhead.PoolConfig{Max: 2, Backlog: 10})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	f, err := watertight.Submit(reports, ctx, func(context.Context) (string, error) {
		return "report of January", nil
	})
	if err != nil {
		log.Fatal(err) // a *watertight.RejectedError, or ctx.Err()
	}
	fmt.Println(f.Wait(ctx))
	// Output:
	// report of January <nil>
}
