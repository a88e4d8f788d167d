package breaker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/breaker"
)

// slow800 judges by the overdue rule soon and by the window late: 800ms, 80%, at
// least 20 calls or as many as there can be.
func slow800(limit int) breaker.Config {
	return breaker.Config{SlowCall: 800 * time.Millisecond, MinCalls: 20, OverdueLimit: limit}
}

// hang lets n calls in, which stay in flight.
func hang(t *testing.T, b *breaker.Breaker, n int) []breaker.Call {
	t.Helper()
	var calls []breaker.Call
	for range n {
		calls = append(calls, let(t, b))
	}
	return calls
}

// The upstream hangs, and no call will end for a long time: the next call after
// SlowCall and an eighth is refused, wherever in a slot the calls began, and none
// is before SlowCall is over.
func TestUpstreamHangs(t *testing.T) {
	tests := []struct {
		name        string
		limit, hang int
		trips       bool
	}{
		{"as many as MinCalls", 0, 20, true},
		{"two too few", 0, 18, false},
		{"all that can be in flight", 5, 5, true},
		{"not all that can be in flight", 5, 3, false},
		{"a limit above MinCalls", 50, 20, true},
	}
	const eighth = 100 * time.Millisecond
	for _, test := range tests {
		for offset := time.Duration(0); offset <= eighth; offset += eighth / 4 {
			for _, fast := range []int{0, 100} {
				synctest.Test(t, func(t *testing.T) {
					var last breaker.Transition
					c := slow800(test.limit)
					c.OnTransition = func(tr breaker.Transition) { last = tr }
					b := breaker.New(c)
					time.Sleep(offset)
					end(t, b, fast, breaker.Success, 0) // right before
					began := time.Now()
					hang(t, b, test.hang)

					time.Sleep(800 * time.Millisecond)
					let(t, b).Cancel()
					time.Sleep(eighth)
					if !test.trips {
						let(t, b)
						time.Sleep(time.Hour)
						if !assert.Equal(t, breaker.Closed, b.State(), test.name) {
							return
						}
						assert.Equal(t, test.hang+1, b.Snapshot().Overdue, test.name)
						return
					}
					refuse(t, b)
					assert.Equal(t, breaker.CauseOverdue, last.Cause)
					assert.Equal(t, test.hang, last.Overdue)
					assert.Zero(t, last.Responded)
					assert.Equal(t, fast, last.Calls, "the window is as it was")
					assert.Positive(t, last.At.Sub(began)-800*time.Millisecond)
				})
			}
		}
	}
}

// The rule is evaluated by whoever looks, and the breaker opens at that moment.
func TestOverdueIsSeenByWhoeverLooks(t *testing.T) {
	look := map[string]func(*testing.T, *breaker.Breaker, breaker.Call){
		"allow": func(t *testing.T, b *breaker.Breaker, _ breaker.Call) { refuse(t, b) },
		"state": func(t *testing.T, b *breaker.Breaker, _ breaker.Call) { assert.Equal(t, breaker.Open, b.State()) },
		"snapshot": func(t *testing.T, b *breaker.Breaker, _ breaker.Call) {
			assert.Equal(t, breaker.Open, b.Snapshot().State)
		},
		"remaining": func(t *testing.T, b *breaker.Breaker, _ breaker.Call) { assert.Positive(t, b.Remaining()) },
		"stale":     func(t *testing.T, _ *breaker.Breaker, c breaker.Call) { assert.True(t, c.Stale()) },
		"done":      func(t *testing.T, _ *breaker.Breaker, c breaker.Call) { c.Done(t.Context(), breaker.Success) },
		"cancel":    func(_ *testing.T, _ *breaker.Breaker, c breaker.Call) { c.Cancel() },
		"pause":     func(_ *testing.T, _ *breaker.Breaker, c breaker.Call) { c.Pause(context.Background()) },
		"restart":   func(_ *testing.T, _ *breaker.Breaker, c breaker.Call) { c.Restart(context.Background()) },
		"responded": func(t *testing.T, _ *breaker.Breaker, c breaker.Call) { c.Responded(t.Context()) },
	}
	for name, first := range look {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes []breaker.Transition
				c := slow800(0)
				c.OnTransition = func(tr breaker.Transition) { changes = append(changes, tr) }
				b := breaker.New(c)
				hung := hang(t, b, 21) // one more than enough, which may be the one to look
				time.Sleep(10 * time.Second)
				first(t, b, hung[0])
				require.Len(t, changes, 1)
				assert.True(t, time.Now().Equal(changes[0].At))
				assert.Equal(t, breaker.CauseOverdue, changes[0].Cause)
				assert.Equal(t, 30*time.Second, b.Remaining())

				// What the others have to say is late.
				calls := b.Snapshot().Calls
				for _, call := range hung[1:] {
					assert.True(t, call.Stale())
					call.Done(t.Context(), breaker.Success)
				}
				assert.Equal(t, calls, b.Snapshot().Calls)
			})
		})
	}
}

// Whatever is the first to be done in a slot, the next call finds the rule evaluated.
func TestOverdueAfterWhateverBeganTheSlot(t *testing.T) {
	first := map[string]func(*testing.T, *breaker.Breaker, breaker.Call){
		"RetryAfter": func(_ *testing.T, _ *breaker.Breaker, c breaker.Call) { c.RetryAfter(time.Second) },
		"a stale Done": func(t *testing.T, b *breaker.Breaker, c breaker.Call) {
			c.Done(t.Context(), breaker.Success)
		},
		"Transition": func(t *testing.T, b *breaker.Breaker, _ breaker.Call) {
			// What is closed at a glance is open, from which half-open is legal.
			require.NoError(t, b.Transition(breaker.HalfOpen, 0))
			require.NoError(t, b.Transition(breaker.Open, 0))
		},
		"SetOverdueLimit": func(_ *testing.T, b *breaker.Breaker, _ breaker.Call) { b.SetOverdueLimit(30) },
	}
	for name, first := range first {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := slow800(0)
				c.MaxRetryAfter = time.Minute
				b := breaker.New(c)
				stale := let(t, b)
				b.Reset()
				hung := hang(t, b, 20)
				time.Sleep(900 * time.Millisecond)
				if name == "a stale Done" {
					hung[0] = stale
				}
				first(t, b, hung[0])
				refuse(t, b)
			})
		})
	}
}

// E50b: a call that ends late, and was not one too many while anybody looked, is a
// slow call of the window like any other.
func TestLateCallIsFiledBeforeTheRuleIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []breaker.Cause
		b := breaker.New(breaker.Config{
			SlowCall: 100 * time.Millisecond, MinCalls: 1,
			OnTransition: func(tr breaker.Transition) { causes = append(causes, tr.Cause) },
		})
		end(t, b, 1, breaker.Success, 150*time.Millisecond)
		assert.Equal(t, []breaker.Cause{breaker.CauseSlowCallRate}, causes)
		s := b.Snapshot()
		assert.Equal(t, 1, s.Calls)
		assert.Equal(t, 1, s.Slow)
		assert.Zero(t, s.Failed)
	})
}

// Responses within SlowCall weigh against the overdue calls.
func TestOverdueRate(t *testing.T) {
	for responses, want := range map[int]breaker.State{5: breaker.Open, 6: breaker.Closed} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(slow800(0))
			hang(t, b, 20)
			time.Sleep(500 * time.Millisecond)
			end(t, b, responses, breaker.Success, 0) // 20 of 25 are 80%
			time.Sleep(400 * time.Millisecond)
			assert.Equal(t, want, b.State())

			// They are forgotten SlowCall and at most an eighth after.
			time.Sleep(500 * time.Millisecond)
			assert.Equal(t, breaker.Open, b.State())
		})
	}
}

// What ends the wait for a call, and whether that speaks for the callee.
func TestWhatLeavesTheOverdueCounts(t *testing.T) {
	tests := map[string]struct {
		do              func(*testing.T, breaker.Call)
		late, responded int
	}{
		"nothing":   {func(*testing.T, breaker.Call) {}, 1, 0},
		"success":   {func(t *testing.T, c breaker.Call) { c.Done(t.Context(), breaker.Success) }, 0, 1},
		"failure":   {func(t *testing.T, c breaker.Call) { c.DoneIn(t.Context(), breaker.Failure, 0) }, 0, 1},
		"ignored":   {func(t *testing.T, c breaker.Call) { c.Done(t.Context(), breaker.Ignored) }, 0, 0},
		"cancel":    {func(_ *testing.T, c breaker.Call) { c.Cancel() }, 0, 0},
		"pause":     {func(_ *testing.T, c breaker.Call) { c.Pause(context.Background()) }, 0, 0},
		"restart":   {func(_ *testing.T, c breaker.Call) { c.Restart(context.Background()) }, 0, 0},
		"responded": {func(t *testing.T, c breaker.Call) { c.Responded(t.Context()) }, 0, 1},
		"responded twice": {func(t *testing.T, c breaker.Call) {
			c.Responded(t.Context()).Pause(context.Background()).Responded(t.Context())
		}, 0, 1},
		"responded, then done": {func(t *testing.T, c breaker.Call) {
			c.Responded(t.Context()).Done(t.Context(), breaker.Success)
		}, 0, 1},
		"responded, then cancelled": {func(t *testing.T, c breaker.Call) {
			c.Responded(t.Context()).Cancel()
		}, 0, 1},
		"pause, then cancel": {func(_ *testing.T, c breaker.Call) { c.Pause(context.Background()).Cancel() }, 0, 0},
		"pause, then done": {func(t *testing.T, c breaker.Call) {
			c.Pause(context.Background()).Done(t.Context(), breaker.Failure)
		}, 0, 1},
		"cancelled twice": {func(_ *testing.T, c breaker.Call) { c.Cancel(); c.Cancel() }, 0, 0},
	}
	// A slot is 100ms: in the slot the call began in, in another, and when the call
	// is overdue already.
	for _, wait := range []time.Duration{0, 350 * time.Millisecond, 2 * time.Second} {
		for name, test := range tests {
			t.Run(name+" after "+wait.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := breaker.New(slow800(0))
					call := let(t, b)
					time.Sleep(wait)
					test.do(t, call)
					assert.Equal(t, test.responded, b.Snapshot().Responded)
					time.Sleep(max(0, 900*time.Millisecond-wait)) // from when it began
					late := test.late
					if name == "restart" && wait == 0 {
						late = 1 // that changed nothing
					}
					assert.Equal(t, late, b.Snapshot().Overdue)
					if wait == 0 {
						return
					}
					// Nothing is wrong with the counts afterwards.
					let(t, b)
					time.Sleep(900 * time.Millisecond)
					s := b.Snapshot()
					late++
					if name == "restart" {
						late++
					}
					assert.Equal(t, late, s.Overdue)
					assert.Zero(t, s.Responded)
				})
			})
		}
	}
}

// More calls may come in at once than the gate can count before somebody files them.
func TestOverdueManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow800(0)
		c.InitialState = breaker.MetricsOnly
		b := breaker.New(c)
		hung := hang(t, b, 2000)
		time.Sleep(900 * time.Millisecond)
		assert.Equal(t, 2000, b.Snapshot().Overdue)
		for _, call := range hung {
			call.Cancel()
		}
		assert.Zero(t, b.Snapshot().Overdue)
	})
}

// E50a: a queue in front of the callee makes no call overdue, however long.
func TestQueueingIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(slow800(5))
		var queued []breaker.Call
		for _, call := range hang(t, b, 30) {
			queued = append(queued, call.Pause(context.Background()))
		}
		time.Sleep(time.Minute)
		assert.Equal(t, breaker.Closed, b.State())
		assert.Zero(t, b.Snapshot().Overdue)
		for _, call := range queued[:5] {
			call.Restart(context.Background())
		}
		time.Sleep(800 * time.Millisecond)
		assert.Equal(t, breaker.Closed, b.State())
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, breaker.Open, b.State())
	})
}

func TestOverdueOff(t *testing.T) {
	configs := map[string]breaker.Config{
		"NoOverdue":   {SlowCall: 800 * time.Millisecond, NoOverdue: true, MinCalls: 1},
		"no SlowCall": {MinCalls: 1},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := breaker.New(c)
				call := hang(t, b, 50)[0]
				time.Sleep(time.Hour)
				assert.Equal(t, breaker.Closed, b.State())
				call = call.Pause(context.Background()).Responded(t.Context())
				assert.False(t, call.Stale())
				s := b.Snapshot()
				assert.Zero(t, s.Overdue)
				assert.Zero(t, s.Responded)
				call = call.Restart(context.Background())
				time.Sleep(800 * time.Millisecond)
				call.Done(t.Context(), breaker.Success)
				assert.Zero(t, b.Snapshot().Slow, "Restart began its time anew")
			})
		})
	}
}

// Metrics only shows what it sees and does not trip; disabled does neither.
func TestOverdueInForcedStates(t *testing.T) {
	for state, want := range map[breaker.State]int{breaker.MetricsOnly: 30, breaker.Disabled: 0} {
		synctest.Test(t, func(t *testing.T) {
			c := slow800(1)
			c.InitialState = state
			b := breaker.New(c)
			hang(t, b, 30)
			time.Sleep(time.Hour)
			s := b.Snapshot()
			assert.Equal(t, state, s.State)
			assert.Equal(t, want, s.Overdue)

			// Calls of that state are none of the next.
			require.NoError(t, b.Transition(breaker.Closed, 0))
			time.Sleep(time.Hour)
			assert.Equal(t, breaker.Closed, b.State())
			assert.Zero(t, b.Snapshot().Overdue)
		})
	}
}

func TestSetOverdueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []breaker.Cause
		c := slow800(50)
		c.OnTransition = func(tr breaker.Transition) { causes = append(causes, tr.Cause) }
		b := breaker.New(c)
		hang(t, b, 10)
		time.Sleep(time.Second)
		b.SetOverdueLimit(11)
		assert.Equal(t, breaker.Closed, b.State())
		b.SetOverdueLimit(0)
		assert.Equal(t, breaker.Closed, b.State())
		b.SetOverdueLimit(10)
		assert.Equal(t, []breaker.Cause{breaker.CauseOverdue}, causes)
		assert.Equal(t, 30*time.Second, b.Remaining(), "opened by the new limit, not before it")
		assert.PanicsWithValue(t, "breaker: bad OverdueLimit: -1", func() { b.SetOverdueLimit(-1) })
	})
}

func TestOverdueProbe(t *testing.T) {
	conf := func(probes int) breaker.Config {
		return breaker.Config{
			InitialState: breaker.HalfOpen,
			SlowCall:     800 * time.Millisecond,
			MinCalls:     4,
			HalfOpen:     breaker.HalfOpenConfig{Calls: probes},
		}
	}
	t.Run("counts as slow at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last breaker.Transition
			c := conf(5)
			c.OnTransition = func(tr breaker.Transition) { last = tr }
			b := breaker.New(c)
			hang(t, b, 4)
			time.Sleep(800 * time.Millisecond)
			assert.Equal(t, breaker.HalfOpen, b.State())
			time.Sleep(time.Nanosecond)
			assert.Equal(t, breaker.Open, b.State())
			last.Context = nil
			last.At = time.Time{}
			assert.Equal(t, breaker.Transition{
				From: breaker.HalfOpen, To: breaker.Open, Cause: breaker.CauseOverdue,
				FailureRate: 0, SlowCallRate: 100, Calls: 4, Overdue: 4, OpenFor: 30 * time.Second, Attempt: 2,
			}, last)
		})
	})
	t.Run("together with those that have ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(conf(5))
			end(t, b, 1, breaker.Success, 0)
			hang(t, b, 4) // 4 of 5 are 80%
			time.Sleep(900 * time.Millisecond)
			assert.Equal(t, breaker.Open, b.State())
			s := b.Snapshot()
			assert.Equal(t, 5, s.Calls)
			assert.Equal(t, 4, s.Slow)
		})
	})
	t.Run("leaves too few to be sure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := conf(4)
			c.SlowCallRate = 75
			b := breaker.New(c)
			hung := hang(t, b, 3)
			time.Sleep(time.Second)
			assert.Equal(t, breaker.HalfOpen, b.State())
			assert.Equal(t, 3, b.Snapshot().Overdue)
			end(t, b, 1, breaker.Failure, 0) // now they are enough
			assert.Equal(t, breaker.Open, b.State())
			assert.True(t, hung[0].Stale())
		})
	})
	t.Run("never closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := conf(4)
			c.SlowCallRate = 100
			b := breaker.New(c)
			hung := hang(t, b, 1)
			end(t, b, 3, breaker.Success, 0)
			time.Sleep(time.Second)
			assert.Equal(t, breaker.HalfOpen, b.State(), "one slow of four would close")
			hung[0].Done(t.Context(), breaker.Success)
			assert.Equal(t, breaker.Closed, b.State())
		})
	})
	t.Run("makes a failure rate certain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last breaker.Transition
			c := conf(4)
			c.OnTransition = func(tr breaker.Transition) { last = tr }
			b := breaker.New(c)
			hang(t, b, 1)
			end(t, b, 3, breaker.Failure, 0)
			time.Sleep(time.Second)
			assert.Equal(t, breaker.Open, b.State(), "3 of 4 have failed, whatever the last does")
			assert.Equal(t, breaker.CauseFailureRate, last.Cause)
			assert.EqualValues(t, 75, last.FailureRate)
		})
	})
	t.Run("not if it has responded, or waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(conf(4))
			for i, probe := range hang(t, b, 4) {
				if i%2 == 0 {
					probe.Responded(t.Context())
				} else {
					probe.Pause(context.Background())
				}
			}
			time.Sleep(20 * time.Second)
			assert.Equal(t, breaker.HalfOpen, b.State())
			assert.Zero(t, b.Snapshot().Overdue)
		})
	})
}

// A probe that has responded has as long again to end.
func TestProbeTimeoutAfterResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{
			InitialState: breaker.HalfOpen,
			MinCalls:     1,
			HalfOpen:     breaker.HalfOpenConfig{Calls: 1, ProbeTimeout: 5 * time.Second},
		})
		probe := let(t, b)
		time.Sleep(4 * time.Second)
		probe = probe.Responded(t.Context())
		time.Sleep(4 * time.Second)
		assert.False(t, probe.Stale())
		probe = probe.Responded(t.Context()) // a second time changes nothing
		time.Sleep(time.Second - 1)
		assert.Equal(t, breaker.HalfOpen, b.State())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, breaker.Open, b.State())
		probe.Done(t.Context(), breaker.Success)
		assert.Equal(t, breaker.Open, b.State())
	})
}

// Limits as long as a Duration can hold, and as short, and a look after a long time.
func TestOverdueExtremes(t *testing.T) {
	const forever = 1<<63 - 1
	for _, slow := range []time.Duration{1, 7, 9, time.Microsecond, forever - 8, forever} {
		synctest.Test(t, func(t *testing.T) {
			for _, state := range []breaker.State{breaker.Closed, breaker.HalfOpen} {
				b := breaker.New(breaker.Config{
					SlowCall: slow, MinCalls: 3, InitialState: state,
					OpenFor:  []time.Duration{forever},
					HalfOpen: breaker.HalfOpenConfig{Calls: 3, ProbeTimeout: -1},
				})
				time.Sleep(5 * time.Nanosecond)
				hung := hang(t, b, 3)
				time.Sleep(slow / 2)
				require.Equal(t, state, b.State())
				if slow > time.Hour {
					hung[0].Done(t.Context(), breaker.Success)
					require.Equal(t, state, b.State())
					continue
				}
				time.Sleep(30 * 365 * 24 * time.Hour)
				require.Equal(t, breaker.Open, b.State())
			}
		})
	}
}

// The rule, from a list of all calls, to the nanosecond: the breaker trips only if
// the rule holds, and at the latest when it has held for an eighth of SlowCall in
// which no call has ended.
func TestOverdueAgainstTheRule(t *testing.T) {
	type call struct {
		call         breaker.Call
		began, ended time.Duration // ended -1: has not
		counts       bool          // its end speaks for the callee
	}
	rapid.Check(t, func(t *rapid.T) {
		slow := time.Duration(rapid.IntRange(20, 2000).Draw(t, "slowCall"))
		enough := rapid.IntRange(1, 5).Draw(t, "enough")
		rate := float64(rapid.IntRange(1, 100).Draw(t, "rate"))
		rapid.SyncTest(t, func(t *rapid.T) {
			start := time.Now()
			tripped := time.Duration(-1)
			b := breaker.New(breaker.Config{
				SlowCall: slow, SlowCallRate: rate,
				// The window never has enough calls to trip.
				Window: breaker.Window{Calls: 1000}, MinCalls: 1000, OverdueLimit: enough,
				OnTransition: func(tr breaker.Transition) {
					require.Equal(t, breaker.CauseOverdue, tr.Cause)
					tripped = tr.At.Sub(start)
				},
			})
			var calls []*call
			holds := func(at time.Duration) bool {
				late, prompt := 0, 0
				for _, c := range calls {
					switch {
					case c.began <= at && (c.ended < 0 || c.ended > at):
						if at-c.began > slow {
							late++
						}
					case c.ended >= 0 && c.counts && at-c.ended <= slow:
						prompt++
					}
				}
				return late >= enough && 100*float64(late)/float64(late+prompt) >= rate
			}
			eighth := slow/8 + 1 + 8 // rounded to whole nanoseconds
			for range rapid.IntRange(1, 60).Draw(t, "events") {
				time.Sleep(time.Duration(rapid.IntRange(0, int(slow)/2).Draw(t, "wait")))
				now := time.Since(start)
				state := b.State()
				if state == breaker.Open {
					require.True(t, holds(tripped), "tripped at %v", tripped)
					return
				}
				since := now - eighth
				if since >= 0 && holds(since) && !slices.ContainsFunc(calls, func(c *call) bool {
					return c.ended >= since
				}) {
					require.Failf(t, "closed", "at %v, the rule holds since %v", now, since)
				}
				inFlight := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.ended >= 0 })
				if len(inFlight) == 0 || rapid.Bool().Draw(t, "begin") {
					c, err := b.Allow(context.Background())
					require.NoError(t, err)
					calls = append(calls, &call{call: c, began: now, ended: -1})
					continue
				}
				c := rapid.SampledFrom(inFlight).Draw(t, "end")
				c.counts = rapid.Bool().Draw(t, "counts")
				c.ended = now
				if c.counts {
					c.call.Done(context.Background(), breaker.Success)
				} else {
					c.call.Cancel()
				}
			}
		})
	})
}
