package breaker_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// checkChain checks that each change begins where the one before it ended.
func checkChain(t *testing.T, from breaker.State, changes []breaker.Transition) {
	t.Helper()
	for i, tr := range changes {
		require.Equalf(t, from, tr.From, "change %d: %v to %v", i, tr.From, tr.To)
		require.NotEqual(t, tr.From, tr.To)
		from = tr.To
	}
}

// keepUp waits while the listener is so far behind, with its goroutine off the
// processor, that changes might be dropped: then no chain could be checked.
func keepUp(b *breaker.Breaker) {
	for b.Pending() > 500 {
		runtime.Gosched()
	}
}

// The probes in flight never exceed the cap, whatever the goroutines do. All
// probes have to end before they are judged, so a probe in flight is always one of
// the present half-open, and one counter can count them.
func TestHammerProbes(t *testing.T) {
	const most, goroutines, calls = 3, 16, 5000
	var changes []breaker.Transition // the race detector checks that no lock is needed
	b := breaker.New(breaker.Config{
		Window:   breaker.Window{Calls: 10},
		MinCalls: most,
		OpenFor:  []time.Duration{time.Microsecond},
		HalfOpen: breaker.HalfOpenConfig{Calls: most, ProbeTimeout: -1},
		OnTransition: func(tr breaker.Transition) {
			changes = append(changes, tr)
		},
	})
	var inFlight, highest, probes atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range calls {
				keepUp(b)
				call, err := b.Allow(t.Context())
				if err != nil {
					runtime.Gosched()
					continue
				}
				probe := call.State() == breaker.HalfOpen
				if probe {
					probes.Add(1)
					n := inFlight.Add(1)
					for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
					}
				}
				runtime.Gosched()
				if probe {
					inFlight.Add(-1)
				}
				switch rand.IntN(4) {
				case 0:
					call.Cancel()
				case 1:
					call.Done(t.Context(), breaker.Failure)
				default:
					call.Done(t.Context(), breaker.Success)
				}
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, highest.Load(), int64(most))
	assert.Positive(t, probes.Load())
	checkChain(t, breaker.Closed, changes)

	// Nothing is in flight, so nothing may be missing.
	if s := b.Snapshot(); s.State == breaker.HalfOpen {
		assert.Equal(t, most, s.ProbesLeft+s.Calls)
	}
}

// Everything at once: hands, resets, other configurations, limits that run out,
// listeners that call back.
func TestHammerAll(t *testing.T) {
	const most, window, goroutines, calls = 3, 20, 16, 2000
	for _, w := range []breaker.Window{{Calls: window}, {Time: time.Millisecond}} {
		var changes []breaker.Transition
		var b *breaker.Breaker
		c := breaker.Config{
			Window:       w,
			MinCalls:     5,
			SlowCall:     50 * time.Microsecond,
			OpenFor:      []time.Duration{time.Microsecond, 20 * time.Microsecond},
			AutoHalfOpen: true,
			HalfOpen:     breaker.HalfOpenConfig{Calls: most, ProbeTimeout: 20 * time.Microsecond, MaxWait: 50 * time.Microsecond},
			OnTransition: func(tr breaker.Transition) {
				changes = append(changes, tr)
				if len(changes)%50 == 0 {
					b.Reset()
				}
			},
		}
		b = breaker.New(c)
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range calls {
					keepUp(b)
					switch rand.IntN(40) {
					case 0:
						b.Reset()
					case 1:
						_ = b.Transition(breaker.State(1+rand.IntN(5)), 0)
					case 2:
						other := c
						other.MinCalls, other.NoOverdue = 1+rand.IntN(5), rand.IntN(3) == 0
						other.Window.Calls -= rand.IntN(window) * min(1, w.Calls)
						other.AutoHalfOpen, other.HalfOpen.Calls = rand.IntN(2) == 0, 1+rand.IntN(most)
						b.Configure(other)
					default:
						s := b.Snapshot()
						if s.Calls < 0 || s.Failed < 0 || s.Slow < 0 || s.Failed > s.Calls || s.Slow > s.Calls ||
							s.ProbesLeft < 0 || s.ProbesLeft > most || s.OpenRemaining < 0 || s.OpenRemaining > 20*time.Microsecond ||
							w.Calls > 0 && s.Calls > window {
							t.Errorf("Snapshot = %+v", s)
						}
						call, err := b.Allow(t.Context())
						if err != nil {
							if call.Remaining() < 0 || call.Remaining() > 20*time.Microsecond {
								t.Errorf("Remaining = %v", call.Remaining())
							}
							continue
						}
						runtime.Gosched()
						call = call.Restart(context.Background())
						call.Stale()
						call.Done(t.Context(), breaker.Outcome(1+rand.IntN(3)))
					}
				}
			})
		}
		all.Wait()
		assert.NotEmpty(t, changes)
		checkChain(t, breaker.Closed, changes)
		b.Reset()
		let(t, b).Cancel()
	}
}

// However the goroutines, the slots and the periods overtake each other, each call
// in flight is counted once, and each that has ended not at all: what the overdue
// rule has counted in the end is exactly the calls that are left.
func TestHammerOverdueCounts(t *testing.T) {
	overtake := map[string]func(b *breaker.Breaker, clock *atomic.Int64){
		"slots": func(b *breaker.Breaker, clock *atomic.Int64) {
			// Moves the clock on, so that the gate has to be opened anew.
			if call, err := b.AllowAt(context.Background(), b.At(time.Duration(clock.Add(int64(time.Second))))); err == nil {
				call.Cancel()
			}
		},
		"periods": func(b *breaker.Breaker, _ *atomic.Int64) { b.Reset() },
	}
	for name, overtake := range overtake {
		t.Run(name, func(t *testing.T) {
			rounds := 10
			if raceDetector {
				rounds = 2
			}
			for range rounds {
				b := breaker.New(breaker.Config{
					SlowCall: 8 * time.Second, // slots of a second
					Window:   breaker.Window{Time: time.Second},
					MinCalls: 1 << 20, // nothing trips
				})
				var clock atomic.Int64
				now := func() time.Time { return b.At(time.Duration(clock.Load())) }
				held := make([][]breaker.Call, 4)
				var all sync.WaitGroup
				for i := range held {
					all.Go(func() {
						for range 20000 {
							call, err := b.AllowAt(t.Context(), now())
							if err != nil {
								t.Error(err)
								return
							}
							switch rand.IntN(32) {
							case 7, 8, 9, 10:
								overtake(b, &clock)
								call.Cancel()
							case 0:
								held[i] = append(held[i], call)
							case 1:
								held[i] = append(held[i], call.Restart(context.Background()))
							case 2:
								call.Pause(context.Background())
							case 3:
								call.Responded(t.Context())
							case 4:
								call.Restart(context.Background()).Cancel()
							case 5:
								call.Pause(context.Background()).Restart(context.Background()).Cancel()
							case 6:
								runtime.Gosched()
								call.Cancel()
							default:
								call.DoneAt(t.Context(), breaker.Ignored, now())
							}
						}
					})
				}
				all.Wait()

				inFlight := 0
				for _, calls := range held {
					for _, call := range calls {
						if !call.Stale() {
							inFlight++
						}
					}
				}
				_, err := b.AllowAt(t.Context(), now().Add(time.Hour))
				require.NoError(t, err)
				s := b.Snapshot()
				require.Equal(t, inFlight, s.Overdue)
				require.Zero(t, s.Responded)
			}
		})
	}
}

// While a hand changes the state back and forth, nobody is refused by one period for
// as long as another lasts, nor let in by one into another.
func TestHammerGate(t *testing.T) {
	const goroutines, rounds = 2, 50000
	for _, slow := range []time.Duration{0, time.Hour} { // without the overdue rule, and with it
		for _, other := range []breaker.State{breaker.Open, breaker.Closed} {
			b := breaker.New(breaker.Config{SlowCall: slow, InitialState: breaker.ForcedOpen})
			var refused atomic.Uint64
			var over atomic.Bool
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for !over.Load() {
						call, err := b.Allow(t.Context())
						switch {
						case err == nil:
							if call.Slot()%2 == 1 { // that of a forced open
								t.Error("let in by a period that lets nobody in")
								return
							}
						case call.Remaining() > 10*time.Second:
							t.Errorf("refused for %v", call.Remaining())
							return
						default:
							refused.Add(1)
						}
					}
				})
			}
			for range rounds {
				_ = b.Transition(other, 10*time.Second)
				_ = b.Transition(breaker.ForcedOpen, 0)
			}
			over.Store(true)
			all.Wait()
			assert.Equal(t, refused.Load(), b.Snapshot().Denied)
		}
	}
}

// However the goroutines meet at the gate, no outcome is lost, filed twice, or taken for
// another, and the last of them are what is in a count window.
func TestHammerOutcomes(t *testing.T) {
	const goroutines, size = 8, 960
	calls := 150000 // divisible by 3, as size is
	if raceDetector {
		calls = 30000
	}
	windows := map[string]breaker.Window{"count": {Calls: size}, "time": {Time: time.Hour}}
	for name, window := range windows {
		for _, slow := range []time.Duration{0, time.Hour} {
			t.Run(name+" "+slow.String(), func(t *testing.T) {
				b := breaker.New(breaker.Config{Window: window, MinCalls: 1, SlowCall: slow, InitialState: breaker.MetricsOnly})
				now := time.Now()
				// round has each goroutine make n calls, of which every third fails. Some end
				// only after all have begun, and some end under the lock.
				round := func(n int) {
					var all sync.WaitGroup
					for range goroutines {
						all.Go(func() {
							var held []breaker.Call
							ended := 0
							finish := func(call breaker.Call) {
								o := breaker.Success
								if ended%3 == 0 {
									o = breaker.Failure
								}
								if rand.IntN(50) == 0 {
									call.DoneLocking(t.Context(), o, now)
								} else {
									call.DoneAt(t.Context(), o, now)
								}
								ended++
							}
							for range n {
								call, err := b.AllowAt(t.Context(), now)
								if err != nil {
									t.Error(err)
									return
								}
								switch rand.IntN(100) {
								case 0:
									held = append(held, call)
									continue
								case 1:
									runtime.Gosched()
								case 2:
									s := b.Snapshot()
									if s.Failed > s.Calls || s.Slow > 0 || s.Calls < min(ended, size) {
										t.Errorf("Snapshot after %d calls = %+v", ended, s)
									}
								}
								finish(call)
							}
							for _, call := range held {
								finish(call)
							}
						})
					}
					all.Wait()
				}
				check := func(calls, failed, responded int) {
					t.Helper()
					s := b.Snapshot()
					require.Equal(t, calls, s.Calls)
					require.Equal(t, failed, s.Failed)
					if slow > 0 {
						require.Equal(t, responded, s.Responded)
					}
				}
				round(calls)
				if window.Time > 0 {
					check(goroutines*calls, goroutines*calls/3, goroutines*calls)
					return
				}
				round(size / goroutines)
				check(size, size/3, goroutines*calls+size)
			})
		}
	}
}

// Nobody is let in once the outcome that trips the breaker was returned from, and nobody
// refused before it was given, though most outcomes never see the lock.
func TestHammerTrip(t *testing.T) {
	const goroutines, well, enough = 4, 50, 75 // 75 of 125 are 60%
	rounds := 2000
	if raceDetector {
		rounds = 200
	}
	now := time.Now().Add(time.Minute) // which is after New, for all of them
	for range rounds {
		b := breaker.New(breaker.Config{
			Window: breaker.Window{Calls: 2 * (well + enough)}, FailureRate: 60,
			SlowCall: time.Hour, OpenFor: []time.Duration{time.Hour},
		})
		for range well {
			let(t, b).DoneAt(t.Context(), breaker.Success, now)
		}
		var given, returned atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for {
					before := returned.Load()
					call, err := b.AllowAt(t.Context(), now)
					if err != nil {
						if n := given.Load(); n < enough {
							t.Errorf("refused after %d failures at most", n)
						}
						return
					}
					if before >= enough {
						t.Errorf("let in after %d failures at least", before)
						return
					}
					given.Add(1)
					call.DoneAt(t.Context(), breaker.Failure, now)
					returned.Add(1)
				}
			})
		}
		all.Wait()
		s := b.Snapshot()
		require.Equal(t, breaker.Open, s.State)
		require.Equal(t, enough, s.Failed)
		require.Equal(t, well+enough, s.Calls)
	}
}
