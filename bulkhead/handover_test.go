package bulkhead_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// A hookedContext lets a test act at the two moments at which Acquire asks ctx:
// on arrival, and between the end of the wait and its settlement.
type hookedContext struct {
	context.Context
	err func() error
}

func (c hookedContext) Err() error { return c.err() }

// E14: the permit is granted to a waiter whose context is already dead, which
// happens for real between the two steps of a cancel. The permit must move on.
func TestPermitGrantedToTheDeadMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 3, MaxWait: time.Hour})
		p := hold(t, b)[0]
		var dead atomic.Bool
		dying := hookedContext{t.Context(), func() error {
			if dead.Load() {
				return context.Canceled
			}
			return nil
		}}
		one, two := begin(dying, b), begin(dying, b)
		alive := begin(t.Context(), b)

		dead.Store(true) // and Done stays open: only the grant can wake them
		p.Release()
		require.True(t, alive.isGranted())
		require.True(t, one.isDone())
		require.True(t, two.isDone())
		assert.Equal(t, context.Canceled, one.err)
		assert.Equal(t, context.Canceled, two.err)

		s := b.Snapshot()
		assert.EqualValues(t, 2, s.Left)
		assert.EqualValues(t, 2, s.Granted)
		assert.Equal(t, 1, s.InFlight)
		alive.permit.Release()
		assert.Len(t, hold(t, b), 1, "capacity")
	})
}

// The same with nobody behind: the permit must be free again, and a drain that
// waits for it must end.
func TestPermitGrantedToTheLastDeadIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
		p := hold(t, b)[0]
		var asked atomic.Int32
		drained := make(chan error, 1)
		dying := hookedContext{t.Context(), func() error {
			if asked.Add(1) == 1 {
				return nil // on arrival
			}
			go func() { drained <- b.Drain(t.Context()) }()
			for b.Snapshot().Closed == 0 { // the drain has begun once this is refused
				_, _ = b.TryAcquire()
			}
			return context.Canceled
		}}
		c := begin(dying, b)
		p.Release()
		require.NoError(t, <-drained)
		<-c.done
		assert.Equal(t, context.Canceled, c.err)
		assert.Zero(t, b.Snapshot().InFlight)
	})
}

// Max wait has ended, and before the waiter is out of the queue a permit comes.
// It is still wanted: refusing it would waste it.
func TestPermitAtTheLastMomentIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Second})
		p := hold(t, b)[0]
		var asked atomic.Int32
		ctx := hookedContext{t.Context(), func() error {
			if asked.Add(1) == 2 {
				p.Release()
			}
			return nil
		}}
		c := begin(ctx, b)
		<-c.done
		require.NoError(t, c.err)
		assert.Equal(t, time.Second, c.info.Waited)
		s := b.Snapshot()
		assert.EqualValues(t, 2, s.Granted)
		assert.Zero(t, s.TimedOut)
		assert.Equal(t, 1, s.InFlight)
	})
}

// Both max wait and the caller have ended: a dead context takes precedence.
func TestTimedOutAndDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Second})
		hold(t, b)
		var asked atomic.Int32
		ctx := hookedContext{t.Context(), func() error {
			if asked.Add(1) == 2 {
				return context.Canceled
			}
			return nil
		}}
		c := begin(ctx, b)
		<-c.done
		assert.Equal(t, context.Canceled, c.err)
		s := b.Snapshot()
		assert.EqualValues(t, 1, s.Left)
		assert.Zero(t, s.TimedOut)
		assert.Zero(t, s.Queued)
	})
}

// E14, golang/go#37852: the head of the queue is cancelled at the instant at
// which the holder releases. Whichever comes first, the next waiter is admitted
// in no time.
func TestHeadLeavesAsThePermitComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 1000 {
			b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 2, MaxWait: time.Hour})
			p := hold(t, b)[0]
			ctx, cancel := context.WithCancel(t.Context())
			head, next := begin(ctx, b), begin(t.Context(), b)
			start := time.Now()
			if i%2 == 0 {
				go cancel()
				go p.Release()
			} else {
				cancel()
				p.Release()
			}
			synctest.Wait()

			require.True(t, head.isDone())
			if head.err == nil {
				require.Zero(t, i%2, "a call whose context was dead before the release was admitted")
				head.permit.Release()
			} else {
				require.Equal(t, context.Canceled, head.err)
			}
			require.True(t, next.isGranted())
			require.Zero(t, time.Since(start))
			next.permit.Release()
			s := b.Snapshot()
			require.Zero(t, s.InFlight)
			require.EqualValues(t, 4, ended(s), "the holder, the refusal that ended hold, and two waiters")
			require.Equal(t, head.err == nil, s.Granted == 3)
		}
	})
}

// E15: max wait ends on the tick on which a permit comes free. Either may win;
// what is counted is what the caller was told.
func TestMaxWaitEndsAsThePermitComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 2, MaxWait: time.Second})
			p := hold(t, b)[0]
			c := begin(t.Context(), b)
			time.Sleep(time.Second)
			p.Release()
			<-c.done
			want := bulkhead.Snapshot{Limit: 1, Backlog: 2, MaxWait: time.Second, Peak: 1, Granted: 1, Full: 1}
			if c.err == nil {
				want.InFlight, want.Granted = 1, 2
			} else {
				require.ErrorIs(t, c.err, bulkhead.ErrWaitTimeout)
				want.TimedOut = 1
			}
			require.Equal(t, want, b.Snapshot())
			require.Equal(t, time.Second, c.info.Waited)
		}
	})
}

// The same with many, who are all told that their time is up before any of them
// runs. A permit that comes then finds that message still unread, and is kept.
func TestGrantBehindAnUnreadTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 16
		for range 300 {
			b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: waiters, MaxWait: time.Second})
			hold(t, b)
			var calls []*call
			for range waiters {
				calls = append(calls, begin(t.Context(), b))
			}
			time.Sleep(time.Second)
			b.Resize(1 + waiters) // some may have left already
			synctest.Wait()
			want := bulkhead.Snapshot{
				Limit: 1 + waiters, Backlog: waiters, MaxWait: time.Second, InFlight: 1, Granted: 1, Full: 1,
			}
			for _, c := range calls {
				require.True(t, c.isDone())
				if c.err == nil {
					want.InFlight++
					want.Granted++
					require.Equal(t, want.InFlight, c.info.InFlight, "as it was at the grant")
				} else {
					require.ErrorIs(t, c.err, bulkhead.ErrWaitTimeout)
					want.TimedOut++
				}
			}
			want.Peak = want.InFlight
			require.Equal(t, want, b.Snapshot())
		}
	})
}

// Everything at once, on few instants, so that hand-overs, cancels, time-outs,
// resizes and arrivals fall together as often as possible. No permit is lost.
func TestTiesConserveCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, rounds, limit = 32, 100, 3
		b := bulkhead.New(bulkhead.Config{Limit: limit, Backlog: goroutines, MaxWait: 2 * time.Millisecond})
		tick := func(n int) time.Duration { return time.Duration(rand.IntN(n)) * time.Millisecond }
		var inside atomic.Int32
		for range goroutines {
			go func() {
				for range rounds {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond+tick(4))
					p, err := b.Acquire(ctx)
					if err == nil {
						assert.LessOrEqual(t, inside.Add(1), int32(limit))
						time.Sleep(tick(3))
						inside.Add(-1)
						p.Release()
					}
					cancel()
					time.Sleep(tick(2))
				}
			}()
		}
		go func() {
			for range rounds {
				time.Sleep(tick(3))
				b.Resize(1 + rand.IntN(limit))
			}
			b.Resize(limit)
		}()
		time.Sleep(time.Hour)
		s := b.Snapshot()
		assert.EqualValues(t, goroutines*rounds, ended(s))
		assert.Zero(t, s.InFlight)
		assert.Zero(t, s.Queued)
		assert.NotZero(t, s.TimedOut)
		assert.NotZero(t, s.Left)
		assert.Len(t, hold(t, b), limit)
	})
}
