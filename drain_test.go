package watertight_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

const drained = `
version: 1
policies:
  - {name: health, match: [{path: /healthz}], exempt: true}
  - {name: slow, match: [{path: /slow}, {host: up}], bulkhead: {maxConcurrent: 1, maxWait: 1h}}
  - {name: one, match: [{path: /one}], per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}
  - {name: watched, match: [{path: /watched}], breaker: {}}
`

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, drained)
		require.True(t, g.Ready())
		inside := admit(t, g, on("/slow"))
		unmatched := admit(t, g, on("/other"))
		one := admit(t, g, on("/one"))
		queued := make(chan error, 2)
		for _, path := range []string{"/slow", "/one"} {
			go func() {
				_, err := g.Admit(t.Context(), on(path))
				queued <- err
			}()
		}
		synctest.Wait()

		done := make(chan error, 1)
		go func() { done <- g.Drain(t.Context()) }()
		synctest.Wait()
		assert.False(t, g.Ready())
		require.ErrorIs(t, <-queued, bulkhead.ErrClosed, "whoever queues is refused")
		require.ErrorIs(t, <-queued, bulkhead.ErrClosed)
		for _, path := range []string{"/slow", "/watched", "/other"} {
			rej := refused(t, g, on(path), bulkhead.ErrClosed)
			assert.Equal(t, policy.ReasonDraining, rej.Reason, path)
			assert.Equal(t, 503, rej.StatusCode())
			assert.Equal(t, time.Second, rej.RetryAfter)
		}
		admit(t, g, on("/healthz")).Release()

		call := admit(t, g, to("up")) // what is inside still needs its upstreams
		unmatched.Release()
		inside.Release()
		one.Release()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Drain returned %v with a client call in flight", err)
		default:
		}
		refused(t, g, to("up"), bulkhead.ErrClosed)
		refused(t, g, to("anywhere"), bulkhead.ErrClosed)
		call.Release()
		require.NoError(t, <-done)
		require.NoError(t, g.Drain(t.Context()))
		assert.EqualValues(t, 2, compartment(t, g, "slow", "/slow").Rejected["draining"])
	})
}

func TestDrainEndsWithItsContextAndMayBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, drained)
		inside := admit(t, g, on("/other"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Drain(ctx), context.DeadlineExceeded)
		admit(t, g, to("up")).Release() // the client side waits for the server side
		inside.Release()
		require.NoError(t, g.Drain(t.Context()))
	})
}

// Nobody is inside once Drain has returned, whatever the interleaving. On more
// threads than processors a goroutine also pauses where it never would by
// itself, such as between two atomic operations.
func TestDrainLeavesNobodyInside(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	rounds := 60_000
	if raceEnabled {
		rounds = 5_000
	}
	for round := range rounds {
		g := watertight.New(nil)
		var returned atomic.Bool
		var after atomic.Int64
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for {
					c, err := g.Admit(context.Background(), on("/"))
					if err != nil {
						return
					}
					if returned.Load() {
						after.Add(1)
					}
					c.Release()
				}
			})
		}
		for range round % 200 {
			_ = g.Ready()
		}
		require.NoError(t, g.Drain(t.Context()))
		returned.Store(true)
		wg.Wait()
		require.Zero(t, after.Load(), "calls inside after Drain in round %d", round)
	}
}

// The same for compartments that come into being while Drain shuts them: whoever
// waits is refused, and nobody is inside, on either side, once Drain returns.
func TestDrainMeetsNewCompartments(t *testing.T) {
	for range 50 {
		g := guard(t, `
version: 1
defaults: {maxCompartments: 8}
policies:
  - {name: routes, side: server, bulkhead: {maxConcurrent: 1, maxQueue: 9, maxWait: 1h}, breaker: {}}
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1, maxQueue: 9, maxWait: 1h}}
`)
		var returned atomic.Bool
		var after atomic.Int64
		var wg sync.WaitGroup
		for n := range 6 {
			wg.Go(func() {
				for i := 0; ; i++ {
					c, err := g.Admit(context.Background(), on(fmt.Sprint("/", n, "/", i%16)))
					if err != nil {
						assert.ErrorIs(t, err, bulkhead.ErrClosed)
						return
					}
					// Inside, its upstreams are there for it.
					up, err := g.Admit(context.Background(), to(fmt.Sprint("up", i%20)))
					if assert.NoError(t, err) {
						runtime.Gosched()
						up.Release()
					}
					if returned.Load() {
						after.Add(1)
					}
					c.SettleStatus(200)
					c.Release()
				}
			})
		}
		wg.Go(func() { // waits in a queue that is shut
			for {
				c, err := g.Admit(context.Background(), on("/queue"))
				if err != nil {
					assert.ErrorIs(t, err, bulkhead.ErrClosed)
					return
				}
				runtime.Gosched()
				c.Release()
			}
		})
		runtime.Gosched()
		require.NoError(t, g.Drain(t.Context()))
		returned.Store(true)
		wg.Wait()
		require.Zero(t, after.Load())
		refused(t, g, on("/new"), bulkhead.ErrClosed)
		refused(t, g, to("new"), bulkhead.ErrClosed)
		for _, c := range g.Snapshot().Compartments {
			require.Zero(t, c.InFlight, c.Key)
		}
	}
}

// Several may drain, each for as long as it likes.
func TestDrainByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, drained)
		server, client := admit(t, g, on("/other")), admit(t, g, to("up"))
		results := make(chan error, 3)
		for _, d := range []time.Duration{time.Second, 3 * time.Second, time.Hour} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				results <- g.Drain(ctx)
			}()
		}
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, <-results, context.DeadlineExceeded, "in the server's phase")
		server.Release()
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, <-results, context.DeadlineExceeded, "in the client's")
		client.Release()
		require.NoError(t, <-results)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, g.Drain(dead), "it is empty whatever ctx says")
	})
}

// Exempt calls come and go as they like.
func TestDrainDoesNotWaitForExemptCalls(t *testing.T) {
	g := guard(t, drained)
	health := admit(t, g, on("/healthz"))
	require.NoError(t, g.Drain(t.Context()))
	admit(t, g, on("/healthz")).Release()
	assert.EqualValues(t, 1, compartment(t, g, "health", "").InFlight)
	health.Release()
}

// Who would not be limited is told to hooks when draining refuses it, under what
// Arrive made.
func TestDrainTellsOfTheUnmatched(t *testing.T) {
	var s story
	g := guard(t, drained, watertight.WithHooks(s.hooks("one")))
	require.NoError(t, g.Drain(t.Context()))
	refused(t, g, on("/other"), bulkhead.ErrClosed)
	require.Len(t, s.events, 1)
	e := s.events[0].(watertight.RejectEvent)
	assert.Equal(t, policy.ReasonDraining, e.Reason)
	assert.Equal(t, "(unmatched)", e.Policy)
	assert.Zero(t, e.Limit)
	assert.Equal(t, "one", s.ctxs[0].Value(ctxKey("arrive")))
}
