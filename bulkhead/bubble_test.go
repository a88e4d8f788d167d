package bulkhead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// Channels and timers belong to the bubble they were made in: one that is used
// again elsewhere is fatal, or keeps the clock of the bubble from moving. So a
// bulkhead that lives longer than a bubble, such as a variable of a package,
// must not carry any across.
func TestOneBulkheadInAndOutOfBubbles(t *testing.T) {
	const wait = 10 * time.Millisecond
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 8, MaxWait: wait})
	var want bulkhead.Snapshot
	use := func(t *testing.T) {
		held, err := b.TryAcquire()
		require.NoError(t, err)
		_, err = b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), wait/10)
		defer cancel()
		_, err = b.Acquire(ctx)
		require.Equal(t, context.DeadlineExceeded, err)

		b.Configure(bulkhead.Config{Limit: 1, Backlog: 8, MaxWait: time.Hour})
		granted := make(chan bulkhead.Permit)
		for range 3 {
			go func() {
				p, err := b.Acquire(context.Background())
				if err != nil {
					t.Error(err)
				}
				granted <- p
			}()
		}
		for b.Snapshot().Queued < 3 {
			time.Sleep(time.Millisecond)
		}
		held.Release()
		for range 3 {
			p := <-granted
			p.Release()
		}
		b.Configure(bulkhead.Config{Limit: 1, Backlog: 8, MaxWait: wait})
		want.Granted, want.TimedOut, want.Left = want.Granted+4, want.TimedOut+1, want.Left+1
		s := b.Snapshot()
		require.Zero(t, s.InFlight)
		require.Equal(t, want.Granted, s.Granted)
		require.Equal(t, want.TimedOut, s.TimedOut)
		require.Equal(t, want.Left, s.Left)
	}
	for range 3 {
		use(t)
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				use(t)
				require.Less(t, time.Since(start), time.Minute)
			})
		}
	}
}

// A permit from outside comes back when the bubble is gone whose goroutines
// have waited for it.
func TestPermitOutlivesBubble(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	for range 3 {
		held := hold(t, b)[0]
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.Acquire(ctx)
			require.Equal(t, context.DeadlineExceeded, err)
		})
		held.Release()
	}
	require.Zero(t, b.Snapshot().InFlight)
}

// One timer for all: each is late on its own instant, whatever happened to
// those before it, and those who came after max wait was shortened are late
// before those who stand in front of them.
func TestEachIsLateOnItsOwnInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 20, MaxWait: 10 * time.Second})
		held := hold(t, b)[0]
		var calls []*call
		arrive := func(n int) {
			for range n {
				calls = append(calls, begin(t.Context(), b))
				time.Sleep(time.Second)
			}
		}
		arrive(4)
		b.Configure(bulkhead.Config{Limit: 1, Backlog: 20, MaxWait: 3 * time.Second})
		arrive(2)
		b.Configure(bulkhead.Config{Limit: 1, Backlog: 20, MaxWait: 20 * time.Second})
		arrive(2)
		held.Release() // the timer was set for the first
		for i, wait := range []time.Duration{8, 10, 10, 10, 3, 3, 20, 20} {
			<-calls[i].done
			require.Equal(t, wait*time.Second, calls[i].info.Waited, "call %d", i)
			require.Equal(t, i == 0, calls[i].err == nil)
		}
		require.EqualValues(t, 7, b.Snapshot().TimedOut)
	})
}
