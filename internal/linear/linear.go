// Package linear tells whether what goroutines did to something at the same time could
// have happened one after the other. It is for the tests of the primitives.
package linear

import "math"

// A Step is something that was done while other things were done beside it. Begun and
// Over are readings, before and after it, of a clock that all share and that never
// reads the same twice.
type Step[S comparable] interface {
	Begun() int64
	Over() int64

	// Next reports whether the step, with what it was told, can come next in state s of
	// the thing without concurrency, and which state is after it.
	Next(s S) (S, bool)
}

// MaxSteps is how long a history can be.
const MaxSteps = 63

// Explains reports whether the history can be put in a row that begins in state s, each
// step at some instant between its two readings. It panics if there are more than
// [MaxSteps].
//
// It looks for such a row as Wing and Gong do ("Testing and verifying concurrent
// objects", 1993): whatever was over before another was begun must come first, all else
// is tried. Where a set of steps and the state after it have led nowhere once, they are
// not tried again, as by Lowe ("Testing for linearizability", 2017).
func Explains[S comparable, T Step[S]](s S, history []T) bool {
	if len(history) > MaxSteps {
		panic("linear: history is too long")
	}
	return (&search[S, T]{history, map[deadEnd[S]]bool{}}).from(s, 0)
}

type search[S comparable, T Step[S]] struct {
	history []T
	dead    map[deadEnd[S]]bool
}

type deadEnd[S comparable] struct {
	done  uint64
	state S
}

// from is for the steps that are not in the set done; s is after those that are.
func (x *search[S, T]) from(s S, done uint64) bool {
	if done == 1<<len(x.history)-1 {
		return true
	}
	if x.dead[deadEnd[S]{done, s}] {
		return false
	}
	first := int64(math.MaxInt64) // the earliest end among those that are left
	for i, step := range x.history {
		if done>>i&1 == 0 {
			first = min(first, step.Over())
		}
	}
	for i, step := range x.history {
		if done>>i&1 == 1 || step.Begun() > first {
			continue
		}
		if next, ok := step.Next(s); ok && x.from(next, done|1<<i) {
			return true
		}
	}
	x.dead[deadEnd[S]{done, s}] = true
	return false
}
