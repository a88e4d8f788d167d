package main

import (
	"context"
	"runtime"

	"github.com/alitto/pond/v2"
	"github.com/failsafe-go/failsafe-go"
	failsafebulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"

	"github.com/watertight-go/watertight/bulkhead"
)

func poolRows() []row {
	return []row{{
		name:  "pool: submit + wait, no queueing",
		goals: []goal{ratio(2.5)},
		ours:  2,
		raw:   rival{"round trip over two unbuffered channels", roundTrip},
		rivals: []rival{
			{"watertight, Submit and Wait", submitAndWait},
			{"watertight, Do", do},
			{"pond", pondPool},
			{"ants (no result: by a channel of the caller's)", antsPool},
			{"gammazero/workerpool (no result)", gammazeroPool},
			{"failsafe-go GetAsync, bulkhead (no workers)", failsafeAsync},
			{"a goroutine and a channel for each", goEach},
		},
	}}
}

// workers is how many each pool has, all of them idle when a task comes.
var workers = runtime.GOMAXPROCS(0)

func task(context.Context) (int, error) { return 1, nil }

func roundTrip(m *meter, ops int) {
	work, results := make(chan int), make(chan int)
	go func() {
		defer close(results)
		for n := range work {
			results <- n
		}
	}()
	alone(m, ops, func(_ context.Context, ops int) {
		for range ops {
			work <- 1
			must(<-results == 1)
		}
	})
	close(work)
	<-results
}

func openPool() *bulkhead.Pool {
	return bulkhead.NewPool(bulkhead.PoolConfig{Core: workers, Max: workers, Backlog: 10})
}

func submitAndWait(m *meter, ops int) {
	p := openPool()
	defer p.Close()
	alone(m, ops, func(ctx context.Context, ops int) {
		for range ops {
			f, err := bulkhead.Submit(p, ctx, task)
			must(err == nil)
			n, err := f.Wait(ctx)
			must(n == 1 && err == nil)
		}
	})
}

func do(m *meter, ops int) {
	p := openPool()
	defer p.Close()
	alone(m, ops, func(ctx context.Context, ops int) {
		n := 0
		count := func(context.Context) error { n++; return nil }
		for range ops {
			must(p.Do(ctx, count) == nil)
		}
		must(n == ops)
	})
}

func pondPool(m *meter, ops int) {
	p := pond.NewResultPool[int](workers)
	defer p.StopAndWait()
	alone(m, ops, func(ctx context.Context, ops int) {
		for range ops {
			n, err := p.SubmitErr(func() (int, error) { return task(ctx) }).Wait()
			must(n == 1 && err == nil)
		}
	})
}

func antsPool(m *meter, ops int) {
	p, err := ants.NewPool(workers)
	must(err == nil)
	defer p.Release()
	results := make(chan int, 1)
	alone(m, ops, func(ctx context.Context, ops int) {
		for range ops {
			must(p.Submit(func() {
				n, _ := task(ctx)
				results <- n
			}) == nil)
			select {
			case n := <-results:
				must(n == 1)
			case <-ctx.Done():
				must(false)
			}
		}
	})
}

func gammazeroPool(m *meter, ops int) {
	p := workerpool.New(workers)
	defer p.StopWait()
	alone(m, ops, func(_ context.Context, ops int) {
		n := 0
		for range ops {
			p.SubmitWait(func() { n++ })
		}
		must(n == ops)
	})
}

func failsafeAsync(m *meter, ops int) {
	alone(m, ops, func(ctx context.Context, ops int) {
		x := failsafe.With[int](failsafebulkhead.New[int](uint(workers))).WithContext(ctx)
		for range ops {
			n, err := x.GetAsync(func() (int, error) { return task(ctx) }).Get()
			must(n == 1 && err == nil)
		}
	})
}

// goEach is what one writes without a pool. Nothing limits it.
func goEach(m *meter, ops int) {
	alone(m, ops, func(ctx context.Context, ops int) {
		for range ops {
			result := make(chan int, 1)
			go func() {
				n, _ := task(ctx)
				result <- n
			}()
			select {
			case n := <-result:
				must(n == 1)
			case <-ctx.Done():
				must(false)
			}
		}
	})
}
