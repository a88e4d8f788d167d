package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

func blowUp(context.Context) (int, error)  { panic("oops") }
func walkOut(context.Context) (int, error) { runtime.Goexit(); return 1, nil }

// A task that does not return becomes an error with the place where it happened;
// the worker lives on and takes what waits.
func TestPoolTaskDoesNotReturn(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		fn    func(context.Context) (int, error)
		value any
		text  string
		where string
	}{
		"panic":       {blowUp, "oops", "bulkhead: task panicked: oops", "bulkhead_test.blowUp"},
		"panic error": {func(context.Context) (int, error) { panic(broken) }, broken, "bulkhead: task panicked: broken", "TestPoolTaskDoesNotReturn"},
		"panic nil":   {func(context.Context) (int, error) { panic(nil) }, new(runtime.PanicNilError), "bulkhead: task panicked: " + new(runtime.PanicNilError).Error(), "TestPoolTaskDoesNotReturn"},
		"Goexit":      {walkOut, nil, "bulkhead: task called runtime.Goexit", "bulkhead_test.walkOut"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 2})
				f, err := bulkhead.Submit(p, t.Context(), tc.fn)
				require.NoError(t, err)
				next, err := bulkhead.Submit(p, t.Context(), nothing)
				require.NoError(t, err)

				v, err := f.Wait(t.Context())
				assert.Zero(t, v)
				var panicked *bulkhead.PanicError
				require.ErrorAs(t, err, &panicked)
				assert.EqualError(t, err, tc.text)
				assert.IsType(t, tc.value, panicked.Value)
				assert.Contains(t, string(panicked.Stack), tc.where)
				assert.Equal(t, tc.value == any(broken), errors.Is(err, broken))

				v, err = next.Wait(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, 1, v)
				s := p.Snapshot()
				assert.Equal(t, [2]uint64{1, 1}, [2]uint64{s.Panicked, s.Completed})
				assert.Equal(t, [2]int{1, 1}, [2]int{s.Workers, s.Idle})

				err = p.Do(t.Context(), func(ctx context.Context) error { _, err := tc.fn(ctx); return err })
				require.ErrorAs(t, err, &panicked)
				assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
				assert.NoError(t, p.Drain(t.Context()))
			})
		})
	}
}

// The last task of a worker that is to end may call Goexit, too.
func TestPoolGoexitAndRetire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
		f, err := bulkhead.Submit(p, t.Context(), walkOut)
		require.NoError(t, err)
		_, err = f.Wait(t.Context())
		assert.Error(t, err)
		assertAtRest(t, p)
		assert.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func workers(p *bulkhead.Pool) [2]int {
	synctest.Wait()
	s := p.Snapshot()
	return [2]int{s.Workers, s.Idle}
}

// busy makes n workers work at once, and end one after the other every gap.
func busy(t *testing.T, p *bulkhead.Pool, n int, gap time.Duration) {
	var tasks []*held
	for range n {
		tasks = append(tasks, submitHeld(t, t.Context(), p))
	}
	for i, h := range tasks {
		if i > 0 {
			time.Sleep(gap)
		}
		h.finish()
	}
	synctest.Wait()
}

// Workers beyond the core stay exactly the keep-alive, each its own; the core
// stays for ever.
func TestPoolKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 4, KeepAlive: 10 * time.Second})
		busy(t, p, 4, time.Second) // idle since 0, 1, 2 and 3 s
		assert.Equal(t, [2]int{4, 4}, workers(p))
		time.Sleep(7*time.Second - 1)
		assert.Equal(t, [2]int{4, 4}, workers(p))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, [2]int{3, 3}, workers(p))
		time.Sleep(time.Second)
		assert.Equal(t, [2]int{2, 2}, workers(p))
		time.Sleep(time.Second - 1)
		assert.Equal(t, [2]int{2, 2}, workers(p))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, [2]int{1, 1}, workers(p))
		time.Sleep(24 * time.Hour)
		assert.Equal(t, [2]int{1, 1}, workers(p))
		p.Close()
		assertAtRest(t, p)
	})
}

// The worker that was idle last works next, so that those not needed age.
func TestPoolKeepAliveUnderLightLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 3, KeepAlive: 10 * time.Second})
		busy(t, p, 3, 0)
		for range 9 {
			time.Sleep(time.Second)
			require.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
		}
		assert.Equal(t, [2]int{3, 3}, workers(p))
		time.Sleep(time.Second)
		assert.Equal(t, [2]int{1, 1}, workers(p), "one had work a second ago")
		time.Sleep(9 * time.Second)
		assert.Equal(t, [2]int{0, 0}, workers(p), "and stays its own keep-alive")

		busy(t, p, 2, 0) // the reaper comes again
		time.Sleep(10 * time.Second)
		assert.Equal(t, [2]int{0, 0}, workers(p))
	})
}

func TestPoolKeepAliveChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := bulkhead.PoolConfig{Core: 4, Max: 4, KeepAlive: 10 * time.Second}
		p := bulkhead.NewPool(cfg)
		busy(t, p, 4, 0)
		time.Sleep(time.Hour)
		assert.Equal(t, [2]int{4, 4}, workers(p))

		p.Resize(2, 4)
		time.Sleep(10*time.Second - 1)
		assert.Equal(t, [2]int{4, 4}, workers(p), "the keep-alive begins when they are surplus")
		time.Sleep(time.Nanosecond)
		assert.Equal(t, [2]int{2, 2}, workers(p), "and is not one after the other")

		p.Resize(1, 4)
		time.Sleep(3 * time.Second)
		cfg.Core, cfg.KeepAlive = 1, 5*time.Second
		p.Configure(cfg)
		time.Sleep(2*time.Second - 1)
		assert.Equal(t, [2]int{2, 2}, workers(p))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, [2]int{1, 1}, workers(p), "a shorter one holds at once")

		cfg.Core, cfg.KeepAlive = 0, 0
		p.Configure(cfg)
		assert.Equal(t, [2]int{0, 0}, workers(p))
	})
}

// A shorter keep-alive also holds for workers that are busy when it comes, and
// the reaper, which was set for an earlier rest, must come earlier for them.
func TestPoolKeepAliveShortenedWhileBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, KeepAlive: time.Hour})
		busy(t, p, 1, 0)
		h := submitHeld(t, t.Context(), p)
		p.Configure(bulkhead.PoolConfig{Max: 1, KeepAlive: time.Second})
		h.finish()
		synctest.Wait()
		time.Sleep(time.Second)
		assert.Equal(t, [2]int{0, 0}, workers(p))
	})
}

// Surplus workers end when idle and at no other time.
func TestPoolShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 5, Max: 5, KeepAlive: time.Hour, Backlog: 10})
		var tasks []*held
		for range 3 {
			tasks = append(tasks, submitHeld(t, t.Context(), p))
		}
		busy(t, p, 2, 0)
		assert.Equal(t, [2]int{5, 2}, workers(p))
		p.Resize(1, 4)
		assert.Equal(t, [2]int{4, 1}, workers(p), "an idle one ends at once")
		p.Resize(1, 2)
		assert.Equal(t, [2]int{3, 0}, workers(p), "running ones stay")

		waiting := submitHeld(t, t.Context(), p)
		tasks[0].finish()
		synctest.Wait()
		s := p.Snapshot()
		assert.Equal(t, [3]int{2, 2, 1}, [3]int{s.Workers, s.Active, s.Queued}, "none starts until below")
		assert.False(t, isClosed(waiting.begun))
		tasks[1].finish()
		synctest.Wait()
		assert.True(t, isClosed(waiting.begun))
		tasks[2].finish()
		waiting.finish()
		assert.NoError(t, p.Drain(t.Context()))
		s = p.Snapshot()
		assert.Equal(t, [2]uint64{6, 6}, [2]uint64{s.Completed, outcomes(s)})
	})
}

func TestPoolGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, Backlog: 3, OnFull: bulkhead.WaitForRoom(time.Hour, 10)})
		var tasks []*held
		for range 4 {
			tasks = append(tasks, submitHeld(t, t.Context(), p))
		}
		var door []*await
		for range 3 {
			h, fn := newHeld()
			tasks, door = append(tasks, h), append(door, submitAsync(t.Context(), p, fn))
			synctest.Wait()
		}
		begun := func() (n int) {
			synctest.Wait()
			for i, h := range tasks {
				if isClosed(h.begun) {
					assert.Equal(t, i, n, "out of order")
					n++
				}
			}
			return n
		}
		assert.Equal(t, 1, begun())
		p.Resize(0, 3)
		assert.Equal(t, 3, begun(), "exactly those that fit")
		s := p.Snapshot()
		assert.Equal(t, [2]int{3, 1}, [2]int{s.Queued, s.WaitingForRoom})
		assert.False(t, isClosed(door[2].done))

		p.Configure(bulkhead.PoolConfig{Max: 3, Backlog: 10})
		assert.Equal(t, 3, begun())
		s = p.Snapshot()
		assert.Equal(t, [2]int{4, 0}, [2]int{s.Queued, s.WaitingForRoom}, "a larger backlog")

		p.Configure(bulkhead.PoolConfig{Max: 3, Backlog: 1})
		assert.Equal(t, 4, p.Snapshot().Queued, "those that wait keep their places")
		_, err := bulkhead.Submit(p, t.Context(), nothing)
		assert.Equal(t, bulkhead.ErrFull, err)

		p.Close()
		p.Resize(0, 7)
		assert.Equal(t, 7, begun(), "also when closed")
		for _, h := range tasks {
			h.finish()
		}
		assert.NoError(t, p.Drain(t.Context()))
	})
}
