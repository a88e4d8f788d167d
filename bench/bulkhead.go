package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func bulkheadRows() []row {
	rows := []row{{
		name:   "acquire + release, uncontended",
		target: "<= 1.6x, 0 allocs",
		raw:    rawPair,
		rivals: each(func(open opener) turn {
			return func(m *meter, ops int) {
				g := open(10, 10)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				m.start()
				g.pass(ctx, ops)
				m.stop()
			}
		}),
	}}
	for _, perCore := range []int{1, 16} {
		rows = append(rows, row{
			name:   fmt.Sprintf("acquire + release, all cores, %d goroutines a core", perCore),
			target: "<= 2x, 0 allocs",
			raw:    rawPairs(perCore),
			rivals: each(func(open opener) turn {
				return func(m *meter, ops int) {
					g := open(1<<20, 10)
					together(m, ops, perCore, g.pass)
				}
			}),
		})
	}
	rows = append(rows, row{
		name:   "refused (full)",
		target: "<= 1.6x, 0 allocs",
		raw:    rawPair,
		rivals: each(func(open opener) turn {
			return func(m *meter, ops int) {
				g := open(1, 0)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				g.visit(ctx, func() bool {
					m.start()
					g.refused(ctx, ops)
					m.stop()
					return true
				})
			}
		}),
	})
	for _, waiters := range []int{1, 100, 10_000, 100_000} {
		rows = append(rows, row{
			// With more processors a permit that comes back often finds nobody
			// waiting yet, so that there is no hand-off to measure.
			name:   fmt.Sprintf("hand-off with context and max wait, %d waiters, one processor", waiters),
			target: "<= 2x, <= 1 alloc",
			least:  3 * (waiters + 1),
			raw: rival{"channel ring", func(m *meter, ops int) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
				ring(m, ops, waiters+1)
			}},
			rivals: each(func(open opener) turn {
				return func(m *meter, ops int) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
					handOff(m, ops, open(1, waiters+1), waiters)
				}
			}),
		})
	}
	return rows
}

type (
	opener = func(limit, backlog int) gate
	turn   = func(m *meter, ops int)
)

// each makes a rival of each gate.
func each(run func(open opener) turn) []rival {
	var all []rival
	for _, g := range gates {
		all = append(all, rival{g.name, run(g.open)})
	}
	return all
}

var rawPair = rival{"atomic add and its undo", func(m *meter, ops int) {
	var n atomic.Int64
	m.start()
	pairs(&n, ops)
	m.stop()
}}

func pairs(n *atomic.Int64, ops int) {
	for range ops {
		n.Add(1)
		n.Add(-1)
	}
}

func rawPairs(perCore int) rival {
	return rival{"atomic add and its undo", func(m *meter, ops int) {
		var n atomic.Int64
		together(m, ops, perCore, func(_ context.Context, ops int) { pairs(&n, ops) })
	}}
}

// together has the work done by perCore goroutines for each processor, released
// at once.
func together(m *meter, ops, perCore int, work func(ctx context.Context, ops int)) {
	n := perCore * runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			work(ctx, (i+1)*ops/n-i*ops/n)
		})
	}
	ready.Wait()
	m.start()
	close(start)
	done.Wait()
	m.stop()
}

// ring hands a token round a ring of n goroutines, ops times. It is the least
// that a hand-off between goroutines can cost.
func ring(m *meter, ops, n int) {
	seats := make([]chan int, n)
	for i := range seats {
		seats[i] = make(chan int, 1)
	}
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			for {
				left := <-seats[i]
				if left == 0 {
					m.stop()
				}
				seats[(i+1)%n] <- left - 1
				if left <= 0 {
					return
				}
			}
		})
	}
	settle()
	m.start()
	seats[0] <- ops
	done.Wait()
}

// handOff has one permit handed round among waiters+1 goroutines, ops times.
func handOff(m *meter, ops int, g gate, waiters int) {
	background, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done sync.WaitGroup
	g.visit(background, func() bool {
		for range waiters + 1 {
			done.Go(func() {
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				g.visit(ctx, func() bool {
					ops-- // whoever is inside is alone
					if ops == 0 {
						m.stop()
					}
					return ops <= 0
				})
			})
		}
		settle()
		m.start()
		return true
	})
	done.Wait()
}

// settle gives everybody the time to run until it has to wait.
func settle() {
	for before := runtime.NumGoroutine(); ; {
		time.Sleep(20 * time.Millisecond)
		if now := runtime.NumGoroutine(); now == before {
			return
		} else {
			before = now
		}
	}
}
