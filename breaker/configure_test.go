package breaker_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/breaker"
)

// file has a call succeed or fail, fast or after took.
func file(t require.TestingT, b *breaker.Breaker, failed bool, took time.Duration) {
	call, err := b.Allow(context.Background())
	require.NoError(t, err)
	o := breaker.Success
	if failed {
		o = breaker.Failure
	}
	call.DoneIn(context.Background(), o, took)
}

// A count window keeps the latest outcomes that it has room for, whatever sizes it has
// had, and forgets them in the order in which they came.
func TestConfigureKeepsCountWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := func(size int) breaker.Config {
			return breaker.Config{InitialState: breaker.MetricsOnly, Window: breaker.Window{Calls: size}, MinCalls: 1, SlowCall: time.Second, NoOverdue: true}
		}
		sizes := rapid.IntRange(1, 100)
		size := sizes.Draw(t, "size")
		b := breaker.New(config(size))
		type outcome struct{ failed, slow bool }
		var model []outcome
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "configure") {
				size = sizes.Draw(t, "size")
				b.Configure(config(size))
			} else {
				for range rapid.IntRange(1, 60).Draw(t, "calls") {
					o := outcome{rapid.Bool().Draw(t, "failed"), rapid.Bool().Draw(t, "slow")}
					took := time.Duration(0)
					if o.slow {
						took = 2 * time.Second
					}
					file(t, b, o.failed, took)
					model = append(model, o)
				}
			}
			model = model[max(0, len(model)-size):]
			var failed, slow int
			for _, o := range model {
				if o.failed {
					failed++
				}
				if o.slow {
					slow++
				}
			}
			s := b.Snapshot()
			require.Equal(t, []int{len(model), failed, slow}, []int{s.Calls, s.Failed, s.Slow})
			require.Equal(t, breaker.MetricsOnly, s.State)
		}
	})
}

func TestConfigureKeepsTimeWindows(t *testing.T) {
	config := func(length time.Duration) breaker.Config {
		return breaker.Config{Window: breaker.Window{Time: length}, MinCalls: 100}
	}
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(config(10 * time.Second))
		calls := func() int { return b.Snapshot().Calls }
		for range 20 { // one a second, of which ten are in the window
			file(t, b, true, 0)
			time.Sleep(time.Second)
		}
		require.Equal(t, 9, calls())
		b.Configure(config(20 * time.Second)) // of buckets of a second, too
		require.Equal(t, 9, calls())
		time.Sleep(5 * time.Second)
		require.Equal(t, 9, calls(), "those who would have left by now stay")
		b.Configure(config(12 * time.Second))
		require.Equal(t, 6, calls())
		time.Sleep(time.Second)
		require.Equal(t, 5, calls())
		b.Configure(config(5 * time.Second)) // of a tenth of a second
		require.Zero(t, calls())
		file(t, b, true, 0)
		b.Configure(breaker.Config{Window: breaker.Window{Calls: 5}})
		require.Zero(t, calls(), "of another kind")
		file(t, b, true, 0)
		b.Configure(config(10 * time.Second))
		require.Zero(t, calls(), "and back")
	})
}

func TestConfigureKeepsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{MinCalls: 2, OpenFor: []time.Duration{10 * time.Second, 20 * time.Second}, HalfOpen: breaker.HalfOpenConfig{Calls: 3}})
		file(t, b, true, 0)
		next := breaker.Config{MinCalls: 2, OpenFor: []time.Duration{time.Second, 5 * time.Second}, HalfOpen: breaker.HalfOpenConfig{Calls: 1}}
		b.Configure(next)
		require.Equal(t, breaker.Closed, b.State())
		file(t, b, true, 0)
		require.Equal(t, breaker.Open, b.State(), "what was filed before counts")
		require.Equal(t, time.Second, b.Remaining(), "the new period")

		b.Configure(breaker.Config{MinCalls: 2, OpenFor: []time.Duration{time.Hour, 5 * time.Second}, HalfOpen: breaker.HalfOpenConfig{Calls: 2}})
		require.Equal(t, time.Second, b.Remaining(), "one that has begun ends when it was to")
		time.Sleep(time.Second)
		probe, err := b.Allow(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.Snapshot().ProbesLeft)

		b.Configure(breaker.Config{MinCalls: 9, OpenFor: []time.Duration{time.Hour, 7 * time.Second}, HalfOpen: breaker.HalfOpenConfig{Calls: 9}})
		require.Equal(t, 1, b.Snapshot().ProbesLeft, "as many as it began with")
		file(t, b, true, 0)
		probe.Done(t.Context(), breaker.Failure)
		require.Equal(t, breaker.Open, b.State(), "two decide")
		require.Equal(t, 7*time.Second, b.Remaining(), "the second attempt, of the new periods")
		time.Sleep(7 * time.Second)
		file(t, b, false, 0)
		require.Equal(t, 8, b.Snapshot().ProbesLeft, "the next half-open is by the new rules")
	})
}

// By the new rules there may be too many overdue calls already: then the next call is
// refused.
func TestConfigureAsksTheOverdueRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(slow800(0))
		hang(t, b, 10)
		time.Sleep(time.Second)
		b.Configure(slow800(10))
		refuse(t, b)
	})
}

// What new limits of time would have ended long ago ends now: the breaker was seen as it
// was meanwhile, and let calls in for it.
func TestConfigureChangesNothingInThePast(t *testing.T) {
	for name, tt := range map[string]struct {
		from    breaker.State
		next    breaker.Config
		to      breaker.State
		cause   breaker.Cause
		attempt int
	}{
		"max wait": {breaker.HalfOpen, breaker.Config{
			OpenFor: []time.Duration{time.Second}, HalfOpen: breaker.HalfOpenConfig{ProbeTimeout: -1, MaxWait: time.Second},
		}, breaker.Open, breaker.CauseHalfOpenElapsed, 2},
		"probe time-out": {breaker.HalfOpen, breaker.Config{
			MinCalls: 1, OpenFor: []time.Duration{time.Second}, HalfOpen: breaker.HalfOpenConfig{ProbeTimeout: time.Second},
		}, breaker.Open, breaker.CauseFailureRate, 2},
		"half-open by itself": {breaker.Open, breaker.Config{
			AutoHalfOpen: true, OpenFor: []time.Duration{time.Second}, HalfOpen: breaker.HalfOpenConfig{MaxWait: time.Second},
		}, breaker.HalfOpen, breaker.CauseOpenElapsed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes []breaker.Transition
				b := breaker.New(breaker.Config{
					InitialState: tt.from, MinCalls: 1, OpenFor: []time.Duration{time.Second},
					HalfOpen:     breaker.HalfOpenConfig{ProbeTimeout: -1},
					OnTransition: func(tr breaker.Transition) { changes = append(changes, tr) },
				})
				if tt.from == breaker.HalfOpen {
					_, err := b.Allow(t.Context())
					require.NoError(t, err)
				}
				time.Sleep(time.Hour) // time for many rounds that there were not
				b.Configure(tt.next)
				require.Len(t, changes, 1, "at once")
				require.Equal(t, tt.to, changes[0].To)
				require.Equal(t, tt.cause, changes[0].Cause)
				require.Equal(t, time.Now(), changes[0].At)
				require.Equal(t, tt.attempt, b.Snapshot().Attempt)
				if tt.to == breaker.Open {
					require.Equal(t, time.Second, b.Remaining(), "all of the open period is ahead")
				}
			})
		})
	}
}

// From a count window to one of time, the gate holds outcomes no longer than their
// bucket lasts.
func TestConfigureShutsTheGateInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{MinCalls: 100})
		b.Configure(breaker.Config{MinCalls: 100, Window: breaker.Window{Time: 10 * time.Second}})
		time.Sleep(5 * time.Second)
		file(t, b, false, 0)
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, b.Snapshot().Calls)
		time.Sleep(4 * time.Second)
		require.Zero(t, b.Snapshot().Calls)
	})
}

// What has left a time window does not come back into a longer one, even if nobody has
// looked in between.
func TestConfigureRevivesNoOutcomes(t *testing.T) {
	config := func(length time.Duration) breaker.Config {
		return breaker.Config{Window: breaker.Window{Time: length}, MinCalls: 100}
	}
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(config(10 * time.Second))
		file(t, b, true, 0)
		time.Sleep(15 * time.Second)
		b.Configure(config(20 * time.Second))
		require.Zero(t, b.Snapshot().Calls)
	})
}

// What the callee asked for while it was heeded does not matter once it is not.
func TestConfigureHeedsRetryAfterNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := breaker.Config{MinCalls: 1, OpenFor: []time.Duration{5 * time.Second}, MaxRetryAfter: time.Minute}
		b := breaker.New(c)
		call, err := b.Allow(t.Context())
		require.NoError(t, err)
		call.RetryAfter(time.Minute)
		c.MaxRetryAfter = 0
		b.Configure(c)
		call.Done(t.Context(), breaker.Failure)
		require.Equal(t, breaker.Open, b.State())
		require.Equal(t, 5*time.Second, b.Remaining())
	})
}

// What the new thresholds would not have let stand opens the breaker with the next
// outcome, also one that succeeds.
func TestConfigureJudgesByTheNewThresholds(t *testing.T) {
	b := breaker.New(breaker.Config{MinCalls: 10, FailureRate: 60, Window: breaker.Window{Calls: 20}})
	for i := range 20 {
		file(t, b, i%2 == 0, 0)
	}
	b.Configure(breaker.Config{MinCalls: 10, FailureRate: 30, Window: breaker.Window{Calls: 20}})
	require.Equal(t, breaker.Closed, b.State())
	file(t, b, false, 0)
	require.Equal(t, breaker.Open, b.State())
}

func TestConfigureOfTheOverdueRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := func(slow time.Duration) breaker.Config {
			return breaker.Config{MinCalls: 2, SlowCall: slow}
		}
		b := breaker.New(config(800 * time.Millisecond))
		hang := func() breaker.Call {
			call, err := b.Allow(t.Context())
			require.NoError(t, err)
			return call
		}
		hang()
		hang()
		time.Sleep(500 * time.Millisecond)
		b.Configure(config(800 * time.Millisecond)) // the same: nothing is forgotten
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, breaker.Open, b.State())

		b.Reset()
		old := []breaker.Call{hang(), hang()}
		b.Configure(config(80 * time.Millisecond))
		time.Sleep(time.Second)
		require.Equal(t, breaker.Closed, b.State(), "it counts anew")
		for _, c := range old {
			c.Done(t.Context(), breaker.Failure)
		}
		require.Zero(t, b.Snapshot().Calls)
		hang()
		hang()
		time.Sleep(90 * time.Millisecond)
		require.Equal(t, breaker.Open, b.State(), "with the new slots")

		b.Reset()
		hang()
		hang()
		b.Configure(breaker.Config{MinCalls: 2})
		time.Sleep(time.Hour)
		require.Equal(t, breaker.Closed, b.State(), "the rule is off")
	})
}

// Configured again and again with what it has, a breaker does what it would have done.
func TestConfigureWithTheSameChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, configureWithTheSame) })
}

func configureWithTheSame(t *rapid.T) {
	c := breaker.Config{
		MinCalls: rapid.IntRange(1, 5).Draw(t, "minCalls"),
		SlowCall: rapid.SampledFrom([]time.Duration{0, 80 * time.Millisecond}).Draw(t, "slowCall"),
		Window:   rapid.SampledFrom([]breaker.Window{{Calls: 5}, {Time: time.Second}}).Draw(t, "window"),
		OpenFor:  []time.Duration{time.Second, 2 * time.Second},
		HalfOpen: breaker.HalfOpenConfig{Calls: 2},
	}
	plain, configured := breaker.New(c), breaker.New(c)
	type pair [2]breaker.Call
	var flying []pair
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			one, err1 := plain.Allow(context.Background())
			two, err2 := configured.Allow(context.Background())
			require.Equal(t, err1, err2)
			if err1 == nil {
				flying = append(flying, pair{one, two})
			}
		case 1:
			if len(flying) > 0 {
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
				o := breaker.Outcome(rapid.IntRange(1, 3).Draw(t, "outcome"))
				for _, call := range flying[i] {
					call.Done(context.Background(), o)
				}
				flying = append(flying[:i], flying[i+1:]...)
			}
		case 2:
			time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
		case 3:
			configured.Configure(c)
		}
		require.Equal(t, plain.Snapshot(), configured.Snapshot())
	}
}

// While it is configured, no call is lost, and none counts twice.
func TestHammerConfigure(t *testing.T) {
	const workers, calls = 8, 5000
	size := func(n int) breaker.Config {
		return breaker.Config{Window: breaker.Window{Calls: n}, MinCalls: 1 << 20, NoOverdue: n%2 == 0, SlowCall: time.Hour}
	}
	b := breaker.New(breaker.Config{Window: breaker.Window{Calls: workers * calls}, MinCalls: workers * calls})
	var stop atomic.Bool
	var configuring, working sync.WaitGroup
	configuring.Go(func() {
		for i := 0; !stop.Load(); i++ {
			b.Configure(breaker.Config{Window: breaker.Window{Calls: workers*calls + i%3}, MinCalls: workers * calls, FailureRate: float64(1 + i%100)})
			runtime.Gosched()
		}
	})
	for range workers {
		working.Go(func() {
			for range calls {
				file(t, b, false, 0)
			}
		})
	}
	working.Wait()
	stop.Store(true)
	configuring.Wait()
	assert.Equal(t, workers*calls, b.Snapshot().Calls)

	// With the overdue rule coming and going there is nothing to count, but also
	// nothing that goes wrong.
	stop.Store(false)
	configuring.Go(func() {
		for i := 0; !stop.Load(); i++ {
			b.Configure(size(10 + i%4))
			runtime.Gosched()
		}
	})
	for range workers {
		working.Go(func() {
			for range calls {
				file(t, b, false, 0)
			}
		})
	}
	working.Wait()
	stop.Store(true)
	configuring.Wait()
	b.Configure(size(10))
	s := b.Snapshot()
	assert.LessOrEqual(t, s.Calls, 10)
	assert.Zero(t, s.Overdue)
}

func TestConfigurePanics(t *testing.T) {
	b := breaker.New(breaker.Config{})
	assert.PanicsWithValue(t, "breaker: bad FailureRate: 101", func() { b.Configure(breaker.Config{FailureRate: 101}) })
	file(t, b, false, 0) // it holds no lock
}
