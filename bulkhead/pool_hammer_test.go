package bulkhead_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// chaos is a task that ends in one of many ways and counts who is at work.
type chaos struct{ inside, most atomic.Int32 }

func (c *chaos) task(ctx context.Context) (int, error) {
	n := c.inside.Add(1)
	for old := c.most.Load(); n > old && !c.most.CompareAndSwap(old, n); old = c.most.Load() {
	}
	defer c.inside.Add(-1)
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	switch rand.IntN(8) {
	case 0:
		panic("the work failed")
	case 1:
		runtime.Goexit()
	case 2:
		return 0, errors.New("the work failed")
	case 3:
		return 0, ctx.Err()
	}
	return 1, nil
}

// E14, E68: tasks that end in every way, callers that leave at every moment, and
// a pool that is resized meanwhile. Every submission is counted once, every
// future ends, the limit holds, no sample is out of range, and nothing stays.
func TestPoolBooksBalance(t *testing.T) {
	const submitters, rounds = 32, 300
	for name, how := range map[string]bulkhead.OnFull{
		"abort":    bulkhead.Abort(),
		"discard":  bulkhead.Discard(),
		"fallback": bulkhead.Fallback(func(context.Context) (int, error) { return 2, nil }),
		"wait":     bulkhead.WaitForRoom(500*time.Microsecond, 8),
	} {
		t.Run(name, func(t *testing.T) {
			const limit, backlog = 4, 4
			cfg := bulkhead.PoolConfig{Core: 1, Max: limit, KeepAlive: 100 * time.Microsecond, Backlog: backlog, OnFull: how}
			p := bulkhead.NewPool(cfg)
			var c chaos
			stop := make(chan struct{})
			var others, wg sync.WaitGroup
			others.Go(func() {
				for last := p.Snapshot(); !isClosed(stop); runtime.Gosched() {
					s := p.Snapshot()
					assert.Equal(t, s.Workers, s.Active+s.Idle)
					assert.True(t, 0 <= s.Active && s.Active <= limit, "active %d", s.Active)
					assert.True(t, s.Idle >= 0 && s.Workers <= limit, "%d workers, %d idle", s.Workers, s.Idle)
					assert.True(t, 0 <= s.Abandoned && s.Abandoned <= s.Active, "abandoned %d of %d", s.Abandoned, s.Active)
					assert.True(t, 0 <= s.Queued && s.Queued <= backlog, "queued %d", s.Queued)
					assert.True(t, s.Queued == 0 || s.Active >= s.Max, "%d wait beside %d active of %d", s.Queued, s.Active, s.Max)
					assert.True(t, s.WaitingForRoom == 0 || s.Queued == s.Backlog, "%d at the door, %d queued", s.WaitingForRoom, s.Queued)
					assert.True(t, 0 <= s.WaitingForRoom && s.WaitingForRoom <= 8)
					assert.GreaterOrEqual(t, outcomes(s), outcomes(last))
					last = s
				}
			})
			others.Go(func() {
				for !isClosed(stop) {
					p.Resize(rand.IntN(2), 1+rand.IntN(limit))
					runtime.Gosched()
				}
			})
			for range submitters {
				wg.Go(func() {
					for range rounds {
						ctx, cancel := context.WithCancel(t.Context())
						switch rand.IntN(4) {
						case 0:
							go cancel()
						case 1:
							time.AfterFunc(time.Duration(rand.Int64N(int64(200*time.Microsecond))), cancel)
						}
						if rand.IntN(2) == 0 {
							_ = p.Do(ctx, func(ctx context.Context) error { _, err := c.task(ctx); return err })
						} else if f, err := bulkhead.Submit(p, ctx, c.task); err == nil && rand.IntN(2) == 0 {
							_, _ = f.Wait(t.Context())
						}
						cancel()
					}
				})
			}
			wg.Wait()
			close(stop)
			others.Wait()

			require.NoError(t, p.Drain(t.Context()))
			assertAtRest(t, p)
			s := p.Snapshot()
			assert.EqualValues(t, submitters*rounds, outcomes(s), "every submission counts once: %+v", s)
			assert.LessOrEqual(t, int(c.most.Load()), limit)
			assert.LessOrEqual(t, s.Peak, limit)
			assert.NotZero(t, s.Completed)
			assert.NotZero(t, s.Failed)
			assert.NotZero(t, s.Panicked)
		})
	}
}

// What a submission has used comes to serve others. Whatever moment its caller or
// those who wait for its future leave at, everybody gets the result of the task
// that they asked for, and those who stay get it in any case.
func TestPoolResultsAreTheirOwn(t *testing.T) {
	const submitters, rounds = 8, 2000
	p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 2, Max: 3, Backlog: submitters})
	sometimesDead := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		switch rand.IntN(3) {
		case 0:
			go cancel()
		case 1:
			cancel()
		}
		return ctx, cancel
	}
	// perform ends in a way that its number decides.
	perform := func(own ownResult) (int, error) {
		switch own % 8 {
		case 6:
			panic(own)
		case 7:
			runtime.Goexit()
		}
		return int(own), own
	}
	// check is called with the contexts that the result could end by.
	check := func(want ownResult, n int, err error, ctxs ...context.Context) {
		var stopped *bulkhead.PanicError
		switch {
		case err == want:
			assert.EqualValues(t, want, n)
			assert.Less(t, want%8, ownResult(6))
			return
		case errors.As(err, &stopped):
			assert.Zero(t, n)
			if want%8 == 6 {
				assert.Equal(t, want, stopped.Value)
			} else {
				assert.Nil(t, stopped.Value)
				assert.EqualValues(t, 7, want%8)
			}
			return
		}
		assert.Equal(t, context.Canceled, err)
		assert.True(t, slices.ContainsFunc(ctxs, func(c context.Context) bool { return c.Err() != nil }))
	}
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			for j := range rounds {
				want := ownResult(i*rounds + j)
				fn := func(context.Context) (int, error) { return perform(want) }
				ctx, cancel := sometimesDead()
				if rand.IntN(2) == 0 {
					n := 0
					err := p.Do(ctx, func(ctx context.Context) error { _, err := fn(ctx); return err })
					if err == want {
						n = int(want) // it has no value
					}
					check(want, n, err, ctx)
					cancel()
					continue
				}
				f, err := bulkhead.Submit(p, ctx, fn)
				if err != nil {
					assert.Equal(t, context.Canceled, err)
					cancel()
					continue
				}
				for range rand.IntN(3) {
					wg.Go(func() {
						if rand.IntN(3) == 0 {
							<-f.Done()
						}
						waiting, leave := sometimesDead()
						defer leave()
						n, err := f.Wait(waiting)
						check(want, n, err, ctx, waiting)
					})
				}
				n, err := f.Wait(t.Context())
				check(want, n, err, ctx)
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Drain(t.Context()))
}

// An ownResult is the error of one task.
type ownResult int

func (ownResult) Error() string { return "somebody's own" }

// After everything of the above the pool has its whole capacity, and not more.
func TestPoolCapacitySurvives(t *testing.T) {
	const limit = 3
	p := bulkhead.NewPool(bulkhead.PoolConfig{Core: limit, Max: limit, OnFull: bulkhead.CallerRuns()})
	var c chaos
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 300 {
				done := make(chan struct{})
				go func() { // a Goexit may come to the submitter's goroutine
					defer close(done)
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(2) == 0 {
						go cancel()
					}
					defer cancel()
					_ = p.Do(ctx, func(ctx context.Context) error { _, err := c.task(ctx); return err })
				}()
				<-done
			}
		})
	}
	wg.Wait()
	for p.Snapshot().Active > 0 { // those whose callers have left
		runtime.Gosched()
	}
	s := p.Snapshot()
	assert.EqualValues(t, 16*300, outcomes(s))
	assert.Zero(t, s.CallerRunning)
	assert.NotZero(t, s.CallerRun)

	p.Configure(bulkhead.PoolConfig{Core: limit, Max: limit})
	var tasks []*held
	for range limit {
		tasks = append(tasks, submitHeld(t, t.Context(), p))
	}
	_, err := bulkhead.Submit(p, t.Context(), notRun(t))
	assert.Equal(t, bulkhead.ErrFull, err)
	for _, h := range tasks {
		<-h.begun
		h.finish()
	}
	require.NoError(t, p.Drain(t.Context()))
}

// Close, CloseNow and Drain race with submitters. Whatever was accepted has an
// end, and after a Drain none is still to come.
func TestPoolCloseRaces(t *testing.T) {
	for i := range 100 {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: i % 3, Max: 2, KeepAlive: time.Hour, Backlog: 4, OnFull: bulkhead.WaitForRoom(time.Hour, 100)})
		var wg sync.WaitGroup
		var accepted, ran, shut atomic.Int32
		var drained atomic.Bool
		for range 8 {
			wg.Go(func() {
				for {
					f, err := bulkhead.Submit(p, t.Context(), func(context.Context) (int, error) {
						assert.False(t, drained.Load(), "run after the drain")
						ran.Add(1)
						return 1, nil
					})
					if err != nil {
						assert.Equal(t, bulkhead.ErrClosed, err)
						return
					}
					accepted.Add(1)
					if _, err := f.Wait(t.Context()); err != nil {
						assert.Equal(t, bulkhead.ErrClosed, err)
						shut.Add(1)
					}
				}
			})
		}
		for range rand.IntN(200) {
			runtime.Gosched()
		}
		if i%2 == 0 {
			wg.Go(func() { p.CloseNow() })
		} else {
			wg.Go(p.Close)
		}
		require.NoError(t, p.Drain(t.Context()))
		drained.Store(true)
		wg.Wait()
		require.Equal(t, accepted.Load(), ran.Load()+shut.Load())
		if i%2 == 1 {
			require.Zero(t, shut.Load(), "what was accepted runs")
		}
		assertAtRest(t, p)
	}
}

// A submission takes the mutex twice, and in between the pool may be closed: it
// must count as any other.
func TestPoolClosesWhileATaskEnters(t *testing.T) {
	const submitters = 4
	for range 100 {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 1 << 20})
		h := submitHeld(t, t.Context(), p)
		var wg sync.WaitGroup
		for range submitters {
			wg.Go(func() {
				var err error
				for err == nil {
					_, err = bulkhead.Submit(p, t.Context(), func(context.Context) (int, error) { return 1, nil })
				}
				assert.Equal(t, bulkhead.ErrClosed, err)
			})
		}
		for p.Snapshot().Queued < 20 {
			runtime.Gosched()
		}
		p.Close()
		wg.Wait()
		assert.EqualValues(t, submitters, p.Snapshot().Closed)
		p.CloseNow()
		h.finish()
		require.NoError(t, p.Drain(t.Context()))
	}
}
