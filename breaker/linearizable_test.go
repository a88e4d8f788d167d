package breaker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/internal/linear"
)

// A deed is a [linear.Step]: something that was done to a breaker while others did
// something beside it, with what it was told.
type deed struct {
	begun, over int64
	kind        deedKind
	call        int             // which, for enter and leave
	refused     bool            // enter was
	outcome     breaker.Outcome // for leave
	seen        breaker.Snapshot
}

type deedKind int

const (
	enter deedKind = iota
	leave
	empty // by Reset
	see
)

// A sequential is the breaker without concurrency, in whose life no time passes.
type sequential struct {
	size, minCalls, rate int
	overdue              bool

	open      bool
	period    int
	calls     int
	failed    [8]bool // of the last size calls, the latest first
	responded int
	in        [16]int // by which period a call was let in; 0: none
}

func (s sequential) failures() (n int) {
	for _, failed := range s.failed {
		if failed {
			n++
		}
	}
	return n
}

func (d deed) Begun() int64 { return d.begun }
func (d deed) Over() int64  { return d.over }

func (d deed) Next(s sequential) (sequential, bool) {
	switch d.kind {
	case enter:
		if !d.refused {
			s.in[d.call] = s.period
		}
		return s, d.refused == s.open
	case leave:
		return s.leave(d), true
	case empty:
		return s.enter(false), true
	default:
		return s, d.seen.State == breaker.Open == s.open &&
			d.seen.Calls == s.calls && d.seen.Failed == s.failures() && d.seen.Responded == s.responded
	}
}

func (s sequential) leave(d deed) sequential {
	if s.in[d.call] != s.period || d.outcome == breaker.Ignored {
		return s
	}
	if s.overdue {
		s.responded++
	}
	s.calls = min(s.calls+1, s.size)
	copy(s.failed[1:s.size], s.failed[:])
	s.failed[0] = d.outcome == breaker.Failure
	if s.calls >= s.minCalls && 100*s.failures() >= s.rate*s.calls {
		return s.enter(true)
	}
	return s
}

func (s sequential) enter(open bool) sequential {
	s.open = open
	s.period++
	s.responded = 0
	if !open {
		s.calls, s.failed = 0, [8]bool{}
	}
	return s
}

// Whatever calls do at the same time, each is let in or refused, each outcome filed or
// dropped, and everything seen as if it had happened alone at some instant. Above
// all, none is let in after the one that trips the breaker has returned.
func TestLinearizable(t *testing.T) {
	rounds := 5000
	if raceDetector {
		rounds = 1000
	}
	opened := 0
	for round := range rounds {
		s := sequential{
			size: 4 + round%5, minCalls: 1 + round/2%4, rate: 25 + 25*(round/3%4),
			overdue: round%2 == 0, period: 1,
		}
		c := breaker.Config{
			Window: breaker.Window{Calls: s.size}, MinCalls: s.minCalls, FailureRate: float64(s.rate),
			OpenFor: []time.Duration{time.Hour},
		}
		if s.overdue {
			c.SlowCall = time.Hour
		}
		deeds := history(breaker.New(c))
		if !linear.Explains(s, deeds) {
			var lines strings.Builder
			for _, d := range deeds {
				fmt.Fprintf(&lines, "%+v\n", d)
			}
			t.Fatalf("%+v: no order explains\n%s", s, &lines)
		}
		if slices.ContainsFunc(deeds, func(d deed) bool { return d.refused }) {
			opened++
		}
	}
	require.NotZero(t, opened)
}

// history lets goroutines loose on b, each with some deeds at random, and returns
// what they saw.
func history(b *breaker.Breaker) []deed {
	const goroutines, steps = 3, 5
	outcomes := []breaker.Outcome{breaker.Success, breaker.Success, breaker.Failure, breaker.Failure, breaker.Ignored}
	var clock atomic.Int64
	var ready atomic.Int32
	all := make([][]deed, goroutines)
	now := time.Now()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			var held []breaker.Call
			var numbers []int
			deeds := make([]deed, 0, 2*steps)
			do := func(k deedKind) {
				d := deed{kind: k, begun: clock.Add(1)}
				switch k {
				case enter:
					d.call = g*steps + len(deeds)
					call, err := b.AllowAt(context.Background(), now)
					if d.refused = err != nil; !d.refused {
						held, numbers = append(held, call), append(numbers, d.call)
					}
				case leave:
					d.call, d.outcome = numbers[0], outcomes[rand.IntN(len(outcomes))]
					held[0].DoneAt(context.Background(), d.outcome, now)
					held, numbers = held[1:], numbers[1:]
				case empty:
					b.Reset()
				case see:
					d.seen = b.Snapshot()
				}
				d.over = clock.Add(1)
				deeds = append(deeds, d)
			}
			ready.Add(1)
			for ready.Load() < goroutines {
				runtime.Gosched() // then all at once
			}
			for range steps {
				switch n := rand.IntN(20); {
				case n == 0:
					do(empty)
				case n < 3:
					do(see)
				case n < 12 && len(held) > 0:
					do(leave)
				default:
					do(enter)
				}
			}
			for len(held) > 0 {
				do(leave)
			}
			all[g] = deeds
		})
	}
	wg.Wait()
	last := deed{kind: see, begun: clock.Add(1), seen: b.Snapshot(), over: clock.Add(1)}
	return append(slices.Concat(all...), last)
}

// The check must be able to fail: these histories never happened to a breaker.
func TestLinearizableTellsWrongFromRight(t *testing.T) {
	// The second failure trips. Calls 1 and 2 were let in before.
	before := []deed{{begun: 1, over: 2, call: 1}, {begun: 3, over: 4, call: 2}}
	fail := func(call int, begun, over int64) deed {
		return deed{begun: begun, over: over, kind: leave, call: call, outcome: breaker.Failure}
	}
	look := func(begun, over int64, s breaker.State, n int) deed {
		return deed{begun: begun, over: over, kind: see, seen: breaker.Snapshot{State: s, Calls: n, Failed: n}}
	}
	for name, tt := range map[string]struct {
		deeds []deed
		want  bool
	}{
		"refused after it":         {[]deed{fail(1, 5, 6), fail(2, 7, 8), {begun: 9, over: 10, call: 3, refused: true}}, true},
		"let in after it":          {[]deed{fail(1, 5, 6), fail(2, 7, 8), {begun: 9, over: 10, call: 3}}, false},
		"let in beside it":         {[]deed{fail(1, 5, 6), fail(2, 7, 10), {begun: 8, over: 9, call: 3}}, true},
		"refused before it":        {[]deed{fail(1, 5, 6), {begun: 7, over: 8, call: 3, refused: true}, fail(2, 9, 10)}, false},
		"refused, then let in":     {[]deed{fail(1, 5, 6), fail(2, 7, 12), {begun: 8, over: 9, call: 3, refused: true}, {begun: 10, over: 11, call: 4}}, false},
		"filed and seen":           {[]deed{fail(1, 5, 6), look(7, 8, breaker.Closed, 1)}, true},
		"filed and not seen":       {[]deed{fail(1, 5, 6), look(7, 8, breaker.Closed, 0)}, false},
		"seen twice":               {[]deed{fail(1, 5, 6), look(7, 8, breaker.Closed, 2)}, false},
		"dropped, as it came late": {[]deed{fail(1, 5, 6), {begun: 7, over: 8, kind: empty}, fail(2, 9, 10), look(11, 12, breaker.Closed, 0)}, true},
		"filed, though it was":     {[]deed{fail(1, 5, 6), {begun: 7, over: 8, kind: empty}, fail(2, 9, 10), look(11, 12, breaker.Closed, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := sequential{size: 4, minCalls: 2, rate: 100, period: 1}
			require.Equal(t, tt.want, linear.Explains(s, slices.Concat(before, tt.deeds)))
		})
	}
}
