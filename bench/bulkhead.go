package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

func bulkheadRows() []row {
	rows := []row{{
		name:  "acquire + release, uncontended",
		goals: []goal{ratio(1.6), allocs(0)},
		ours:  2,
		raw:   rawPair(0),
		rivals: each(func(open opener) turn {
			return func(m *meter, ops int) { alone(m, ops, open(10, 10).pass) }
		}),
	}}
	for _, perCore := range []int{1, 16} {
		rows = append(rows, row{
			name:  fmt.Sprintf("acquire + release, all cores, %d goroutines a core", perCore),
			goals: []goal{ratio(2), allocs(0)},
			ours:  2,
			raw:   rawPair(perCore),
			rivals: each(func(open opener) turn {
				return func(m *meter, ops int) { together(m, ops, perCore, open(1<<20, 10).pass) }
			}),
		})
	}
	rows = append(rows, row{
		name:  "refused (full)",
		goals: []goal{ratio(1.6), allocs(0)},
		ours:  2,
		raw:   rawPair(0),
		rivals: each(func(open opener) turn {
			return func(m *meter, ops int) {
				g := open(1, 0)
				g.visit(context.Background(), func() bool {
					alone(m, ops, g.refused)
					return true
				})
			}
		}),
	})
	for _, waiters := range []int{1, 100, 10_000, 100_000} {
		rows = append(rows, handOffRow(waiters))
	}
	return rows
}

// handOffRow is measured on one processor: with more, a permit that comes back
// often finds nobody waiting yet, so that there is no hand-off to measure.
func handOffRow(waiters int) row {
	r := row{
		name:  fmt.Sprintf("hand-off with context and max wait, %d waiters, one processor", waiters),
		goals: []goal{ratio(2), allocs(1)},
		ours:  2,
		least: 3 * (waiters + 1),
		raw:   channelRing(waiters),
		rivals: each(func(open opener) turn {
			return func(m *meter, ops int) { handOff(m, ops, open(1, waiters+1), waiters) }
		}),
	}
	if waiters == 100_000 {
		few := []rival{channelRing(1), {gates[0].name, func(m *meter, ops int) { handOff(m, ops, openOurs(1, 2), 1) }}}
		for i := range few {
			few[i].name += ", 1 waiter"
		}
		r.goals = append(r.goals, flat(1.5, few[0].name, few[1].name))
		r.rivals = append(r.rivals, few...)
	}
	return r
}

type opener = func(limit, backlog int) gate

// each makes a rival of each gate.
func each(run func(open opener) turn) []rival {
	var all []rival
	for _, g := range gates {
		all = append(all, rival{g.name, run(g.open)})
	}
	return all
}

func channelRing(waiters int) rival {
	return rival{"channel ring", func(m *meter, ops int) { ring(m, ops, waiters+1) }}
}

// ring hands a token round a ring of n goroutines, ops times. It is the least
// that a hand-off between goroutines can cost.
func ring(m *meter, ops, n int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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
