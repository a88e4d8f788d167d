package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watertight-go/watertight/breaker"
)

func Example() {
	b := breaker.New(breaker.Config{
		FailureRate: 50,
		MinCalls:    4,
		OpenFor:     []time.Duration{time.Minute},
	})

	// get is a call to something that does not work today.
	get := func(ctx context.Context) (err error) {
		call, err := b.Allow(ctx)
		if err != nil {
			return err
		}
		outcome := breaker.Failure // unless something better happens, a panic included
		defer func() { call.Done(ctx, outcome) }()
		return errors.New("no route to host")
	}

	for range 6 {
		fmt.Println(get(context.Background()))
	}
	// Output:
	// no route to host
	// no route to host
	// no route to host
	// no route to host
	// breaker: open
	// breaker: open
}

func ExampleNew() {
	b := breaker.New(breaker.Config{
		FailureRate:  50,
		SlowCall:     800 * time.Millisecond,
		SlowCallRate: 80,
		Window:       breaker.Window{Time: 10 * time.Second},
		MinCalls:     5,
		OpenFor:      []time.Duration{5 * time.Second, 30 * time.Second},
		HalfOpen:     breaker.HalfOpenConfig{Calls: 3},
		OnTransition: func(t breaker.Transition) {
			fmt.Printf("%v to %v for %v: %v, %.0f%% of %d calls were slow\n",
				t.From, t.To, t.OpenFor, t.Cause, t.SlowCallRate, t.Calls)
		},
	})

	ctx := context.Background()
	for i := range 5 {
		call, err := b.Allow(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		call.DoneIn(ctx, breaker.Success, time.Duration(i)*500*time.Millisecond)
	}
	for i := range 5 {
		call, err := b.Allow(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		call.DoneIn(ctx, breaker.Success, time.Duration(i+1)*time.Second)
	}
	// Output:
	// closed to open for 5s: slow_call_rate, 80% of 10 calls were slow
}

func ExampleCall_Remaining() {
	b := breaker.New(breaker.Config{
		InitialState: breaker.Open,
		OpenFor:      []time.Duration{time.Hour},
	})

	call, err := b.Allow(context.Background())
	if errors.Is(err, breaker.ErrOpen) {
		fmt.Println("retry after", call.Remaining().Round(time.Minute))
	}
	// Output: retry after 1h0m0s
}

// A call that has to wait for something else after Allow neither counts that wait
// as its own time, nor goes ahead if the breaker has tripped meanwhile.
func ExampleCall_Restart() {
	b := breaker.New(breaker.Config{})
	ctx := context.Background()

	call, err := b.Allow(ctx)
	if err != nil {
		return
	}
	// ... wait for a permit ...
	if call.Stale() {
		call.Cancel()
		if call, err = b.Allow(ctx); err != nil {
			return
		}
	}
	call = call.Restart()
	// ... make the call ...
	call.Done(ctx, breaker.Success)
	fmt.Println(b.Snapshot().Calls, "call in the window")
	// Output: 1 call in the window
}
