package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// let asks for a call that must be let in.
func let(t *testing.T, b *breaker.Breaker) breaker.Call {
	t.Helper()
	call, err := b.Allow(t.Context())
	require.NoError(t, err)
	return call
}

// refuse asks for a call that must be refused.
func refuse(t *testing.T, b *breaker.Breaker) breaker.Call {
	t.Helper()
	call, err := b.Allow(t.Context())
	require.ErrorIs(t, err, breaker.ErrOpen)
	return call
}

// end makes n calls, one after the other, each of which takes a while and ends so.
func end(t *testing.T, b *breaker.Breaker, n int, o breaker.Outcome, took time.Duration) {
	t.Helper()
	for range n {
		call := let(t, b)
		time.Sleep(took)
		call.Done(t.Context(), o)
	}
}

func TestRefusedCallTellsStateAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			MinCalls: 1,
			OpenFor:  []time.Duration{10 * time.Second},
			HalfOpen: breaker.HalfOpenConfig{Calls: 1},
		})
		call := let(t, b)
		assert.Equal(t, breaker.Closed, call.State())
		assert.Zero(t, call.Remaining())
		call.Done(t.Context(), breaker.Failure)

		time.Sleep(3 * time.Second)
		refused := refuse(t, b)
		assert.Equal(t, breaker.Open, refused.State())
		assert.Equal(t, 7*time.Second, refused.Remaining())

		time.Sleep(7 * time.Second)
		assert.Equal(t, breaker.HalfOpen, let(t, b).State())
		refused = refuse(t, b)
		assert.Equal(t, breaker.HalfOpen, refused.State())
		assert.Zero(t, refused.Remaining())

		require.NoError(t, b.Transition(breaker.ForcedOpen, 0))
		refused = refuse(t, b)
		assert.Equal(t, breaker.ForcedOpen, refused.State())
		assert.Zero(t, refused.Remaining())
		assert.EqualValues(t, 3, b.Snapshot().Denied)
	})
}

// A Call that was refused, or that nobody made, can be ended without harm.
func TestRefusedCallHasNothingToEnd(t *testing.T) {
	b := breaker.New(breaker.Config{InitialState: breaker.ForcedOpen})
	for _, call := range []breaker.Call{refuse(t, b), {}} {
		call.Done(t.Context(), breaker.Failure)
		call.DoneIn(t.Context(), breaker.Failure, time.Second)
		call.DoneAt(t.Context(), breaker.Failure, time.Now())
		call.Cancel()
		call.RetryAfter(time.Second)
		assert.Equal(t, call, call.Restart(context.Background()))
		assert.Equal(t, call, call.Pause(context.Background()))
		assert.Equal(t, call, call.Responded(t.Context()))
		assert.True(t, call.Start().IsZero())
		assert.True(t, call.Stale())
	}
	assert.Zero(t, b.Snapshot().Calls)
}

func TestNilContext(t *testing.T) {
	var seen []breaker.Transition
	b := breaker.New(breaker.Config{
		MinCalls:     1,
		OnTransition: func(tr breaker.Transition) { seen = append(seen, tr) },
	})
	var none context.Context // it is allowed
	call, err := b.Allow(none)
	require.NoError(t, err)
	call.Done(none, breaker.Failure)
	require.Len(t, seen, 1)
	assert.Equal(t, t.Context().Err(), seen[0].Context.Err())
}

func TestUnknownOutcomePanics(t *testing.T) {
	b := breaker.New(breaker.Config{})
	assert.PanicsWithValue(t, "breaker: bad outcome: Outcome(0)", func() {
		let(t, b).Done(t.Context(), 0)
	})
	// The breaker is as usable as before.
	end(t, b, 1, breaker.Success, 0)
	assert.Equal(t, 1, b.Snapshot().Calls)
}

// E47: a late result decides nothing in a newer period.
func TestLateResult(t *testing.T) {
	conf := breaker.Config{
		MinCalls: 1,
		OpenFor:  []time.Duration{time.Second},
		HalfOpen: breaker.HalfOpenConfig{Calls: 1},
	}
	t.Run("success does not close a half-open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(conf)
			slow := let(t, b)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			probe := let(t, b)
			slow.Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.HalfOpen, b.State())
			probe.Done(t.Context(), breaker.Failure)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("failure counts in no later closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(conf)
			slow := let(t, b)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			end(t, b, 1, breaker.Success, 0)
			require.Equal(t, breaker.Closed, b.State())
			slow.Done(t.Context(), breaker.Failure)
			assert.Equal(t, breaker.Closed, b.State())
			assert.Zero(t, b.Snapshot().Calls)
		})
	})
	t.Run("probe of an older half-open is none of a newer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := conf
			c.HalfOpen.MaxWait = time.Second
			b := breaker.New(c)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			older := let(t, b)
			time.Sleep(2 * time.Second) // MaxWait, then the next open period
			newer := let(t, b)
			older.Cancel()
			assert.Zero(t, b.Snapshot().ProbesLeft)
			older.Done(t.Context(), breaker.Failure)
			assert.Equal(t, breaker.HalfOpen, b.State())
			newer.Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.Closed, b.State())
		})
	})
	t.Run("a window emptied by hand stays empty", func(t *testing.T) {
		b := breaker.New(conf)
		call := let(t, b)
		b.Reset()
		call.Done(t.Context(), breaker.Failure)
		assert.Equal(t, breaker.Closed, b.State())
		assert.Zero(t, b.Snapshot().Calls)
	})
}

func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			MinCalls: 2,
			OpenFor:  []time.Duration{time.Second},
			HalfOpen: breaker.HalfOpenConfig{Calls: 2, ProbeTimeout: 5 * time.Second, MaxWait: time.Minute},
		})
		waiting := let(t, b)
		assert.False(t, waiting.Stale())
		end(t, b, 2, breaker.Failure, 0)
		assert.True(t, waiting.Stale(), "the breaker has opened")

		time.Sleep(time.Second)
		probe := let(t, b)
		assert.False(t, probe.Stale())
		time.Sleep(5*time.Second - 1)
		assert.False(t, probe.Stale())
		time.Sleep(time.Nanosecond)
		assert.True(t, probe.Stale(), "the probe was given up, though the period is the same")
		require.Equal(t, breaker.HalfOpen, b.State())

		probe = let(t, b)
		time.Sleep(time.Second)
		probe.Done(t.Context(), breaker.Failure)
		assert.True(t, probe.Stale(), "it has ended")
	})
}

// E50a: what a call spends waiting for something else is not its duration.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{SlowCall: 100 * time.Millisecond, MinCalls: 1, SlowCallRate: 100})
		call := let(t, b).Pause(context.Background())
		time.Sleep(300 * time.Millisecond)
		call = call.Restart(context.Background())
		time.Sleep(10 * time.Millisecond)
		call.Done(t.Context(), breaker.Success)
		s := b.Snapshot()
		assert.Equal(t, 1, s.Calls)
		assert.Zero(t, s.Slow)

		call = let(t, b).Restart(context.Background())
		time.Sleep(101 * time.Millisecond)
		call.Done(t.Context(), breaker.Success)
		assert.Equal(t, 1, b.Snapshot().Slow)
	})
}

// Whoever has read the clock may say what it said.
func TestAllowAtDoneAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{SlowCall: 100 * time.Millisecond})
		for _, took := range []time.Duration{100 * time.Millisecond, 101 * time.Millisecond} {
			began := time.Now()
			call, err := b.AllowAt(t.Context(), began)
			require.NoError(t, err)
			assert.True(t, began.Equal(call.Start()))
			time.Sleep(time.Second)
			call.DoneAt(t.Context(), breaker.Success, began.Add(took)) // what took the rest is not its fault
		}
		s := b.Snapshot()
		assert.Equal(t, 2, s.Calls)
		assert.Equal(t, 1, s.Slow)
	})
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		time.Sleep(time.Second)
		call := let(t, b)
		assert.True(t, time.Now().Equal(call.Start()))
		time.Sleep(time.Second)
		assert.True(t, time.Now().Equal(call.Restart(context.Background()).Start()))
		assert.Equal(t, time.Second, time.Since(call.Start()))
	})
}

func TestDoneIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{SlowCall: 100 * time.Millisecond})
		call := let(t, b)
		time.Sleep(time.Hour)
		call.DoneIn(t.Context(), breaker.Success, 100*time.Millisecond)
		assert.Zero(t, b.Snapshot().Slow)
		let(t, b).DoneIn(t.Context(), breaker.Success, 101*time.Millisecond)
		let(t, b).DoneIn(t.Context(), breaker.Success, -time.Second)
		s := b.Snapshot()
		assert.Equal(t, 1, s.Slow)
		assert.Equal(t, 3, s.Calls)
	})
}

// illegal are the changes, from and to, that no hand can make; as in resilience4j.
var illegal = map[[2]breaker.State]bool{
	{breaker.Closed, breaker.HalfOpen}:      true,
	{breaker.MetricsOnly, breaker.HalfOpen}: true,
	{breaker.MetricsOnly, breaker.Open}:     true,
}

func TestIllegalTransitions(t *testing.T) {
	for from := breaker.Closed; from <= breaker.ForcedOpen; from++ {
		for to := breaker.Closed; to <= breaker.ForcedOpen; to++ {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				b := breaker.New(breaker.Config{InitialState: from})
				call, _ := b.Allow(t.Context())
				err := b.Transition(to, 0)
				if !illegal[[2]breaker.State{from, to}] {
					require.NoError(t, err)
					assert.Equal(t, to, b.State())
					return
				}
				require.ErrorIs(t, err, breaker.ErrIllegalTransition)
				assert.Equal(t, from, b.State())
				assert.False(t, call.Stale(), "nothing has changed")
			})
		}
	}
}

// The states that only a hand leads to, and out of.
func TestTransitionByHand(t *testing.T) {
	t.Run("forced open never ends by itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{AutoHalfOpen: true})
			require.NoError(t, b.Transition(breaker.ForcedOpen, 0))
			time.Sleep(1000 * time.Hour)
			refuse(t, b)
			require.NoError(t, b.Transition(breaker.HalfOpen, 0))
			let(t, b)
		})
	})
	t.Run("metrics only counts and lets in", func(t *testing.T) {
		b := breaker.New(breaker.Config{MinCalls: 1})
		require.NoError(t, b.Transition(breaker.MetricsOnly, 0))
		end(t, b, 5, breaker.Failure, 0)
		assert.Equal(t, breaker.MetricsOnly, b.State())
		assert.EqualValues(t, 100, b.Snapshot().FailureRate)
	})
	t.Run("nonsense panics", func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		assert.Panics(t, func() { _ = b.Transition(0, 0) })
		assert.Panics(t, func() { _ = b.Transition(breaker.ForcedOpen+1, 0) })
		assert.Panics(t, func() { _ = b.Transition(breaker.Open, -1) })
		assert.Equal(t, breaker.Closed, b.State())
	})
}

// Between the clock and the lock another goroutine, with a later reading, may be
// faster. Nothing may turn back for it.
func TestOlderReadingOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			Window:   breaker.Window{Time: 10 * time.Second},
			MinCalls: 2,
			OpenFor:  []time.Duration{10 * time.Second},
		})
		older := let(t, b)
		time.Sleep(60 * time.Second)
		end(t, b, 1, breaker.Failure, 0)
		older.DoneAt(t.Context(), breaker.Failure, b.At(5*time.Second)) // trips now, not 55s ago
		assert.Equal(t, 10*time.Second, b.Snapshot().OpenRemaining)
		assert.Equal(t, 2, b.Snapshot().Calls)

		refused, err := b.AllowAt(t.Context(), b.At(5*time.Second))
		require.ErrorIs(t, err, breaker.ErrOpen)
		assert.Equal(t, 10*time.Second, refused.Remaining())
	})
}

func TestNames(t *testing.T) {
	var names []string
	for s := breaker.State(0); s <= breaker.ForcedOpen+1; s++ {
		names = append(names, s.String())
	}
	assert.Equal(t, []string{"State(0)", "closed", "open", "half_open", "disabled", "metrics_only", "forced_open", "State(7)"}, names)

	names = nil
	for o := breaker.Outcome(0); o <= breaker.Ignored+1; o++ {
		names = append(names, o.String())
	}
	assert.Equal(t, []string{"Outcome(0)", "success", "failure", "ignored", "Outcome(4)"}, names)

	names = nil
	for c := breaker.Cause(0); c <= breaker.CauseOverdue+1; c++ {
		names = append(names, c.String())
	}
	assert.Equal(t, []string{"Cause(0)", "failure_rate", "slow_call_rate", "forced", "reset",
		"open_elapsed", "probes", "half_open_elapsed", "overdue", "Cause(9)"}, names)
}
