package bulkhead_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 3, MaxWait: time.Hour})
		p := hold(t, b)[0]
		ctx, cancel := context.WithCancel(t.Context())
		waiting := []*call{begin(ctx, b), begin(ctx, b), begin(ctx, b)}
		time.Sleep(time.Second)
		b.Close()
		for i, c := range waiting {
			<-c.done
			require.ErrorIs(t, c.err, bulkhead.ErrClosed)
			assert.Equal(t, i+1, c.info.Position)
			assert.Equal(t, time.Second, c.info.Waited)
			assert.Equal(t, 1, c.info.InFlight)
		}
		cancel() // too late to change anything

		_, err := b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		_, err = b.TryAcquire()
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		b.Close()
		p.Release()
		b.Resize(5)
		_, err = b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrClosed, "neither a free permit nor a higher limit reopens it")
		assert.Equal(t, bulkhead.Snapshot{
			Limit: 5, Backlog: 3, MaxWait: time.Hour, Peak: 1, Granted: 1, Full: 1, Closed: 6,
		}, b.Snapshot())
	})
}

func TestCloseAndDeadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
		hold(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		c := begin(ctx, b)
		cancel()
		b.Close()
		<-c.done
		assert.Equal(t, context.Canceled, c.err, "a dead context takes precedence")
		s := b.Snapshot()
		assert.EqualValues(t, 1, s.Left)
		assert.Zero(t, s.Closed)
	})
}

func TestDrainWaitsForTheLastPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 3, Backlog: 1, MaxWait: time.Hour})
		held := hold(t, b)
		waiting := begin(t.Context(), b)

		drains := make(chan error, 2)
		for range cap(drains) {
			go func() { drains <- b.Drain(t.Context()) }()
		}
		synctest.Wait()
		require.True(t, waiting.isDone())
		require.ErrorIs(t, waiting.err, bulkhead.ErrClosed)
		for _, p := range held {
			require.Empty(t, drains)
			p.Release()
			synctest.Wait()
		}
		require.Len(t, drains, 2, "every drain ends with the last permit")
		require.NoError(t, <-drains)
		require.NoError(t, <-drains)
		require.NoError(t, b.Drain(t.Context()))
	})
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1})
		p := hold(t, b)[0]
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("enough"))
		defer cancel()
		start := time.Now()
		require.Equal(t, context.DeadlineExceeded, b.Drain(ctx))
		assert.Equal(t, 10*time.Second, time.Since(start))
		_, err := b.TryAcquire()
		require.ErrorIs(t, err, bulkhead.ErrClosed)

		require.Equal(t, context.DeadlineExceeded, b.Drain(ctx), "a dead context does not wait")
		p.Release()
		require.NoError(t, b.Drain(ctx), "but what is empty is drained")
	})
}

// A select that finds the bulkhead empty and the context dead would report a
// failed drain half of the time.
func TestDrainedAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			b := bulkhead.New(bulkhead.Config{Limit: 1})
			p := hold(t, b)[0]
			done := make(chan struct{})
			ctx := lateContext{t.Context(), done, p.Release}
			close(done)
			require.NoError(t, b.Drain(ctx))
		}
	})
}

// A lateContext is dead, and calls last when it is asked for its Done channel.
type lateContext struct {
	context.Context
	done chan struct{}
	last func()
}

func (c lateContext) Done() <-chan struct{} { c.last(); return c.done }
func (c lateContext) Err() error            { return context.Canceled }

// The end comes at the instant at which waiters run out of time, their contexts die,
// permits come back and the limit changes. Everybody gets one answer, it is counted,
// and who drains does not wait for ever.
func TestTiesWithTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 12
		answers := map[error]int{}
		for range 400 {
			b := bulkhead.New(bulkhead.Config{Limit: 2, Backlog: waiters, MaxWait: time.Second})
			held := hold(t, b)
			var all sync.WaitGroup
			got := make([]error, waiters)
			for i := range waiters {
				ctx, cancel := context.WithCancel(t.Context())
				all.Go(func() {
					p, err := b.Acquire(ctx)
					got[i] = err
					p.Release()
					cancel()
				})
				if i%3 == 0 {
					all.Go(func() { time.Sleep(time.Second); cancel() })
				}
			}
			for _, deed := range []func(){
				func() {
					b.Configure(bulkhead.Config{Limit: 1 + rand.IntN(5), Backlog: rand.IntN(3), MaxWait: time.Hour})
				},
				b.Close,
				func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := b.Drain(ctx); err != nil {
						t.Error(err)
					}
				},
				held[0].Release,
				held[1].Release,
			} {
				all.Go(func() { time.Sleep(time.Second); deed() })
			}
			all.Wait()
			s := b.Snapshot()
			require.Zero(t, s.InFlight)
			require.Zero(t, s.Queued)
			counted := map[error]int{}
			for _, err := range got {
				counted[err]++
				answers[err]++
			}
			require.EqualValues(t, counted[nil]+2, s.Granted)
			require.EqualValues(t, counted[bulkhead.ErrWaitTimeout], s.TimedOut)
			require.EqualValues(t, counted[bulkhead.ErrClosed], s.Closed)
			require.EqualValues(t, counted[context.Canceled], s.Left)
			require.EqualValues(t, waiters+2, s.Granted+s.TimedOut+s.Closed+s.Left)
		}
		for _, err := range []error{nil, bulkhead.ErrWaitTimeout, bulkhead.ErrClosed, context.Canceled} {
			require.NotZero(t, answers[err], err)
		}
	})
}
