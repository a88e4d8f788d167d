package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
)

// Two tasks at once, and two may wait.
func ExampleNewPool() {
	reports := bulkhead.NewPool(bulkhead.PoolConfig{
		Core:      1, // stays when there is nothing to do
		Max:       2,
		KeepAlive: time.Minute, // of the second worker
		Backlog:   2,
	})
	defer reports.Close()

	ctx := context.Background()
	var futures []*bulkhead.Future[string]
	for _, month := range []string{"January", "February", "March"} {
		f, err := bulkhead.Submit(reports, ctx, func(context.Context) (string, error) {
			return "report of " + month, nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		fmt.Println(f.Wait(ctx))
	}
	// Output:
	// report of January <nil>
	// report of February <nil>
	// report of March <nil>
}

// A result is waited for as long as its reader likes, and the task goes on.
func ExampleSubmit() {
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	ready := make(chan struct{})
	f, err := bulkhead.Submit(p, context.Background(), func(context.Context) (int, error) {
		<-ready
		return 42, nil
	})
	fmt.Println(err)

	impatient, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = f.Wait(impatient)
	fmt.Println(err)

	close(ready)
	fmt.Println(f.Wait(context.Background()))
	// Output:
	// <nil>
	// context deadline exceeded
	// 42 <nil>
}

// The caller leaves at its deadline. The work, which does not watch its context,
// counts until it ends.
func ExamplePool_Do() {
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	hang := make(chan struct{})
	err := p.Do(ctx, func(context.Context) error {
		<-hang
		return nil
	})
	fmt.Println(err)

	s := p.Snapshot()
	fmt.Println("active:", s.Active, "abandoned:", s.Abandoned)
	fmt.Println(p.Do(context.Background(), func(context.Context) error { return nil }))

	close(hang)
	fmt.Println(p.Drain(context.Background()))
	// Output:
	// context deadline exceeded
	// active: 1 abandoned: 1
	// bulkhead: full
	// <nil>
}

// A panic stays in the task. The worker lives on.
func ExamplePanicError() {
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	ctx := context.Background()
	err := p.Do(ctx, func(context.Context) error {
		rows := []string{"first"}
		fmt.Println(rows[len(rows)])
		return nil
	})
	fmt.Println(err)
	if panicked, ok := errors.AsType[*bulkhead.PanicError](err); ok {
		fmt.Println("there is a stack:", len(panicked.Stack) > 0)
	}
	fmt.Println(p.Do(ctx, func(context.Context) error { return nil }))
	// Output:
	// bulkhead: task panicked: runtime error: index out of range [1] with length 1
	// there is a stack: true
	// <nil>
}

// busyPool returns a pool with one worker, which is busy, and no backlog, and a
// function that ends that work and waits for the pool.
func busyPool(how bulkhead.OnFull) (*bulkhead.Pool, func()) {
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, OnFull: how})
	work := make(chan struct{})
	_, _ = bulkhead.Submit(p, context.Background(), func(context.Context) (int, error) {
		<-work
		return 0, nil
	})
	return p, func() {
		close(work)
		_ = p.Drain(context.Background())
	}
}

func double(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return 2 * n, nil }
}

func ExampleAbort() {
	p, end := busyPool(bulkhead.Abort())
	defer end()

	_, err := bulkhead.Submit(p, context.Background(), double(21))
	fmt.Println(err)
	fmt.Println("refused:", p.Snapshot().Full)
	// Output:
	// bulkhead: full
	// refused: 1
}

// The submitter does the work itself, and so submits no more until it is done.
func ExampleCallerRuns() {
	p, end := busyPool(bulkhead.CallerRuns())
	defer end()

	ctx := context.Background()
	f, err := bulkhead.Submit(p, ctx, func(context.Context) (int, error) {
		s := p.Snapshot()
		fmt.Printf("%d of %d workers active, %d outside the limit\n", s.Active, s.Max, s.CallerRunning)
		return 42, nil
	})
	fmt.Println(err)
	fmt.Println(f.Wait(ctx))
	fmt.Println("run by callers:", p.Snapshot().CallerRun)
	// Output:
	// 1 of 1 workers active, 1 outside the limit
	// <nil>
	// 42 <nil>
	// run by callers: 1
}

// A task that is dropped still has its future.
func ExampleDiscard() {
	p, end := busyPool(bulkhead.Discard())
	defer end()

	ctx := context.Background()
	f, err := bulkhead.Submit(p, ctx, double(21))
	fmt.Println(err)
	fmt.Println(f.Wait(ctx))
	fmt.Println("discarded:", p.Snapshot().Discarded)
	// Output:
	// <nil>
	// 0 bulkhead: task discarded
	// discarded: 1
}

// An older answer is better than none.
func ExampleFallback() {
	lastKnown := func(context.Context) (int, error) { return 40, nil }
	p, end := busyPool(bulkhead.Fallback(lastKnown))
	defer end()

	ctx := context.Background()
	f, err := bulkhead.Submit(p, ctx, double(21))
	fmt.Println(err)
	fmt.Println(f.Wait(ctx))
	fmt.Println("fell back:", p.Snapshot().FellBack)
	// Output:
	// <nil>
	// 40 <nil>
	// fell back: 1
}

// Up to ten submitters wait, up to a millisecond each.
func ExampleWaitForRoom() {
	p, end := busyPool(bulkhead.WaitForRoom(time.Millisecond, 10))
	defer end()

	_, err := bulkhead.Submit(p, context.Background(), double(21))
	fmt.Println(err)
	fmt.Println("timed out:", p.Snapshot().TimedOut)
	// Output:
	// bulkhead: waited too long for a permit
	// timed out: 1
}

// A shutdown gives tasks some time to end, and drops those that have not begun
// by then.
func ExamplePool_CloseNow() {
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 10})
	ctx := context.Background()
	work := make(chan struct{})
	running, _ := bulkhead.Submit(p, ctx, func(context.Context) (string, error) {
		<-work
		return "finished", nil
	})
	waiting, _ := bulkhead.Submit(p, ctx, func(context.Context) (string, error) { return "never run", nil })

	grace, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	fmt.Println(p.Drain(grace))
	fmt.Println("dropped:", p.CloseNow())
	_, err := waiting.Wait(ctx)
	fmt.Println(err)

	close(work)
	fmt.Println(running.Wait(ctx))
	// Output:
	// context deadline exceeded
	// dropped: 1
	// bulkhead: closed
	// finished <nil>
}
