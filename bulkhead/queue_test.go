package bulkhead_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: n, MaxWait: time.Hour})
		last := hold(t, b)[0]
		var calls []*call
		for range n {
			calls = append(calls, begin(t.Context(), b))
		}
		arrived := time.Now()
		for i, c := range calls {
			time.Sleep(time.Second)
			last.Release()
			require.True(t, c.isGranted(), "waiter %d of %d", i+1, n)
			require.Equal(t, bulkhead.Info{
				Limit: 1, InFlight: 1, Queued: n - 1 - i,
				Position: i + 1, Arrived: arrived, Waited: time.Duration(i+1) * time.Second,
			}, c.info)
			require.Equal(t, n-1-i, b.Snapshot().Queued)
			last = c.permit
		}
		last.Release()
	})
}

// A permit that comes back is the oldest waiter's before anybody else can see
// it: the waiter need not have run for a newcomer to be refused.
func TestNewcomerNeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
			p := hold(t, b)[0]
			waiting := begin(t.Context(), b)
			p.Release()
			_, err := b.TryAcquire()
			require.ErrorIs(t, err, bulkhead.ErrFull)
			require.True(t, waiting.isGranted())
		}
	})
}

func TestNewcomerNeverOvertakesAfterGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 3, MaxWait: time.Hour})
		hold(t, b)
		first, second := begin(t.Context(), b), begin(t.Context(), b)
		b.Resize(3)
		_, err := b.TryAcquire()
		require.ErrorIs(t, err, bulkhead.ErrFull)
		require.True(t, first.isGranted())
		require.True(t, second.isGranted())
	})
}

func TestBacklogHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 2, MaxWait: time.Hour})
		hold(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leaver := begin(ctx, b)
		stayer := begin(t.Context(), b)
		_, err := b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrFull)

		cancel()
		<-leaver.done
		next := begin(t.Context(), b)
		require.False(t, next.isDone())
		b.Resize(3)
		require.True(t, stayer.isGranted())
		require.True(t, next.isGranted())
		assert.Equal(t, 2, next.info.Position)
	})
}

// Leaving takes constant time from anywhere in the queue. With a walk from
// either end this is some 10^9 steps, and the test runs for minutes.
func TestCrowdLeavesFromTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: crowd, MaxWait: time.Hour})
		p := hold(t, b)[0]
		first := begin(t.Context(), b)
		leave := make([]context.CancelFunc, crowd-2)
		for i := range leave {
			var ctx context.Context
			ctx, leave[i] = context.WithCancel(t.Context())
			go func() {
				_, err := b.Acquire(ctx)
				assert.Equal(t, context.Canceled, err)
			}()
		}
		synctest.Wait()
		last := begin(t.Context(), b)
		require.Equal(t, crowd, b.Snapshot().Queued)

		rand.Shuffle(len(leave)/2, func(i, j int) { leave[i], leave[j] = leave[j], leave[i] })
		for i := range leave {
			leave[(i+len(leave)/2)%len(leave)]()
		}
		synctest.Wait()
		s := b.Snapshot()
		require.Equal(t, 2, s.Queued)
		require.EqualValues(t, crowd-2, s.Left)

		p.Release()
		require.True(t, first.isGranted())
		require.False(t, last.isDone())
		first.permit.Release()
		require.True(t, last.isGranted())
	})
}
