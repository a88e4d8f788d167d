package bulkhead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

func TestPoolClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 2, Max: 2, Backlog: 2})
		running := submitHeld(t, t.Context(), p)
		busy(t, p, 1, 0)
		p.Close()
		assert.Equal(t, [2]int{1, 0}, workers(p), "an idle worker ends at once")
		p.Close()
		_, err := bulkhead.Submit(p, t.Context(), notRun(t))
		assert.Equal(t, bulkhead.ErrClosed, err)
		assert.Equal(t, bulkhead.ErrClosed, p.Do(t.Context(), func(context.Context) error { t.Error("run"); return nil }))
		running.finish()
		_, err = running.Wait(t.Context())
		assert.NoError(t, err)
		assertAtRest(t, p)
		assert.EqualValues(t, 2, p.Snapshot().Closed)
	})
}

// What was accepted runs, also after Close.
func TestPoolCloseRunsTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 2})
		tasks := []*held{submitHeld(t, t.Context(), p), submitHeld(t, t.Context(), p), submitHeld(t, t.Context(), p)}
		drained := make(chan error, 2)
		for range cap(drained) {
			go func() { drained <- p.Drain(t.Context()) }()
		}
		for _, h := range tasks {
			synctest.Wait()
			assert.Empty(t, drained)
			assert.True(t, isClosed(h.begun))
			h.finish()
		}
		for range cap(drained) {
			assert.NoError(t, <-drained)
		}
		assert.EqualValues(t, 3, p.Snapshot().Completed)
		assertAtRest(t, p)
	})
}

func TestPoolCloseNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 3, OnFull: bulkhead.WaitForRoom(time.Hour, 1)})
		running := submitHeld(t, t.Context(), p)
		var dropped []*bulkhead.Future[int]
		for range 2 {
			f, err := bulkhead.Submit(p, t.Context(), notRun(t))
			require.NoError(t, err)
			dropped = append(dropped, f)
		}
		var doErr error
		done := make(chan struct{})
		go func() {
			defer close(done)
			doErr = p.Do(t.Context(), func(context.Context) error { t.Error("run"); return nil })
		}()
		synctest.Wait()
		door := submitAsync(t.Context(), p, notRun(t))
		synctest.Wait()

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, p.Drain(short))
		<-door.done
		assert.Equal(t, bulkhead.ErrClosed, door.err, "not accepted, so it went with the close")
		assert.Equal(t, 3, p.Snapshot().Queued)
		assert.Equal(t, 3, p.CloseNow())
		assert.Zero(t, p.CloseNow())
		<-done
		assert.Equal(t, bulkhead.ErrClosed, doErr)
		for _, f := range dropped {
			assert.True(t, isClosed(f.Done()))
			_, err := f.Wait(t.Context())
			assert.Equal(t, bulkhead.ErrClosed, err)
		}
		s := p.Snapshot()
		assert.Equal(t, [3]int{1, 1, 0}, [3]int{s.Workers, s.Active, s.Queued}, "what runs is not disturbed")
		running.finish()
		v, err := running.Wait(t.Context())
		assert.Equal(t, 1, v)
		assert.NoError(t, err)
		assertAtRest(t, p)
		s = p.Snapshot()
		assert.Equal(t, [3]uint64{1, 4, 5}, [3]uint64{s.Completed, s.Closed, outcomes(s)})
	})
}

func TestPoolDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		assert.NoError(t, p.Drain(dead), "nothing is left, which is no less true")
		_, err := bulkhead.Submit(p, t.Context(), notRun(t))
		assert.Equal(t, bulkhead.ErrClosed, err)

		p = bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		h := submitHeld(t, t.Context(), p)
		assert.Equal(t, context.Canceled, p.Drain(dead))
		h.finish()
		assert.NoError(t, p.Drain(t.Context()))
		for range 100 { // drained and dead at once
			p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
			h := submitHeld(t, t.Context(), p)
			ctx, cancel := context.WithCancel(t.Context())
			late := lateDone{ctx, func() { h.finish(); synctest.Wait(); cancel() }}
			require.NoError(t, p.Drain(late))
		}
	})
}

// A task on its submitter's goroutine was accepted and is waited for.
func TestPoolDrainWaitsForCallers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.CallerRuns())
		own, fn := newHeld()
		a := submitAsync(t.Context(), p, fn)
		<-own.begun
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(t.Context()) }()
		held.finish()
		queued.finish()
		synctest.Wait()
		assert.Empty(t, drained)
		assert.Zero(t, p.Snapshot().Workers)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, p.Drain(short), "also by a drain that finds no worker")
		own.finish()
		assert.NoError(t, <-drained)
		<-a.done
		assert.NoError(t, a.err)
	})
}

// A task may close its own pool.
func TestPoolClosedFromWithin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 1})
		require.NoError(t, p.Do(t.Context(), func(context.Context) error {
			p.Resize(0, 2)
			assert.Equal(t, 1, p.Snapshot().Active)
			p.CloseNow()
			return nil
		}))
		assertAtRest(t, p)
	})
}

// E70: pools that are closed, or have no core, leave nothing behind. The bubble
// would not end with a goroutine left in it.
func TestPoolLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for i := range 1000 {
			p := bulkhead.NewPool(bulkhead.PoolConfig{Core: i % 2, Max: 2, KeepAlive: time.Minute})
			if i%3 > 0 {
				busy(t, p, 2, 0)
			}
			if i%2 > 0 {
				p.Close()
			}
		}
		time.Sleep(time.Minute) // the keep-alive of those without a core
	})
}
