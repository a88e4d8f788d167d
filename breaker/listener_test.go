package breaker_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

func states(changes []breaker.Transition) []breaker.State {
	var to []breaker.State
	for _, tr := range changes {
		to = append(to, tr.To)
	}
	return to
}

func TestListenerIsToldBeforeTheCallReturns(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var got []breaker.Transition
		b := breaker.New(breaker.Config{
			MinCalls:     2,
			OpenFor:      []time.Duration{time.Second, time.Minute},
			HalfOpen:     breaker.HalfOpenConfig{Calls: 1},
			OnTransition: func(tr breaker.Transition) { got = append(got, tr) },
		})
		background := context.Background()
		ctx := func(name string) context.Context { return context.WithValue(background, key{}, name) }
		at := time.Now()

		end(t, b, 1, breaker.Success, 0)
		let(t, b).Done(ctx("trip"), breaker.Failure)
		assert.Equal(t, []breaker.Transition{{
			Context: ctx("trip"), From: breaker.Closed, To: breaker.Open, Cause: breaker.CauseFailureRate,
			FailureRate: 50, SlowCallRate: 0, Calls: 2, OpenFor: time.Second, Attempt: 1, At: at,
		}}, got)

		got = nil
		time.Sleep(2 * time.Second)
		probe, err := b.Allow(ctx("probe"))
		require.NoError(t, err)
		assert.Equal(t, []breaker.Transition{{
			Context: ctx("probe"), From: breaker.Open, To: breaker.HalfOpen, Cause: breaker.CauseOpenElapsed,
			FailureRate: 50, SlowCallRate: 0, Calls: 2, Attempt: 1, At: at.Add(2 * time.Second),
		}}, got)

		got = nil
		probe.Done(ctx("bad"), breaker.Failure)
		assert.Equal(t, []breaker.Transition{{
			Context: ctx("bad"), From: breaker.HalfOpen, To: breaker.Open, Cause: breaker.CauseFailureRate,
			FailureRate: 100, SlowCallRate: 0, Calls: 1, OpenFor: time.Minute, Attempt: 2, At: at.Add(2 * time.Second),
		}}, got)

		time.Sleep(time.Minute)
		probe = let(t, b)
		got = nil
		probe.Done(ctx("good"), breaker.Success)
		assert.Equal(t, []breaker.Transition{{
			Context: ctx("good"), From: breaker.HalfOpen, To: breaker.Closed, Cause: breaker.CauseProbes,
			FailureRate: 0, SlowCallRate: 0, Calls: 1, At: at.Add(62 * time.Second),
		}}, got)

		got = nil
		require.NoError(t, b.Transition(breaker.Open, time.Hour))
		b.Reset()
		b.Reset()
		require.NoError(t, b.Transition(breaker.Closed, 0))
		assert.Equal(t, []breaker.Transition{
			{
				Context: background, From: breaker.Closed, To: breaker.Open, Cause: breaker.CauseForced,
				FailureRate: -1, SlowCallRate: -1, OpenFor: time.Hour, At: at.Add(62 * time.Second),
			},
			{
				Context: background, From: breaker.Open, To: breaker.Closed, Cause: breaker.CauseReset,
				FailureRate: -1, SlowCallRate: -1, At: at.Add(62 * time.Second),
			},
		}, got, "and nothing for what changed nothing")
	})
}

// E52: the listener may call back. What it changes itself comes after.
func TestListenerCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *breaker.Breaker
		var got []breaker.Transition
		nested := 0
		b = breaker.New(breaker.Config{
			MinCalls: 1,
			OpenFor:  []time.Duration{time.Second},
			HalfOpen: breaker.HalfOpenConfig{Calls: 1},
			OnTransition: func(tr breaker.Transition) {
				assert.Zero(t, nested, "a change was delivered inside the delivery of another")
				nested++
				defer func() { nested-- }()
				got = append(got, tr)

				// Another goroutine must get at the breaker meanwhile.
				seen := make(chan breaker.State)
				go func() { seen <- b.State() }()
				assert.Equal(t, b.Snapshot().State, <-seen)

				if len(got) == 1 {
					assert.Equal(t, tr.To, b.State())
					b.Reset()
					call := let(t, b)
					call.Done(t.Context(), breaker.Failure)
					refuse(t, b)
					time.Sleep(time.Second)
					probe := let(t, b).Restart(context.Background())
					assert.False(t, probe.Stale())
					probe.Cancel()
					// What the rest of the deliveries will find:
					require.NoError(t, b.Transition(breaker.Disabled, 0))
				}
			},
		})
		end(t, b, 1, breaker.Failure, 0)
		assert.Equal(t, []breaker.State{
			breaker.Open, breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Disabled,
		}, states(got))
	})
}

// A goroutine in the listener delivers what others change meanwhile; they do not
// wait for it.
func TestListenerStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var got []breaker.Transition
		b := breaker.New(breaker.Config{
			OnTransition: func(tr breaker.Transition) {
				<-gate
				got = append(got, tr)
			},
		})
		flip := func(n int) {
			for i := range n {
				to := breaker.Open
				if i%2 == 1 {
					to = breaker.Closed
				}
				require.NoError(t, b.Transition(to, time.Hour+time.Duration(i)))
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			flip(1)
		}()
		synctest.Wait() // it is in the listener, with change 0
		require.NoError(t, b.Transition(breaker.Closed, 0))
		flip(1500)
		assert.Empty(t, got)
		close(gate)
		<-done

		// Of the 1501 that waited, the last 1000 are left, in order.
		require.Len(t, got, 1+1000)
		for i, tr := range got[2:] {
			require.Equal(t, got[i+1].To, tr.From)
		}
		assert.Equal(t, time.Hour+1498, got[999].OpenFor)
		assert.Equal(t, breaker.Closed, got[1000].To)
	})
}

// E52: a listener that panics, or ends its goroutine, hurts nobody else.
func TestListenerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)

		var got []breaker.Transition
		c := openFor1s(breaker.HalfOpenConfig{Calls: 1})
		c.OnTransition = func(tr breaker.Transition) {
			got = append(got, tr)
			panic("the listener's own")
		}
		b := breaker.New(c)
		assert.NotPanics(t, func() {
			end(t, b, 1, breaker.Failure, 0)
			time.Sleep(time.Second)
			end(t, b, 1, breaker.Success, 0)
		})
		assert.Equal(t, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}, states(got))
		assert.Equal(t, breaker.Closed, b.State())
		assert.Equal(t, 3, bytes.Count(log.Bytes(), []byte("the listener's own")))
		assert.Contains(t, log.String(), "from=half_open to=closed")
		assert.Contains(t, log.String(), "listener_test.go", "the stack is that of the panic")
	})
}

func TestListenerExits(t *testing.T) {
	var b *breaker.Breaker
	var got []breaker.Transition
	b = breaker.New(breaker.Config{
		OnTransition: func(tr breaker.Transition) {
			got = append(got, tr)
			if len(got) == 1 {
				require.NoError(t, b.Transition(breaker.Disabled, 0)) // waits for this one
				runtime.Goexit()
			}
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Transition(breaker.Open, 0)
	}()
	<-done
	assert.Equal(t, []breaker.State{breaker.Open, breaker.Disabled}, states(got))
	b.Reset()
	assert.Equal(t, []breaker.State{breaker.Open, breaker.Disabled, breaker.Closed}, states(got))
}

// E52: 100 goroutines race through a trip and back. Each change is seen once, in
// order, and by one goroutine at a time: got has no lock of its own, and the race
// detector watches.
func TestListenerOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []breaker.Transition
		c := openFor1s(breaker.HalfOpenConfig{Calls: 1})
		c.OnTransition = func(tr breaker.Transition) {
			got = append(got, tr)
			runtime.Gosched()
		}
		b := breaker.New(c)
		for round := range 20 {
			o := breaker.Failure
			if round%2 == 1 {
				o = breaker.Success
			}
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if call, err := b.Allow(t.Context()); err == nil {
						call.Done(t.Context(), o)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		want := []breaker.State{}
		for range 10 {
			want = append(want, breaker.Open, breaker.HalfOpen, breaker.Closed)
		}
		assert.Equal(t, want, states(got))
	})
}
