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
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

const drained = `
version: 1
policies:
  - {name: health, match: [{path: /healthz}], exempt: true}
  - {name: slow, match: [{path: /slow}, {host: up}], bulkhead: {maxConcurrent: 1, maxWait: 1h}}
  - {name: watched, match: [{path: /watched}], breaker: {}}
`

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, drained)
		require.True(t, g.Ready())
		inside := admit(t, g, on("/slow"))
		unmatched := admit(t, g, on("/other"))
		queued := make(chan error, 1)
		go func() {
			_, err := g.Admit(t.Context(), on("/slow"))
			queued <- err
		}()
		synctest.Wait()

		done := make(chan error, 1)
		go func() { done <- g.Drain(t.Context()) }()
		synctest.Wait()
		assert.False(t, g.Ready())
		require.ErrorIs(t, <-queued, bulkhead.ErrClosed, "whoever queues is refused")
		for _, path := range []string{"/slow", "/watched", "/other"} {
			rej := refused(t, g, on(path), bulkhead.ErrClosed)
			assert.Equal(t, policy.Draining, rej.Reason, path)
			assert.Equal(t, 503, rej.StatusCode())
			assert.Equal(t, time.Second, rej.RetryAfter)
		}
		admit(t, g, on("/healthz")).Release()

		call := admit(t, g, to("up")) // what is inside still needs its upstreams
		unmatched.Release()
		inside.Release()
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
