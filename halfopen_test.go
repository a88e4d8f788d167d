package watertight_test

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

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
)

// E44: a hundred calls at the instant at which the open period ends. As many
// pass as there are probes, the others are refused at once, and each change of
// state is told once.
func TestHalfOpenAdmitsItsProbesAndNoMore(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		want   []breaker.State
	}{
		{"good probes", 200, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}},
		{"bad probes", 500, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Open}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []breaker.State // in order, one at a time
				g := guard(t, `
version: 1
policies:
  - name: all
    side: client
    bulkhead: {maxConcurrent: 100, maxQueue: 100, maxWait: 1m}
    breaker: {minCalls: 4, openFor: 1s, halfOpen: {calls: 2}}
`, watertight.WithHooks(watertight.Hooks{
					Transition: func(_ context.Context, e watertight.TransitionEvent) { told = append(told, e.To) },
				}))
				for range 4 {
					c := admit(t, g, to("a"))
					c.SettleFailure()
					c.Release()
				}
				gate := make(chan struct{})
				var inside, open atomic.Int64
				for range 100 {
					go func() {
						time.Sleep(time.Second)
						start := time.Now()
						c, err := g.Admit(t.Context(), to("a"))
						if err != nil {
							assert.ErrorIs(t, err, breaker.ErrOpen)
							assert.Zero(t, time.Since(start))
							open.Add(1)
							return
						}
						inside.Add(1)
						<-gate
						c.SettleStatus(test.status)
						c.Release()
					}()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				assert.EqualValues(t, 2, inside.Load())
				assert.EqualValues(t, 98, open.Load())
				close(gate)
				synctest.Wait()
				assert.Equal(t, test.want, told)
				assert.EqualValues(t, 98, compartment(t, g, "all", "http://a:80").Rejected["open"])
			})
		})
	}
}

// E43, E44: those who queued while the breaker went through open to half-open
// are asked again as their permits come, and are probes, or not, like anybody.
func TestWaitersBecomeProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 4, maxQueue: 100, maxWait: 1m}
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 2}}
`)
		var held []*watertight.Call
		for range 4 {
			held = append(held, admit(t, g, to("a")))
		}
		gate := make(chan struct{})
		var inside, open atomic.Int64
		for range 10 {
			go func() {
				c, err := g.Admit(t.Context(), to("a"))
				if err != nil {
					assert.ErrorIs(t, err, breaker.ErrOpen)
					open.Add(1)
					return
				}
				inside.Add(1)
				<-gate
				c.SettleStatus(200)
				c.Release()
			}()
		}
		synctest.Wait()
		held[0].SettleFailure()
		time.Sleep(time.Second) // open, and due to be half-open
		for _, c := range held {
			c.Release()
		}
		synctest.Wait()
		assert.EqualValues(t, 2, inside.Load(), "probes")
		assert.EqualValues(t, 8, open.Load())
		close(gate)
		synctest.Wait()
		c := compartment(t, g, "all", "")
		assert.Equal(t, "closed", c.Breaker.State)
		assert.Zero(t, c.Bulkhead.InFlight)
		assert.Zero(t, c.Bulkhead.Queued)
		assert.EqualValues(t, 6, c.Granted)
	})
}

// E44, E52, invariant 4, with real goroutines: never more probes than there are,
// and every change of state told once and in order, to a listener that asks back.
func TestHalfOpenUnderLoad(t *testing.T) {
	const probes, rounds, goroutines, calls = 3, 30, 8, 100 // not more changes in a round than a breaker keeps for its listener
	reopened := 0
	for range rounds {
		var g *watertight.Guard
		var told []breaker.Transition // never two at once; the race detector sees to it
		g = guard(t, `
version: 1
policies:
  - name: all
    side: client
    bulkhead: {maxConcurrent: 6, maxQueue: 4, maxWait: 1ms}
    breaker: {minCalls: 2, window: {calls: 4}, openFor: 1us, halfOpen: {calls: 3, probeTimeout: 1h}}
`, watertight.WithHooks(watertight.Hooks{
			Transition: func(_ context.Context, e watertight.TransitionEvent) {
				told = append(told, e.Transition)
				_ = g.Snapshot()
				if c, err := g.Admit(context.Background(), to("elsewhere")); err == nil {
					c.Release()
				}
			},
		}))
		var wg sync.WaitGroup
		var turn atomic.Int64
		for range goroutines {
			wg.Go(func() {
				for range calls {
					c, err := g.Admit(context.Background(), to("a"))
					if err != nil {
						continue
					}
					runtime.Gosched()
					switch turn.Add(1) / 32 % 3 { // a while of each
					case 0:
						c.SettleFailure()
					case 1:
						c.SettleStatus(200)
					}
					c.Release()
				}
			})
		}
		wg.Wait()
		at := breaker.Closed
		for i, tr := range told {
			require.Equal(t, at, tr.From, "transition %d", i)
			at = tr.To
			if tr.From == breaker.HalfOpen {
				require.LessOrEqual(t, tr.Calls, probes, "transition %d", i)
				reopened++
			}
		}
		c := compartment(t, g, "all", "http://a:80")
		require.Equal(t, at.String(), c.Breaker.State)
		require.Zero(t, c.InFlight)
	}
	assert.Positive(t, reopened)
}
