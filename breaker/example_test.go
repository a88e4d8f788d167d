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

// A call that may have to queue for a permit pauses meanwhile: the queue is not the
// callee's fault. Once its time runs again, it asks whether it may still go ahead: if it
// asked before that, a probe might be given up for its age in between.
func ExampleCall_Pause() {
	b := breaker.New(breaker.Config{SlowCall: 800 * time.Millisecond})
	ctx := context.Background()

	call, err := b.Allow(ctx)
	if err != nil {
		return
	}
	call = call.Pause(ctx)
	// ... wait for a permit ...
	call = call.Restart(ctx)
	if call.Stale() {
		if call, err = b.Allow(ctx); err != nil {
			return
		}
	}
	// ... make the call ...
	call.Done(ctx, breaker.Success)
	fmt.Println(b.Snapshot().Calls, "call in the window")
	// Output: 1 call in the window
}

// A download is judged by how it ends, but the callee has shown by its first bytes
// that it does not hang.
func ExampleCall_Responded() {
	b := breaker.New(breaker.Config{SlowCall: 800 * time.Millisecond})
	ctx := context.Background()

	call, err := b.Allow(ctx)
	if err != nil {
		return
	}
	// ... the response headers are in ...
	call = call.Responded(ctx)
	fmt.Println("responded:", b.Snapshot().Responded)
	// ... read the body, which breaks off ...
	call.Done(ctx, breaker.Failure)
	fmt.Println("failed:", b.Snapshot().Failed)
	// Output:
	// responded: 1
	// failed: 1
}

// The callee has answered 503 with Retry-After: 120.
func ExampleCall_RetryAfter() {
	b := breaker.New(breaker.Config{
		MinCalls:      1,
		OpenFor:       []time.Duration{30 * time.Second},
		MaxRetryAfter: time.Minute,
	})
	ctx := context.Background()

	call, err := b.Allow(ctx)
	if err != nil {
		return
	}
	call.RetryAfter(120 * time.Second)
	call.Done(ctx, breaker.Failure)
	fmt.Println(b.State(), "for", b.Remaining().Round(time.Second))
	// Output: open for 1m0s
}

func ExampleGrowing() {
	c := breaker.Config{
		OpenFor: breaker.Growing(5*time.Second, 2*time.Minute, 2),
		Jitter:  0.2,
	}
	fmt.Println(c.OpenFor)
	// Output: [5s 10s 20s 40s 1m20s 2m0s]
}

// Somebody on call takes the callee out of use, and later lets the breaker find out
// whether it may close.
func ExampleBreaker_Transition() {
	b := breaker.New(breaker.Config{
		HalfOpen: breaker.HalfOpenConfig{Calls: 1},
		OnTransition: func(t breaker.Transition) {
			fmt.Printf("%v to %v: %v\n", t.From, t.To, t.Cause)
		},
	})
	ctx := context.Background()

	if err := b.Transition(breaker.ForcedOpen, 0); err != nil {
		return
	}
	_, err := b.Allow(ctx)
	fmt.Println(err)

	if err := b.Transition(breaker.HalfOpen, 0); err != nil {
		return
	}
	if call, err := b.Allow(ctx); err == nil {
		call.Done(ctx, breaker.Success)
	}
	// Output:
	// closed to forced_open: forced
	// breaker: open
	// forced_open to half_open: forced
	// half_open to closed: probes
}

func ExampleBreaker_Configure() {
	b := breaker.New(breaker.Config{MinCalls: 10})
	b.Configure(breaker.Config{MinCalls: 1})
	call, err := b.Allow(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	call.Done(context.Background(), breaker.Failure)
	fmt.Println(b.State())
	// Output: open
}
