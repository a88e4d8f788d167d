package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/breaker"
)

// A step is what is done to a breaker some time after the step before.
type step struct {
	wait time.Duration
	do   action
	n    int // how often
	call int // which of those in flight, for done
	o    breaker.Outcome
	lock bool // do it under the lock, where both ways are possible
}

type action int

const (
	allow action = iota
	done
	both // one after the other
	reset
	limit
)

// A play is a breaker to which steps were done, in a bubble, before somebody looked.
type play struct {
	b       *breaker.Breaker
	lock    bool // always
	out     []breaker.Call
	refused int
	changes []breaker.Transition
	held    int              // in the end
	seen    breaker.Snapshot // after that
}

func newPlay(c breaker.Config, lock bool, steps []step) *play {
	p, start := &play{lock: lock}, time.Now()
	c.OnTransition = func(tr breaker.Transition) {
		tr.Context, tr.At = nil, time.Time{}.Add(tr.At.Sub(start))
		p.changes = append(p.changes, tr)
	}
	p.b = breaker.New(c)
	for _, s := range steps {
		p.do(s)
	}
	p.held = p.b.Held()
	p.seen = p.b.Snapshot()
	return p
}

func (p *play) do(s step) {
	time.Sleep(s.wait)
	lock := p.lock || s.lock
	for range s.n {
		switch s.do {
		case allow:
			p.allow(lock)
		case done:
			if len(p.out) > 0 {
				p.done(s.call%len(p.out), s.o, lock)
			}
		case both:
			if p.allow(lock) {
				p.done(len(p.out)-1, s.o, lock)
			}
		case reset:
			p.b.Reset()
		case limit:
			p.b.SetOverdueLimit(s.call)
		}
	}
}

func (p *play) allow(lock bool) bool {
	ctx, now := context.Background(), time.Now()
	var call breaker.Call
	if lock {
		call = p.b.AllowLocking(ctx, now)
	} else {
		call, _ = p.b.AllowAt(ctx, now)
	}
	if call.Start().IsZero() {
		p.refused++
		return false
	}
	p.out = append(p.out, call)
	return true
}

func (p *play) done(i int, o breaker.Outcome, lock bool) {
	call, now := p.out[i], time.Now()
	p.out = append(p.out[:i], p.out[i+1:]...)
	if lock {
		call.DoneLocking(context.Background(), o, now)
	} else {
		call.DoneAt(context.Background(), o, now)
	}
}

// It makes no difference that the gate holds outcomes: at whatever moment somebody
// looks for the first time, he sees what he would have seen if every call had taken
// the lock, and until then the same calls were let in, and the same changes told.
func TestHeldOutcomesAreAsGoodAsFiled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := breaker.Config{
			FailureRate:  rapid.SampledFrom([]float64{0.5, 5, 33.34, 50, 100}).Draw(t, "failureRate"),
			SlowCallRate: rapid.SampledFrom([]float64{0.5, 25, 100}).Draw(t, "slowCallRate"),
			OpenFor:      []time.Duration{700 * time.Millisecond},
			HalfOpen:     breaker.HalfOpenConfig{Calls: 2},
			MinCalls:     rapid.SampledFrom([]int{1, 2, 5, 20, 300}).Draw(t, "minCalls"),
			NoOverdue:    rapid.Bool().Draw(t, "noOverdue"),
			InitialState: rapid.SampledFrom([]breaker.State{breaker.Closed, breaker.Closed, breaker.MetricsOnly, breaker.Disabled}).Draw(t, "state"),
		}
		if rapid.Bool().Draw(t, "timeWindow") {
			c.Window.Time = rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Second, 6 * time.Millisecond}).Draw(t, "time")
		} else {
			c.Window.Calls = rapid.SampledFrom([]int{1, 2, 7, 32, 33, 100, 400}).Draw(t, "calls")
		}
		c.SlowCall = rapid.SampledFrom([]time.Duration{0, 800 * time.Millisecond, 1600 * time.Millisecond}).Draw(t, "slowCall")

		waits := rapid.OneOf(
			rapid.Just(time.Duration(0)), rapid.Just(time.Duration(0)), rapid.Just(time.Duration(1)),
			rapid.SampledFrom([]time.Duration{99999999, 100000000, 199999999, 200000000, 50000000, time.Second, 5 * time.Second}),
			rapid.Map(rapid.Int64Range(0, 3e8), func(n int64) time.Duration { return time.Duration(n) }),
		)
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				wait: waits.Draw(t, "wait"),
				do:   rapid.SampledFrom([]action{allow, done, done, both, both, both, both, reset, limit}).Draw(t, "do"),
				n:    rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 12, 13, 30, 240, 300}).Draw(t, "n"),
				call: rapid.IntRange(0, 5).Draw(t, "call"),
				o:    rapid.SampledFrom([]breaker.Outcome{breaker.Success, breaker.Success, breaker.Failure, breaker.Ignored}).Draw(t, "outcome"),
				lock: rapid.IntRange(0, 9).Draw(t, "lock") == 0,
			}
		}), 10, 60).Draw(t, "steps")

		rapid.SyncTest(t, func(t *rapid.T) {
			for n := 1; n <= len(steps); n++ {
				want, got := newPlay(c, true, steps[:n]), newPlay(c, false, steps[:n])
				require.Equal(t, want.seen, got.seen, "after %d steps", n)
				require.Equal(t, want.changes, got.changes, "after %d steps", n)
				require.Equal(t, want.refused, got.refused, "after %d steps", n)
			}
		})
	})
}

// Most calls leave their outcomes in the gate, or there would be nothing to gain.
func TestGateHoldsWhatItCan(t *testing.T) {
	ok := func(n int) step { return step{do: both, n: n, o: breaker.Success} }
	bad := func(n int) step { return step{do: both, n: n, o: breaker.Failure} }
	tests := map[string]struct {
		config breaker.Config
		steps  []step
		held   int
	}{
		"successes":                    {breaker.Config{}, []step{ok(200)}, 200},
		"failures, in their order":     {breaker.Config{}, []step{ok(200), bad(1), ok(5), bad(1)}, 207},
		"as many failures as are safe": {breaker.Config{}, []step{bad(9)}, 9}, // the tenth of twenty would trip
		"and one more":                 {breaker.Config{}, []step{bad(10)}, 0},
		"nothing trips":                {breaker.Config{InitialState: breaker.MetricsOnly}, []step{bad(12)}, 12},
		"nothing is recorded":          {breaker.Config{InitialState: breaker.Disabled}, []step{bad(12)}, 0},
		"an ignored call":              {breaker.Config{}, []step{ok(3), {do: both, n: 1, o: breaker.Ignored}}, 0},
		"from an earlier slot":         {breaker.Config{}, []step{{do: allow, n: 1}, ok(3), {wait: time.Second / 8}, {do: done, n: 1, o: breaker.Success}}, 0},
		"after the slot":               {breaker.Config{}, []step{{wait: time.Second / 8, do: both, n: 2, o: breaker.Success}}, 2},
		"in another bucket":            {breaker.Config{Window: breaker.Window{Time: time.Second}}, []step{ok(3), {wait: time.Second / 10, do: both, n: 2, o: breaker.Success}}, 2},
		"let in under the lock":        {breaker.Config{}, []step{{do: allow, n: 1, lock: true}, {do: done, n: 1, o: breaker.Success}}, 1},
		"where a success might trip": {
			breaker.Config{MinCalls: 1, Window: breaker.Window{Time: time.Second}},
			[]step{ok(3), {wait: time.Second / 2, do: both, n: 1, o: breaker.Failure}, {wait: time.Second / 2, do: both, n: 1, o: breaker.Success}}, 0,
		},
		"any failure trips":         {breaker.Config{MinCalls: 10, FailureRate: 1}, []step{ok(3), bad(1)}, 0},
		"after one that nearly did": {breaker.Config{MinCalls: 10, FailureRate: 10}, []step{bad(1), ok(3)}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := test.config
				c.SlowCall = time.Second
				require.Equal(t, test.held, newPlay(c, false, test.steps).held)
			})
		})
	}
}
