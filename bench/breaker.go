package main

import (
	"context"
	"slices"
	"time"
)

func breakerRows() []row {
	succeed := func(perCore int) func(open func() circuit) turn {
		return func(open func() circuit) turn {
			return func(m *meter, ops int) { spread(m, ops, perCore, open().succeed) }
		}
	}
	return []row{{
		name:   "breaker closed, allow + record, clock reads taken out of ours",
		goals:  []goal{ratio(3.5), allocs(0)},
		ours:   2,
		raw:    rawPair(0),
		rivals: eachCircuit(succeed(0)),
	}, {
		name:   "breaker closed, the same, 16 goroutines a core",
		goals:  []goal{ratio(3.5), allocs(0)},
		ours:   2,
		raw:    rawPair(16),
		rivals: eachCircuit(succeed(16)),
	}, {
		name:  "breaker closed, the same, each third call failing",
		goals: []goal{ratio(3.5), allocs(0)},
		ours:  2,
		raw:   rawPair(0),
		rivals: eachCircuit(func(open func() circuit) turn {
			return func(m *meter, ops int) { alone(m, ops, open().thirds) }
		}),
	}, {
		name:  "breaker closed, allow + record, with its own clock reads",
		goals: []goal{twoReads(circuits[0].name), allocs(0)},
		raw:   rawPair(0),
		rivals: append([]rival{
			{"watertight, with its own clock reads", func(m *meter, ops int) {
				alone(m, ops, withClock{newBreaker(overCalls)}.succeed)
			}},
			readClock,
		}, eachCircuit(succeed(0))...),
	}, {
		name:  "breaker open, refuse",
		goals: []goal{ratioAndRead(2), allocs(0)},
		raw:   rawPair(0),
		rivals: append([]rival{
			{"watertight, with its own clock read", func(m *meter, ops int) {
				c := newBreaker(overCalls)
				trip(atInstant{c, time.Now()})
				alone(m, ops, withClock{c}.refused)
			}},
			readClock,
		}, slices.DeleteFunc(eachCircuit(func(open func() circuit) turn {
			return func(m *meter, ops int) {
				c := open()
				trip(c)
				alone(m, ops, c.refused)
			}
		}), neverOpens)...),
	}}
}

func eachCircuit(run func(open func() circuit) turn) []rival {
	var all []rival
	for _, c := range circuits {
		all = append(all, rival{c.name, run(c.open)})
	}
	return all
}

// neverOpens says who only refuses more and more.
func neverOpens(r rival) bool { return r.name == goZeroName }

// trip opens a circuit. It fails by as many calls as the slowest of them needs.
func trip(c circuit) {
	for range 200 {
		if !c.fail(context.Background()) {
			return
		}
	}
	panic("the circuit did not trip")
}

// clockRead is the name of a line that others are compared with.
const clockRead = "a clock read"

// readClock shows what reading the clock costs in the cheapest way there is.
var readClock = rival{clockRead, func(m *meter, ops int) {
	base := time.Now()
	alone(m, ops, func(_ context.Context, ops int) {
		for range ops {
			must(time.Since(base) >= 0)
		}
	})
}}
