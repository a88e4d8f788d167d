package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// fullPool returns a pool whose only worker is held and whose backlog of one is
// taken.
func fullPool(t *testing.T, how bulkhead.OnFull) (p *bulkhead.Pool, held, queued *held) {
	p = bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 1, OnFull: how})
	return p, submitHeld(t, t.Context(), p), submitHeld(t, t.Context(), p)
}

func notRun(t *testing.T) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { t.Error("run"); return 0, nil }
}

func TestOnFullAbort(t *testing.T) {
	for name, how := range map[string]bulkhead.OnFull{"zero": {}, "abort": bulkhead.Abort()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, held, queued := fullPool(t, how)
				f, err := bulkhead.Submit(p, t.Context(), notRun(t))
				assert.Nil(t, f)
				assert.Equal(t, bulkhead.ErrFull, err)
				assert.EqualValues(t, 1, p.Snapshot().Full)
				held.finish()
				queued.finish()
			})
		})
	}
}

func TestOnFullCallerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.CallerRuns())
		broken := errors.New("broken")

		// n submitters run n tasks, outside the limit, and are kept by them.
		const n = 3
		submitters := make(chan *bulkhead.Future[int], n)
		letGo := make(chan struct{})
		for range n {
			go func() {
				f, err := bulkhead.Submit(p, t.Context(), func(context.Context) (int, error) { <-letGo; return 7, broken })
				assert.NoError(t, err)
				assert.True(t, isClosed(f.Done()))
				submitters <- f
			}()
		}
		synctest.Wait()
		s := p.Snapshot()
		assert.Equal(t, [4]int{n, 1, 1, 1}, [4]int{s.CallerRunning, s.Active, s.Peak, s.Queued})
		assert.Empty(t, submitters)

		close(letGo)
		for range n {
			v, err := (<-submitters).Wait(t.Context())
			assert.Equal(t, 7, v)
			assert.Equal(t, broken, err)
		}
		s = p.Snapshot()
		assert.Equal(t, [3]uint64{n, 0, n}, [3]uint64{s.CallerRun, s.Failed, outcomes(s)})
		assert.Zero(t, s.CallerRunning)

		// Do cannot leave its own goroutine, and returns what that has brought.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		assert.Equal(t, broken, p.Do(ctx, func(context.Context) error { time.Sleep(time.Minute); return broken }))
		assert.Equal(t, time.Minute, time.Since(start))

		// A closed pool runs nothing more, on nobody's goroutine.
		held.finish()
		queued.finish()
		p.Close()
		_, err := bulkhead.Submit(p, t.Context(), notRun(t))
		assert.Equal(t, bulkhead.ErrClosed, err)
	})
}

func TestCallerRunsPanicAndGoexit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.CallerRuns())
		f, err := bulkhead.Submit(p, t.Context(), func(context.Context) (int, error) { panic("oops") })
		require.NoError(t, err)
		_, err = f.Wait(t.Context())
		var panicked *bulkhead.PanicError
		require.ErrorAs(t, err, &panicked)
		assert.Equal(t, "oops", panicked.Value)

		var exited, returned bool
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { exited = true }()
			_ = p.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
			returned = true
		})
		wg.Wait()
		assert.True(t, exited)
		assert.False(t, returned, "nobody can stop a Goexit")
		s := p.Snapshot()
		assert.Zero(t, s.CallerRunning)
		assert.EqualValues(t, 2, s.CallerRun)
		held.finish()
		queued.finish()
	})
}

// What Java's pools do with a discarded task is to leave its future open for
// ever.
func TestOnFullDiscard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.Discard())
		f, err := bulkhead.Submit(p, t.Context(), notRun(t))
		require.NoError(t, err)
		assert.True(t, isClosed(f.Done()))
		v, err := f.Wait(t.Context())
		assert.Zero(t, v)
		assert.Equal(t, bulkhead.ErrDiscarded, err)
		assert.Equal(t, bulkhead.ErrDiscarded, p.Do(t.Context(), func(context.Context) error { t.Error("run"); return nil }))
		s := p.Snapshot()
		assert.Equal(t, [2]uint64{2, 2}, [2]uint64{s.Discarded, outcomes(s)})
		held.finish()
		queued.finish()
	})
}

func TestOnFullFallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		stale := errors.New("stale")
		p, held, queued := fullPool(t, bulkhead.Fallback(func(ctx context.Context) (int, error) {
			if ctx.Value(key{}) == "panic" {
				panic("no fallback either")
			}
			return 42, stale
		}))
		ctx := context.WithValue(t.Context(), key{}, "panic")

		f, err := bulkhead.Submit(p, t.Context(), notRun(t))
		require.NoError(t, err)
		assert.True(t, isClosed(f.Done()))
		v, err := f.Wait(t.Context())
		assert.Equal(t, 42, v)
		assert.Equal(t, stale, err)

		f, err = bulkhead.Submit(p, ctx, notRun(t))
		require.NoError(t, err)
		_, err = f.Wait(t.Context())
		var panicked *bulkhead.PanicError
		require.ErrorAs(t, err, &panicked)
		assert.Equal(t, "no fallback either", panicked.Value)

		assert.Equal(t, stale, p.Do(t.Context(), func(context.Context) error { t.Error("run"); return nil }))

		other, err := bulkhead.Submit(p, t.Context(), func(context.Context) (string, error) { t.Error("run"); return "", nil })
		assert.Nil(t, other)
		assert.Equal(t, bulkhead.ErrFull, err, "a fallback of another type")

		s := p.Snapshot()
		assert.Equal(t, [4]uint64{3, 1, 0, 4}, [4]uint64{s.FellBack, s.Full, s.Panicked, outcomes(s)})
		held.finish()
		queued.finish()
	})
}

// An await is a submitter at the door.
type await struct {
	done chan struct{}
	f    *bulkhead.Future[int]
	err  error
	took time.Duration
}

func submitAsync(ctx context.Context, p *bulkhead.Pool, fn func(context.Context) (int, error)) *await {
	a := &await{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		start := time.Now()
		a.f, a.err = bulkhead.Submit(p, ctx, fn)
		a.took = time.Since(start)
	}()
	return a
}

// First come, first served at the door, and nobody overtakes those there.
func TestOnFullWaitForRoom(t *testing.T) {
	for name, backlog := range map[string]int{"backlog": 1, "direct": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: backlog, OnFull: bulkhead.WaitForRoom(time.Hour, 5)})
				tasks := []*held{submitHeld(t, t.Context(), p)}
				for range backlog {
					tasks = append(tasks, submitHeld(t, t.Context(), p))
				}
				var door []*await
				for i := range 5 {
					h, fn := newHeld()
					tasks, door = append(tasks, h), append(door, submitAsync(t.Context(), p, fn))
					synctest.Wait()
					assert.Equal(t, i+1, p.Snapshot().WaitingForRoom)
				}
				_, err := bulkhead.Submit(p, t.Context(), notRun(t))
				assert.Equal(t, bulkhead.ErrFull, err, "the door is full too")

				for i, h := range tasks {
					synctest.Wait()
					assert.True(t, isClosed(h.begun), "task %d", i)
					s := p.Snapshot()
					assert.Equal(t, max(0, len(door)-i), s.WaitingForRoom)
					assert.Equal(t, min(backlog, len(tasks)-i-1), s.Queued)
					for j, a := range door {
						assert.Equal(t, j < i, isClosed(a.done), "submitter %d after %d tasks", j, i)
					}
					h.finish()
				}
				for _, a := range door {
					require.NoError(t, a.err)
					v, err := a.f.Wait(t.Context())
					assert.Equal(t, 1, v)
					assert.NoError(t, err)
				}
				s := p.Snapshot()
				assert.EqualValues(t, len(tasks), s.Completed)
				assertAtRest(t, p)
			})
		})
	}
}

func TestWaitForRoomEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.WaitForRoom(5*time.Second, 10))
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		first := submitAsync(t.Context(), p, notRun(t))
		left := submitAsync(soon, p, notRun(t))
		time.Sleep(time.Second)
		later := submitAsync(t.Context(), p, notRun(t))

		<-left.done
		assert.Equal(t, context.DeadlineExceeded, left.err)
		assert.Equal(t, 2*time.Second, left.took)
		assert.Equal(t, 2, p.Snapshot().WaitingForRoom)
		<-first.done
		assert.Equal(t, bulkhead.ErrWaitTimeout, first.err)
		assert.Equal(t, 5*time.Second, first.took)
		assert.Nil(t, first.f)

		p.Close()
		<-later.done
		assert.Equal(t, bulkhead.ErrClosed, later.err)
		assert.Equal(t, 4*time.Second, later.took)
		s := p.Snapshot()
		assert.Equal(t, [4]uint64{1, 1, 1, 3}, [4]uint64{s.TimedOut, s.Left, s.Closed, outcomes(s)})
		held.finish()
		queued.finish()
	})
}

// At the door, too, the caller's own end comes before the pool's.
func TestWaitForRoomClosedAndDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.WaitForRoom(time.Hour, 10))
		ctx, cancel := context.WithCancel(t.Context())
		a := submitAsync(ctx, p, notRun(t))
		synctest.Wait()
		cancel()
		p.Close()
		<-a.done
		assert.Equal(t, context.Canceled, a.err)
		s := p.Snapshot()
		assert.Equal(t, [2]uint64{1, 0}, [2]uint64{s.Left, s.Closed})
		held.finish()
		queued.finish()
	})
}

// E14: room arrives at the instant at which the submitter gives up. Whoever wins,
// the count says what the submitter was told, and the place is not lost.
func TestWaitForRoomTies(t *testing.T) {
	for name, giveUp := range map[string]func(context.CancelFunc){
		"cancel":   func(cancel context.CancelFunc) { cancel() },
		"max wait": func(context.CancelFunc) {}, // held ends then, too
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				bubble(t, func(t *testing.T) {
					p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, OnFull: bulkhead.WaitForRoom(time.Second, 10)})
					holder := submitHeld(t, t.Context(), p)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					a := submitAsync(ctx, p, func(context.Context) (int, error) { return 1, nil })
					synctest.Wait()
					go func() {
						time.Sleep(time.Second)
						giveUp(cancel)
					}()
					time.Sleep(time.Second)
					holder.finish()
					<-a.done
					if a.err == nil {
						<-a.f.Done() // it ended, one way or the other
					}
					synctest.Wait()
					s := p.Snapshot()
					assert.EqualValues(t, 2, outcomes(s))
					assert.Equal(t, a.err == bulkhead.ErrWaitTimeout, s.TimedOut == 1)
					assertAtRest(t, p)
					assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }), "capacity")
				})
			}
		})
	}
}

// A task that got in from the door with a context that dies there still leaves
// the backlog at once.
func TestWaitForRoomThenLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, held, queued := fullPool(t, bulkhead.WaitForRoom(time.Hour, 10))
		ctx, cancel := context.WithCancel(t.Context())
		a := submitAsync(ctx, p, notRun(t))
		synctest.Wait()
		held.finish()
		<-a.done
		require.NoError(t, a.err)
		assert.Equal(t, 1, p.Snapshot().Queued)
		cancel()
		synctest.Wait()
		assert.Zero(t, p.Snapshot().Queued)
		_, err := a.f.Wait(t.Context())
		assert.Equal(t, context.Canceled, err)
		queued.finish()
	})
}

// A fadingContext is alive when it is asked for the first time, and then dead.
type fadingContext struct {
	context.Context
	asked *int
}

func (c fadingContext) Err() error {
	*c.asked++
	if *c.asked > 1 {
		return context.Canceled
	}
	return nil
}

// E15: also on its submitter's goroutine a task is not run with a dead context,
// and does not count as run.
func TestCallerDoesNotRunTheDead(t *testing.T) {
	for name, how := range map[string]bulkhead.OnFull{
		"caller runs": bulkhead.CallerRuns(),
		"fallback":    bulkhead.Fallback(notRun(t)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, held, queued := fullPool(t, how)
				f, err := bulkhead.Submit(p, fadingContext{t.Context(), new(int)}, notRun(t))
				require.NoError(t, err)
				_, err = f.Wait(t.Context())
				assert.Equal(t, context.Canceled, err)
				s := p.Snapshot()
				assert.Equal(t, [2]uint64{1, 1}, [2]uint64{s.Left, outcomes(s)})
				assert.Zero(t, s.CallerRunning)
				held.finish()
				queued.finish()
			})
		})
	}
}
