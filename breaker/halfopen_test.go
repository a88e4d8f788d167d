package breaker_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// openFor1s trips at the first failure and stays open for a second.
func openFor1s(half breaker.HalfOpenConfig) breaker.Config {
	return breaker.Config{MinCalls: 1, OpenFor: []time.Duration{time.Second}, HalfOpen: half}
}

// E42: a probe that is cancelled hands its permit back, every time.
func TestCancelledProbe(t *testing.T) {
	ways := map[string]func(*testing.T, breaker.Call){
		"cancel":  func(_ *testing.T, c breaker.Call) { c.Cancel() },
		"ignored": func(t *testing.T, c breaker.Call) { c.Done(t.Context(), breaker.Ignored) },
		"panic": func(_ *testing.T, c breaker.Call) {
			defer func() { _ = recover() }()
			defer c.Cancel()
			panic("the probe's own")
		},
		"goexit": func(_ *testing.T, c breaker.Call) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer c.Cancel()
				runtime.Goexit()
			}()
			<-done
		},
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := breaker.New(openFor1s(breaker.HalfOpenConfig{Calls: 1}))
				end(t, b, 1, breaker.Failure, 0)
				time.Sleep(time.Second)
				for range 100 {
					probe := let(t, b)
					refuse(t, b)
					leave(t, probe)
				}
				s := b.Snapshot()
				assert.Equal(t, breaker.HalfOpen, s.State)
				assert.Equal(t, 1, s.ProbesLeft)
				assert.Zero(t, s.Calls)
				end(t, b, 1, breaker.Success, 0)
				assert.Equal(t, breaker.Closed, b.State())
			})
		})
	}
}

// E43: what the next gate refuses is cancelled, and must not be cancelled into a
// second permit.
func TestCancelHandsBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(openFor1s(breaker.HalfOpenConfig{Calls: 2}))
		end(t, b, 1, breaker.Failure, 0)
		time.Sleep(time.Second)
		probe, other := let(t, b), let(t, b)
		probe.Cancel()
		probe.Cancel()
		probe.Done(t.Context(), breaker.Failure)
		assert.Equal(t, 1, b.Snapshot().ProbesLeft)
		assert.Equal(t, breaker.HalfOpen, b.State())
		let(t, b)
		refuse(t, b)
		other.Done(t.Context(), breaker.Success)
		assert.Equal(t, breaker.Closed, b.State())
	})
}

// E44: 100 goroutines at the instant at which the open period ends.
func TestProbesAreCapped(t *testing.T) {
	tests := []struct {
		name     string
		outcomes [2]breaker.Outcome
		want     breaker.State
	}{
		{"both well", [2]breaker.Outcome{breaker.Success, breaker.Success}, breaker.Closed},
		{"one bad", [2]breaker.Outcome{breaker.Success, breaker.Failure}, breaker.Open},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes []breaker.Transition
				b := breaker.New(breaker.Config{
					MinCalls:     2,
					OpenFor:      []time.Duration{time.Second},
					HalfOpen:     breaker.HalfOpenConfig{Calls: 2},
					OnTransition: func(tr breaker.Transition) { changes = append(changes, tr) },
				})
				end(t, b, 2, breaker.Failure, 0)

				var mu sync.Mutex
				var probes []breaker.Call
				refused := 0
				for range 100 {
					go func() {
						time.Sleep(time.Second)
						call, err := b.Allow(t.Context())
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							probes = append(probes, call)
						} else {
							refused++
						}
					}()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				require.Len(t, probes, 2)
				assert.Equal(t, 98, refused)
				for i, o := range test.outcomes {
					probes[i].Done(t.Context(), o)
				}
				assert.Equal(t, test.want, b.State())
				var states []breaker.State
				for _, tr := range changes {
					states = append(states, tr.To)
				}
				assert.Equal(t, []breaker.State{breaker.Open, breaker.HalfOpen, test.want}, states)
			})
		})
	}
}

// E50f: a slow probe reopens by the slow call rate.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last breaker.Transition
		c := openFor1s(breaker.HalfOpenConfig{Calls: 1})
		c.SlowCall = 100 * time.Millisecond
		c.OnTransition = func(tr breaker.Transition) { last = tr }
		b := breaker.New(c)
		end(t, b, 1, breaker.Failure, 0)
		time.Sleep(time.Second)
		end(t, b, 1, breaker.Success, 101*time.Millisecond)
		assert.Equal(t, breaker.Open, b.State())
		assert.Equal(t, breaker.CauseSlowCallRate, last.Cause)
		assert.EqualValues(t, 100, last.SlowCallRate)
		assert.Zero(t, last.FailureRate)
	})
}

// A probe whose result never comes is the failure of the instant at which it was
// given up, whenever somebody looks.
func TestProbeTimeout(t *testing.T) {
	half := breaker.HalfOpenConfig{Calls: 1, ProbeTimeout: 5 * time.Second}
	t.Run("opens as of the instant it was due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last breaker.Transition
			c := openFor1s(half)
			c.OpenFor = []time.Duration{time.Second, time.Minute}
			c.OnTransition = func(tr breaker.Transition) { last = tr }
			b := breaker.New(c)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			lost := let(t, b)
			due := time.Now().Add(5 * time.Second)
			time.Sleep(5*time.Second - 1)
			assert.Equal(t, breaker.HalfOpen, b.State())
			time.Sleep(20*time.Second + 1)

			s := b.Snapshot()
			assert.Equal(t, breaker.Open, s.State)
			assert.Equal(t, 40*time.Second, s.OpenRemaining)
			assert.Equal(t, 2, s.Attempt)
			assert.Equal(t, breaker.CauseFailureRate, last.Cause)
			assert.EqualValues(t, 100, last.FailureRate)
			assert.EqualValues(t, 100, last.SlowCallRate)
			assert.Equal(t, 1, last.Calls)
			assert.Equal(t, time.Minute, last.OpenFor)
			assert.Truef(t, due.Equal(last.At), "at %v, want %v", last.At, due)

			lost.Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("a result at the very instant is late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(openFor1s(half))
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			end(t, b, 1, breaker.Success, 5*time.Second)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("the others decide with it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := openFor1s(breaker.HalfOpenConfig{Calls: 3, ProbeTimeout: 5 * time.Second})
			c.MinCalls = 3
			b := breaker.New(c)
			end(t, b, 3, breaker.Failure, 0)
			time.Sleep(time.Second)
			let(t, b) // lost
			time.Sleep(time.Second)
			second, third := let(t, b), let(t, b)
			time.Sleep(4 * time.Second)
			s := b.Snapshot()
			assert.Equal(t, breaker.HalfOpen, s.State)
			assert.Equal(t, 1, s.Calls)
			assert.Equal(t, 1, s.Failed)
			assert.Zero(t, s.ProbesLeft, "a probe given up makes no room for another")
			third.Done(t.Context(), breaker.Success)
			second.Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.Closed, b.State(), "1 of 3 is under 50%")
		})
	})
	t.Run("its slowness decides nothing without a slow call rule", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{
				FailureRate:  100,
				SlowCallRate: 10,
				MinCalls:     2,
				OpenFor:      []time.Duration{time.Second},
				HalfOpen:     breaker.HalfOpenConfig{Calls: 2, ProbeTimeout: 5 * time.Second},
			})
			end(t, b, 2, breaker.Failure, 0)
			time.Sleep(time.Second)
			let(t, b) // lost
			time.Sleep(5 * time.Second)
			assert.Equal(t, 1, b.Snapshot().Slow)
			end(t, b, 1, breaker.Success, 0)
			assert.Equal(t, breaker.Closed, b.State())
		})
	})
	t.Run("begins again at Restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := openFor1s(breaker.HalfOpenConfig{Calls: 2, ProbeTimeout: 5 * time.Second})
			c.MinCalls = 2
			b := breaker.New(c)
			end(t, b, 2, breaker.Failure, 0)
			time.Sleep(time.Second)
			first, second := let(t, b), let(t, b)
			time.Sleep(3 * time.Second)
			first = first.Restart(context.Background())
			time.Sleep(2 * time.Second)
			assert.True(t, second.Stale())
			assert.False(t, first.Stale())
			time.Sleep(3*time.Second - 1)
			assert.False(t, first.Stale())
			assert.Equal(t, breaker.HalfOpen, b.State())
			time.Sleep(time.Nanosecond)
			assert.True(t, first.Stale())
			assert.Equal(t, breaker.Open, b.State())
			first.Restart(context.Background()).Done(t.Context(), breaker.Success) // too late for that, too
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(openFor1s(breaker.HalfOpenConfig{Calls: 1, ProbeTimeout: -1}))
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			probe := let(t, b)
			time.Sleep(1000 * time.Hour)
			refuse(t, b)
			probe.Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.Closed, b.State())
		})
	})
}

func TestMaxWait(t *testing.T) {
	t.Run("has been open since the instant it was due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last breaker.Transition
			c := openFor1s(breaker.HalfOpenConfig{MaxWait: 5 * time.Second})
			c.OnTransition = func(tr breaker.Transition) { last = tr }
			b := breaker.New(c)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			let(t, b)
			due := time.Now().Add(5 * time.Second)
			time.Sleep(5200 * time.Millisecond)
			assert.Equal(t, 800*time.Millisecond, refuse(t, b).Remaining())
			assert.Equal(t, breaker.CauseHalfOpenElapsed, last.Cause)
			assert.Truef(t, due.Equal(last.At), "at %v, want %v", last.At, due)
		})
	})
	t.Run("a probe given up at the same instant goes first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last breaker.Transition
			c := openFor1s(breaker.HalfOpenConfig{
				ProbeTimeout: 5 * time.Second, MaxWait: 5 * time.Second, MaxWaitTarget: breaker.Closed,
			})
			c.OnTransition = func(tr breaker.Transition) { last = tr }
			b := breaker.New(c)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			let(t, b)
			time.Sleep(5 * time.Second)
			assert.Equal(t, breaker.Open, b.State())
			assert.Equal(t, breaker.CauseFailureRate, last.Cause)
		})
	})
	t.Run("ends the state before a later probe is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := openFor1s(breaker.HalfOpenConfig{
				ProbeTimeout: 5 * time.Second, MaxWait: 4 * time.Second, MaxWaitTarget: breaker.Closed,
			})
			b := breaker.New(c)
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			let(t, b)
			time.Sleep(5 * time.Second)
			assert.Equal(t, breaker.Closed, b.State())
		})
	})
}

// A breaker that nobody called for a year has gone round millions of times. Each
// look makes up for that in a bounded number of steps, and the result is the same
// as that of looking all the time.
func TestLongIdleRounds(t *testing.T) {
	const year = 365*24*time.Hour + time.Second
	synctest.Test(t, func(t *testing.T) {
		var changes []breaker.Transition
		b := breaker.New(breaker.Config{
			MinCalls:     1,
			OpenFor:      []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
			HalfOpen:     breaker.HalfOpenConfig{MaxWait: 200 * time.Millisecond},
			AutoHalfOpen: true,
			OnTransition: func(tr breaker.Transition) { changes = append(changes, tr) },
		})
		start := time.Now()
		end(t, b, 1, breaker.Failure, 0)
		time.Sleep(year)
		s := b.Snapshot()

		// The third period begins after 1s + 0.2s + 2s + 0.2s, and rounds of
		// 3.2s follow.
		rounds := (year - 3400*time.Millisecond) / (3200 * time.Millisecond)
		into := (year - 3400*time.Millisecond) % (3200 * time.Millisecond)
		assert.Equal(t, int(3+rounds), s.Attempt)
		require.Less(t, into, 3*time.Second)
		assert.Equal(t, breaker.Open, s.State)
		assert.Equal(t, 3*time.Second-into, s.OpenRemaining)

		assert.Less(t, len(changes), 200)
		assert.Equal(t, start.Add(year-into), changes[len(changes)-1].At)
		for i, tr := range changes[1:] {
			require.Equal(t, changes[i].To, tr.From)
			require.False(t, tr.At.Before(changes[i].At))
		}
	})
}

// An open period given by hand is no round like the others.
func TestLongIdleAfterOpeningByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			OpenFor:      []time.Duration{time.Second},
			HalfOpen:     breaker.HalfOpenConfig{MaxWait: time.Second},
			AutoHalfOpen: true,
		})
		require.NoError(t, b.Transition(breaker.Open, 0))
		require.NoError(t, b.Transition(breaker.Open, time.Hour))
		time.Sleep(201*time.Hour + 500*time.Millisecond)
		s := b.Snapshot()
		// An hour, a second of half-open, the second opening, and rounds of 2s in
		// the 200 hours less a second that are left.
		assert.Equal(t, breaker.HalfOpen, s.State)
		assert.Equal(t, 2+(200*3600-1)/2, s.Attempt)
	})
}

// With closed as the target there is one round, and it lies where it was due.
func TestLongIdleThenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last breaker.Transition
		b := breaker.New(breaker.Config{
			MinCalls:     1,
			OpenFor:      []time.Duration{time.Second},
			HalfOpen:     breaker.HalfOpenConfig{MaxWait: time.Second, MaxWaitTarget: breaker.Closed},
			AutoHalfOpen: true,
			OnTransition: func(tr breaker.Transition) { last = tr },
		})
		start := time.Now()
		end(t, b, 1, breaker.Failure, 0)
		time.Sleep(1000 * time.Hour)
		assert.Equal(t, breaker.Closed, b.State())
		assert.Equal(t, 2*time.Second, last.At.Sub(start))
	})
}

// Periods as long as a Duration can hold are for ever, and do not wrap round.
func TestHugeDurations(t *testing.T) {
	const forever = 1<<63 - 1
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			MinCalls:     1,
			OpenFor:      []time.Duration{time.Second, forever},
			HalfOpen:     breaker.HalfOpenConfig{Calls: 1, ProbeTimeout: forever, MaxWait: forever},
			AutoHalfOpen: true,
		})
		end(t, b, 1, breaker.Failure, time.Second)
		time.Sleep(time.Second)
		probe := let(t, b)
		time.Sleep(time.Hour)
		assert.Equal(t, breaker.HalfOpen, b.State())
		probe.Done(t.Context(), breaker.Failure)
		time.Sleep(time.Hour)
		refuse(t, b)
	})
}
