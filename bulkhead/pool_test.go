package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// A held task runs until it is let go.
type held struct {
	*bulkhead.Future[int]
	begun chan struct{} // closed when it runs
	letGo chan struct{}
}

func newHeld() (*held, func(context.Context) (int, error)) {
	h := &held{begun: make(chan struct{}), letGo: make(chan struct{})}
	return h, func(context.Context) (int, error) {
		close(h.begun)
		<-h.letGo
		return 1, nil
	}
}

// submitHeld submits a held task, which must be accepted.
func submitHeld(t testing.TB, ctx context.Context, p *bulkhead.Pool) *held {
	t.Helper()
	h, fn := newHeld()
	var err error
	h.Future, err = bulkhead.Submit(p, ctx, fn)
	require.NoError(t, err)
	return h
}

func (h *held) finish() { close(h.letGo) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// bubble runs f in a synctest bubble, which does not end before all its
// goroutines have: no test that uses it can leak a worker.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// assertAtRest checks that a pool has nothing left to do and no goroutine.
func assertAtRest(t testing.TB, p *bulkhead.Pool) {
	t.Helper()
	s := p.Snapshot()
	assert.Zero(t, [7]int{s.Workers, s.Active, s.Abandoned, s.Idle, s.Queued, s.WaitingForRoom, s.CallerRunning},
		"workers, active, abandoned, idle, queued, waiting for room, caller running")
}

func outcomes(s bulkhead.PoolSnapshot) uint64 {
	return s.Completed + s.Failed + s.Panicked + s.CallerRun + s.FellBack + s.Discarded + s.Full + s.TimedOut + s.Closed + s.Left
}

// E22: what makes no sense is refused when the pool is built or changed, not
// when the first task comes.
func TestPoolNonsensePanics(t *testing.T) {
	good := bulkhead.PoolConfig{Core: 1, Max: 2, KeepAlive: 1, Backlog: 1}
	for name, spoil := range map[string]func(*bulkhead.PoolConfig){
		"zero max":            func(c *bulkhead.PoolConfig) { c.Core, c.Max = 0, 0 },
		"negative max":        func(c *bulkhead.PoolConfig) { c.Core, c.Max = 0, -1 },
		"negative core":       func(c *bulkhead.PoolConfig) { c.Core = -1 },
		"core over max":       func(c *bulkhead.PoolConfig) { c.Core = 3 },
		"negative keep-alive": func(c *bulkhead.PoolConfig) { c.KeepAlive = -1 },
		"negative backlog":    func(c *bulkhead.PoolConfig) { c.Backlog = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			spoil(&cfg)
			assertPanics(t, func() { bulkhead.NewPool(cfg) })
			p := bulkhead.NewPool(good)
			assertPanics(t, func() { p.Configure(cfg) })
			assert.Equal(t, bulkhead.PoolSnapshot{Core: 1, Max: 2, KeepAlive: 1, Backlog: 1}, p.Snapshot())
		})
	}
	p := bulkhead.NewPool(good)
	assertPanics(t, func() { p.Resize(3, 2) })
	assertPanics(t, func() { p.Resize(0, 0) })
	assertPanics(t, func() { _, _ = bulkhead.Submit[int](p, t.Context(), nil) })
	assertPanics(t, func() { _ = p.Do(t.Context(), nil) })
	assertPanics(t, func() { bulkhead.WaitForRoom(0, 1) })
	assertPanics(t, func() { bulkhead.WaitForRoom(1, 0) })
	assertPanics(t, func() { bulkhead.Fallback[int](nil) })
	assert.NoError(t, p.Drain(t.Context()), "the pool is not locked")
}

func TestZeroPoolRefuses(t *testing.T) {
	var p bulkhead.Pool
	_, err := bulkhead.Submit(&p, t.Context(), notRun(t))
	assert.Equal(t, bulkhead.ErrFull, err)
	p.Configure(bulkhead.PoolConfig{Max: 1})
	assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
	assert.NoError(t, p.Drain(t.Context()))
}

// A task takes an idle worker, else a new one, else waits; only then is it
// turned away. Workers are started by need, also those of the core.
func TestPoolOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 2, KeepAlive: time.Hour, Backlog: 1})
		assertAtRest(t, p)

		first := submitHeld(t, t.Context(), p)
		first.finish()
		synctest.Wait()
		assert.Equal(t, 1, p.Snapshot().Idle)

		first = submitHeld(t, t.Context(), p)
		s := p.Snapshot()
		assert.Equal(t, [3]int{1, 1, 0}, [3]int{s.Workers, s.Active, s.Idle}, "the idle one works")
		second := submitHeld(t, t.Context(), p)
		s = p.Snapshot()
		assert.Equal(t, [3]int{2, 2, 0}, [3]int{s.Workers, s.Active, s.Queued}, "max before backlog")
		third := submitHeld(t, t.Context(), p)
		s = p.Snapshot()
		assert.Equal(t, [3]int{2, 2, 1}, [3]int{s.Workers, s.Active, s.Queued})
		_, err := bulkhead.Submit(p, t.Context(), nothing)
		assert.Equal(t, bulkhead.ErrFull, err)
		assert.Equal(t, bulkhead.ErrFull, p.Do(t.Context(), func(context.Context) error { return nil }))

		synctest.Wait()
		assert.True(t, isClosed(first.begun) && isClosed(second.begun))
		assert.False(t, isClosed(third.begun))
		second.finish()
		synctest.Wait()
		assert.True(t, isClosed(third.begun))
		first.finish()
		third.finish()
		assert.NoError(t, p.Drain(t.Context()))
		assertAtRest(t, p)
		s = p.Snapshot()
		assert.Equal(t, [3]uint64{4, 2, 6}, [3]uint64{s.Completed, s.Full, outcomes(s)})
		assert.Equal(t, 2, s.Peak)
	})
}

func TestPoolIsFIFO(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 100})
		h := submitHeld(t, t.Context(), p)
		var order []int
		for i := range 100 {
			_, err := bulkhead.Submit(p, t.Context(), func(context.Context) (int, error) {
				order = append(order, i) // one worker: no two at once
				return i, nil
			})
			require.NoError(t, err)
		}
		h.finish()
		require.NoError(t, p.Drain(t.Context()))
		assert.Len(t, order, 100)
		assert.True(t, slices.IsSorted(order))
	})
}

// Without a backlog a submitter that has seen the end of a task must find the
// worker free, however the goroutines run: it would be refused.
func TestPoolHandsOverDirectly(t *testing.T) {
	for name, cfg := range map[string]bulkhead.PoolConfig{
		"core":          {Core: 2, Max: 2},
		"keep-alive":    {Max: 2, KeepAlive: time.Minute},
		"no keep-alive": {Max: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := bulkhead.NewPool(cfg)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for range 2000 {
						f, err := bulkhead.Submit(p, t.Context(), nothing)
						if !assert.NoError(t, err) {
							return
						}
						_, err = f.Wait(t.Context())
						assert.NoError(t, err)
						if !assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil })) {
							return
						}
					}
				})
			}
			wg.Wait()
			require.NoError(t, p.Drain(t.Context()))
			assert.EqualValues(t, 8000, p.Snapshot().Completed)
			assertAtRest(t, p)
		})
	}
}

func TestFuture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 2})
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		broken := errors.New("broken")

		f, err := bulkhead.Submit(p, t.Context(), func(ctx context.Context) (string, error) {
			assert.Equal(t, t.Context(), ctx)
			return "half", broken
		})
		require.NoError(t, err)
		<-f.Done()
		for range 100 { // a select with both ready would pick at random
			v, err := f.Wait(dead)
			require.Equal(t, "half", v)
			require.Equal(t, broken, err)
		}
		assert.EqualValues(t, 1, p.Snapshot().Failed)

		h := submitHeld(t, t.Context(), p)
		_, err = h.Wait(dead)
		assert.Equal(t, context.Canceled, err)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		v, err := h.Wait(soon)
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Zero(t, v)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, p.Snapshot().Active, "Wait leaves, the task does not")

		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				v, err := h.Wait(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, 1, v)
			})
		}
		synctest.Wait()
		assert.False(t, isClosed(h.Done()))
		h.finish()
		wg.Wait()
		assert.Zero(t, p.Snapshot().Active)
	})
}

// E10: the caller of Do leaves at its deadline, and the work goes on counting
// until it is done.
func TestDoLeavesAndTheWorkCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := p.Do(ctx, func(got context.Context) error {
			assert.Equal(t, ctx, got)
			time.Sleep(300 * time.Millisecond)
			return errors.New("too late for anybody")
		})
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, 50*time.Millisecond, time.Since(start))

		time.Sleep(249 * time.Millisecond)
		s := p.Snapshot()
		assert.Equal(t, 1, s.Active)
		assert.Equal(t, 1, s.Abandoned)
		assert.Zero(t, outcomes(s))
		assert.Equal(t, bulkhead.ErrFull, p.Do(t.Context(), func(context.Context) error { return nil }))

		time.Sleep(2 * time.Millisecond)
		s = p.Snapshot()
		assert.Zero(t, s.Active)
		assert.Zero(t, s.Abandoned)
		assert.Equal(t, [2]uint64{1, 1}, [2]uint64{s.Failed, s.Full})
		assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
	})
}

// A function that has ended by the time that Do looks at its context has the
// last word. A select with both ready would pick at random.
func TestDoPrefersTheResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		defer p.Close()
		broken := errors.New("broken")
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			late := lateDone{Context: ctx, last: func() { synctest.Wait(); cancel() }}
			require.Equal(t, broken, p.Do(late, func(context.Context) error { return broken }))
		}
		s := p.Snapshot()
		assert.Equal(t, [2]uint64{200, 0}, [2]uint64{s.Failed, s.Left})
	})
}

// The same holds for a future whose task ends as the context of the wait does.
func TestFuturePrefersTheResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		defer p.Close()
		for range 200 {
			h := submitHeld(t, t.Context(), p)
			ctx, cancel := context.WithCancel(t.Context())
			v, err := h.Wait(lateDone{ctx, func() { h.finish(); synctest.Wait(); cancel() }})
			require.NoError(t, err)
			require.Equal(t, 1, v)
		}
	})
}

// A lateDone does something when it is asked for its Done channel.
type lateDone struct {
	context.Context
	last func()
}

func (c lateDone) Done() <-chan struct{} { c.last(); return c.Context.Done() }

// What leaves the backlog, by Do's caller or by its context, frees its place at
// once and is not run.
func TestPoolLeavingTheBacklog(t *testing.T) {
	leave := map[string]func(*testing.T, context.Context, *bulkhead.Pool) (<-chan struct{}, func() error){
		"Do": func(t *testing.T, ctx context.Context, p *bulkhead.Pool) (<-chan struct{}, func() error) {
			done := make(chan struct{})
			var err error
			go func() {
				defer close(done)
				err = p.Do(ctx, func(context.Context) error { t.Error("run"); return nil })
			}()
			return done, func() error { return err }
		},
		"Submit": func(t *testing.T, ctx context.Context, p *bulkhead.Pool) (<-chan struct{}, func() error) {
			f, err := bulkhead.Submit(p, ctx, func(context.Context) (int, error) { t.Error("run"); return 0, nil })
			require.NoError(t, err)
			return f.Done(), func() error { _, err := f.Wait(t.Context()); return err }
		},
	}
	for name, begin := range leave {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 3})
				h := submitHeld(t, t.Context(), p)
				first := submitHeld(t, t.Context(), p)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				done, err := begin(t, ctx, p)
				synctest.Wait()
				last := submitHeld(t, t.Context(), p)
				assert.Equal(t, 3, p.Snapshot().Queued)
				<-done
				assert.Equal(t, context.DeadlineExceeded, err())
				assert.Equal(t, time.Second, time.Since(start))
				s := p.Snapshot()
				assert.Equal(t, 2, s.Queued)
				assert.EqualValues(t, 1, s.Left)
				assert.Zero(t, s.Abandoned)
				for _, h := range []*held{h, first, last} {
					synctest.Wait()
					assert.True(t, isClosed(h.begun))
					h.finish()
				}
				assert.NoError(t, p.Drain(t.Context()))
				assert.EqualValues(t, 4, outcomes(p.Snapshot()))
			})
		})
	}
}

// A deadOnAsking has no Done channel, so nobody can watch it; it can only be
// asked, and then is dead when it says so.
type deadOnAsking struct {
	context.Context
	err *error
}

func (c deadOnAsking) Err() error { return *c.err }

// E14, E15: a task whose context is found dead when its turn comes is not run,
// and the turn goes on to the next.
func TestPoolTurnOfTheDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 2})
		h := submitHeld(t, t.Context(), p)
		own := errors.New("own error of a context")
		var err error
		dead, submitErr := bulkhead.Submit(p, deadOnAsking{context.Background(), &err}, func(context.Context) (int, error) {
			t.Error("run")
			return 0, nil
		})
		require.NoError(t, submitErr)
		next := submitHeld(t, t.Context(), p)
		err = own
		h.finish()
		_, got := dead.Wait(t.Context())
		assert.Equal(t, own, got)
		<-next.begun
		next.finish()
		assert.NoError(t, p.Drain(t.Context()))
		s := p.Snapshot()
		assert.Equal(t, [2]uint64{2, 1}, [2]uint64{s.Completed, s.Left})
	})
}

func TestPoolInfo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := bulkhead.PoolConfig{Max: 1, Backlog: 2, OnFull: bulkhead.WaitForRoom(5*time.Second, 1)}
		p := bulkhead.NewPool(cfg)
		start := time.Now()
		submit := func(ctx context.Context) (*bulkhead.Future[bulkhead.Info], *bulkhead.Info, chan struct{}, error) {
			info := &bulkhead.Info{Limit: 99, Position: 99}
			letGo := make(chan struct{})
			f, err := bulkhead.SubmitInfo(p, ctx, info, func(context.Context) (bulkhead.Info, error) {
				seen := *info
				<-letGo
				return seen, nil
			})
			return f, info, letGo, err
		}
		first, _, letGo, err := submit(t.Context())
		require.NoError(t, err)
		second, _, letGo2, err := submit(t.Context())
		require.NoError(t, err)
		close(letGo2)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		third, thirdInfo, _, err := submit(ctx)
		require.NoError(t, err)

		// At the door, until the third has left the backlog.
		var atDoor bulkhead.Info
		door := make(chan error, 1)
		go func() {
			door <- p.DoInfo(t.Context(), &atDoor, func(context.Context) error {
				assert.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1, Position: 3, Arrived: start, Waited: 3 * time.Second}, atDoor)
				return nil
			})
		}()
		synctest.Wait()
		_, info, _, err := submit(t.Context())
		assert.Equal(t, bulkhead.ErrFull, err)
		assert.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1, Queued: 2}, *info, "refused")

		<-third.Done()
		assert.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1, Queued: 2, Position: 2, Arrived: start, Waited: 2 * time.Second}, *thirdInfo, "left; the one at the door has its place")
		time.Sleep(time.Second)
		close(letGo)
		got, err := first.Wait(t.Context())
		assert.NoError(t, err)
		assert.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1}, got, "at once")
		got, err = second.Wait(t.Context())
		assert.NoError(t, err)
		assert.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1, Queued: 1, Position: 1, Arrived: start, Waited: 3 * time.Second}, got)
		assert.NoError(t, <-door)

		_, _, letGo, err = submit(t.Context())
		require.NoError(t, err)
		_, info, letGo2, err = submit(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		cfg.Max = 2
		p.Configure(cfg)
		close(letGo)
		close(letGo2)
		synctest.Wait()
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2, Position: 1, Arrived: info.Arrived, Waited: time.Second}, *info, "more room")

		var timedOut bulkhead.Info
		h, h2 := submitHeld(t, t.Context(), p), submitHeld(t, t.Context(), p)
		cfg.Backlog = 0
		p.Configure(cfg)
		assert.Equal(t, bulkhead.ErrWaitTimeout, p.DoInfo(t.Context(), &timedOut, func(context.Context) error { return nil }))
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2, Position: 1, Arrived: timedOut.Arrived, Waited: 5 * time.Second}, timedOut)
		cfg.Backlog = 1
		p.Configure(cfg)
		_, info, _, err = submit(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		p.CloseNow()
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2, Queued: 0, Position: 1, Arrived: info.Arrived, Waited: time.Second}, *info, "dropped")
		_, info, _, err = submit(t.Context())
		assert.Equal(t, bulkhead.ErrClosed, err)
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2}, *info)
		h.finish()
		h2.finish()
	})
}

// An Info may be used again, and the idle are not in flight.
func TestPoolInfoUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 2, Max: 2})
		h, h2 := submitHeld(t, t.Context(), p), submitHeld(t, t.Context(), p)
		h.finish()
		h2.finish()
		synctest.Wait()
		info := bulkhead.Info{Limit: 99, InFlight: 99, Queued: 99, Position: 99, Arrived: time.Now(), Waited: time.Hour}
		require.NoError(t, p.DoInfo(t.Context(), &info, func(context.Context) error { return nil }))
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 1}, info)
		require.NoError(t, p.Drain(t.Context()))
	})
}

// E15: a dead context gets its own error, never a worker, whatever else is true.
func TestPoolDeadOnArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		free := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		require.NoError(t, free.Do(t.Context(), func(context.Context) error { return nil }))
		full := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, OnFull: bulkhead.CallerRuns()})
		h := submitHeld(t, t.Context(), full)
		closed := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
		closed.Close()
		for name, p := range map[string]*bulkhead.Pool{"free": free, "full": full, "closed": closed} {
			for range 100 {
				f, err := bulkhead.Submit(p, ctx, func(context.Context) (int, error) { t.Error("run"); return 0, nil })
				require.Equal(t, context.Canceled, err, name)
				require.Nil(t, f)
				require.Equal(t, context.Canceled, p.Do(ctx, func(context.Context) error { t.Error("run"); return nil }))
			}
			assert.EqualValues(t, 200, p.Snapshot().Left)
		}
		h.finish()
		free.Close()
	})
}

// A watchedContext counts who watches it.
type watchedContext struct {
	context.Context
	watchers *atomic.Int32
	watched  func() // may be nil
}

// Value hides the context inside, whose children would be added behind our back.
func (c watchedContext) Value(any) any { return nil }

func (c watchedContext) AfterFunc(f func()) func() bool {
	c.watchers.Add(1)
	stop := context.AfterFunc(c.Context, func() { c.watchers.Add(-1); f() })
	if c.watched != nil {
		c.watched()
	}
	return func() bool {
		stopped := stop()
		if stopped {
			c.watchers.Add(-1)
		}
		return stopped
	}
}

// E70: a context that outlives its tasks does not collect them, however they
// leave the backlog.
func TestPoolStopsWatching(t *testing.T) {
	for name, end := range map[string]func(*bulkhead.Pool, *held, context.CancelFunc){
		"run":     func(_ *bulkhead.Pool, h *held, _ context.CancelFunc) { h.finish() },
		"dropped": func(p *bulkhead.Pool, h *held, _ context.CancelFunc) { p.CloseNow(); h.finish() },
		"left":    func(_ *bulkhead.Pool, h *held, cancel context.CancelFunc) { cancel(); h.finish() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 3})
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				var watchers atomic.Int32
				ctx := watchedContext{Context: parent, watchers: &watchers}
				h := submitHeld(t, ctx, p)
				assert.Zero(t, watchers.Load(), "a task that runs is not watched")
				for range 3 {
					_, err := bulkhead.Submit(p, ctx, nothing)
					require.NoError(t, err)
				}
				assert.EqualValues(t, 3, watchers.Load())
				end(p, h, cancel)
				synctest.Wait()
				assert.Zero(t, watchers.Load())
				assertAtRest(t, p)
			})
		})
	}
}

// The worker may come for a task while it is being put under watch.
func TestPoolBeginsWhileWatchIsSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 1})
		h := submitHeld(t, t.Context(), p)
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		var watchers atomic.Int32
		f, err := bulkhead.Submit(p, watchedContext{parent, &watchers, func() {
			h.finish()
			synctest.Wait() // both have run
		}}, nothing)
		require.NoError(t, err)
		assert.True(t, isClosed(f.Done()))
		assert.Zero(t, watchers.Load())
		assertAtRest(t, p)
	})
}

// A future that is kept keeps neither the function of its task nor the context.
func TestFutureHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type load [1 << 16]byte
		type key struct{}
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
		submit := func() (*bulkhead.Future[int], weak.Pointer[load], weak.Pointer[load]) {
			inFn, inCtx := new(load), new(load)
			f, err := bulkhead.Submit(p, context.WithValue(t.Context(), key{}, inCtx), func(context.Context) (int, error) {
				return int(inFn[0]), nil
			})
			require.NoError(t, err)
			return f, weak.Make(inFn), weak.Make(inCtx)
		}
		f, weakFn, weakCtx := submit()
		synctest.Wait() // the worker is idle, and holds nothing either
		runtime.GC()
		assert.Nil(t, weakFn.Value(), "the function")
		assert.Nil(t, weakCtx.Value(), "the context")
		_, err := f.Wait(t.Context())
		assert.NoError(t, err)
		p.Close()
	})
}
