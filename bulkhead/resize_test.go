package bulkhead_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

func TestGrowingWakesExactlyThoseThatFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 2, Backlog: 5, MaxWait: time.Hour})
		held := hold(t, b)
		var calls []*call
		for range 5 {
			calls = append(calls, begin(t.Context(), b))
		}
		b.Resize(5)
		for i, c := range calls {
			require.Equal(t, i < 3, c.isGranted(), "waiter %d", i+1)
		}
		for i, c := range calls[:3] {
			assert.Equal(t, 3+i, c.info.InFlight, "as it was when waiter %d got its permit", i+1)
			assert.Equal(t, 4-i, c.info.Queued)
			assert.Equal(t, 5, c.info.Limit)
		}
		assert.Equal(t, 5, b.Snapshot().InFlight)
		assert.Equal(t, 5, b.Snapshot().Peak)
		for _, p := range held {
			p.Release()
		}
		require.True(t, calls[4].isGranted())
	})
}

func TestShrinkingAdmitsNobodyUntilBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 8, Backlog: 8, MaxWait: time.Hour})
		held := hold(t, b)
		var calls []*call
		for range 4 {
			calls = append(calls, begin(t.Context(), b))
		}
		start := time.Now()
		b.Resize(3)
		assert.Zero(t, time.Since(start), "a shrink waits for nobody")
		assert.Equal(t, 8, b.Snapshot().InFlight, "permits that are out stay valid")

		for want := 7; want >= 3; want-- {
			held[want].Release()
			require.False(t, calls[0].isGranted())
			require.Equal(t, want, b.Snapshot().InFlight)
			_, err := b.TryAcquire()
			require.ErrorIs(t, err, bulkhead.ErrFull)
		}
		for i := range 3 {
			held[i].Release()
			require.True(t, calls[i].isGranted())
			require.Equal(t, 3, calls[i].info.InFlight)
			require.Equal(t, 3, b.Snapshot().InFlight)
		}
		require.False(t, calls[3].isDone())
		calls[0].permit.Release()
		require.True(t, calls[3].isGranted())
	})
}

// Waiters keep their place and the max wait with which they arrived, even if
// nobody could queue under the new configuration.
func TestConfigureKeepsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 3, MaxWait: 4 * time.Second})
		p := hold(t, b)[0]
		first, second, third := begin(t.Context(), b), begin(t.Context(), b), begin(t.Context(), b)
		time.Sleep(time.Second)
		b.Configure(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Second})
		_, err := b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrFull)
		b.Configure(bulkhead.Config{Limit: 1, Backlog: 4, MaxWait: time.Second})
		fourth := begin(t.Context(), b)

		<-fourth.done
		require.ErrorIs(t, fourth.err, bulkhead.ErrWaitTimeout)
		require.Equal(t, time.Second, fourth.info.Waited)
		require.Equal(t, 4, fourth.info.Position)
		p.Release()
		require.True(t, first.isGranted())

		b.Configure(bulkhead.Config{Limit: 2})
		require.True(t, second.isGranted(), "the limit of Configure is live, too")
		<-third.done
		require.ErrorIs(t, third.err, bulkhead.ErrWaitTimeout)
		require.Equal(t, 4*time.Second, third.info.Waited)
	})
}

// The queue keeps its timer for a while when it has become empty, and the word
// keeps saying so. Permits that are new are free for anybody all the same. In a
// bubble no timer is kept, hence without one.
func TestNewPermitsAreFreeOnceTheQueueIsEmpty(t *testing.T) {
	for _, limit := range []int{1, 3} { // while the waiter waits: too few for it, and one too many
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
		held := hold(t, b)[0]
		granted := make(chan bulkhead.Permit)
		go func() {
			p, err := b.Acquire(context.Background())
			if err != nil {
				t.Error(err)
			}
			granted <- p
		}()
		for b.Snapshot().Queued == 0 {
			runtime.Gosched()
		}
		b.Resize(limit)
		if limit == 1 {
			held.Release()
			held = <-granted
			b.Resize(2)
		} else {
			defer (<-granted).Release()
		}
		p, err := b.TryAcquire()
		require.NoError(t, err)
		p.Release()
		held.Release()
	}
}

// While the limit moves up and down under load, nobody is let in above the
// limit of that moment, and what has to fall falls: Info is taken in the same
// step as the decision.
func TestResizeUnderLoad(t *testing.T) {
	const goroutines, rounds, highest = 32, 500, 8
	b := bulkhead.New(bulkhead.Config{Limit: highest, Backlog: goroutines, MaxWait: time.Hour})
	var inside atomic.Int32
	var workers, resizer sync.WaitGroup
	stop := make(chan struct{})
	resizer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.Resize(1 + rand.IntN(highest))
				before := b.Snapshot()
				runtime.Gosched()
				after := b.Snapshot()
				// Only this goroutine moves the limit.
				assert.LessOrEqual(t, after.InFlight, max(before.InFlight, after.Limit), "in flight grew above the limit")
			}
		}
	})
	for range goroutines {
		workers.Go(func() {
			for range rounds {
				var info bulkhead.Info
				p, err := b.AcquireInfo(t.Context(), &info)
				if !assert.NoError(t, err) {
					return
				}
				assert.LessOrEqual(t, info.InFlight, info.Limit)
				assert.LessOrEqual(t, inside.Add(1), int32(highest))
				for range rand.IntN(4) {
					runtime.Gosched()
				}
				inside.Add(-1)
				p.Release()
			}
		})
	}
	workers.Wait()
	close(stop)
	resizer.Wait()

	s := b.Snapshot()
	assert.EqualValues(t, goroutines*rounds, s.Granted)
	assert.LessOrEqual(t, s.Peak, highest)
	assert.Zero(t, s.InFlight)
	assert.Zero(t, s.Queued)
	b.Resize(3)
	assert.Len(t, hold(t, b), 3)
}
