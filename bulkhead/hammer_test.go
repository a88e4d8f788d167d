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

// E14: grants race with time-outs and cancels at random. A permit granted to
// somebody who has given up and returned by nobody lets capacity decay to zero.
func TestCapacitySurvivesGivingUp(t *testing.T) {
	const goroutines, rounds, limit = 64, 200, 4
	b := bulkhead.New(bulkhead.Config{Limit: limit, Backlog: goroutines})
	upTo1ms := func() time.Duration { return time.Duration(rand.Int64N(int64(time.Millisecond))) }

	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				b.Configure(bulkhead.Config{Limit: limit, Backlog: goroutines, MaxWait: upTo1ms()})
				ctx, cancel := context.WithCancel(t.Context())
				switch rand.IntN(3) {
				case 0:
					go cancel()
				case 1:
					time.AfterFunc(upTo1ms(), cancel)
				}
				if p, err := b.Acquire(ctx); err == nil {
					n := inside.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					for range rand.IntN(100) {
						runtime.Gosched()
					}
					inside.Add(-1)
					p.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()

	s := b.Snapshot()
	assert.EqualValues(t, limit, most.Load())
	assert.Equal(t, limit, s.Peak)
	assert.Zero(t, s.InFlight)
	assert.Zero(t, s.Queued)
	assert.EqualValues(t, goroutines*rounds, ended(s), "every call counts once")
	assert.NotZero(t, s.Granted)
	assert.NotZero(t, s.TimedOut)
	assert.NotZero(t, s.Left)
	b.Configure(bulkhead.Config{Limit: limit})
	assert.Len(t, hold(t, b), limit, "capacity")
}

// A burst let go at once finds the limit exactly, round after round; a check
// and an increment in two steps let one too many in.
func TestBurstFindsTheLimitExactly(t *testing.T) {
	const callers, rounds, limit = 200, 300, 5
	b := bulkhead.New(bulkhead.Config{Limit: limit})
	for range rounds {
		var wg sync.WaitGroup
		var admitted atomic.Int32
		start := make(chan struct{})
		permits := make(chan bulkhead.Permit, callers)
		for range callers {
			wg.Go(func() {
				<-start
				if p, err := b.Acquire(t.Context()); err == nil {
					admitted.Add(1)
					permits <- p
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, limit, admitted.Load())
		for range limit {
			(<-permits).Release()
		}
	}
	s := b.Snapshot()
	assert.EqualValues(t, rounds*limit, s.Granted)
	assert.EqualValues(t, rounds*(callers-limit), s.Full)
	assert.Equal(t, limit, s.Peak)
}

// E68: mixed ends at high concurrency leave every gauge at zero, and no sample
// on the way is out of range.
func TestFiguresDoNotDrift(t *testing.T) {
	const goroutines, rounds, limit, backlog = 64, 160, 8, 16
	b := bulkhead.New(bulkhead.Config{Limit: limit, Backlog: backlog, MaxWait: time.Hour})
	stop := make(chan struct{})
	var workers, sampler sync.WaitGroup
	sampler.Go(func() {
		last := b.Snapshot()
		for {
			select {
			case <-stop:
				return
			default:
			}
			s := b.Snapshot()
			assert.True(t, 0 <= s.InFlight && s.InFlight <= limit, "in flight %d", s.InFlight)
			assert.True(t, 0 <= s.Queued && s.Queued <= backlog, "queued %d", s.Queued)
			assert.True(t, s.Queued == 0 || s.InFlight == limit, "%d wait beside %d in flight", s.Queued, s.InFlight)
			assert.True(t, s.Granted >= last.Granted && s.Left >= last.Left && s.Full >= last.Full &&
				s.TimedOut >= last.TimedOut && s.Peak >= last.Peak, "a count fell")
			last = s
			runtime.Gosched()
		}
	})
	for range goroutines {
		workers.Go(func() {
			for range rounds {
				func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if rand.IntN(2) == 0 {
						go cancel()
					}
					p, err := b.Acquire(ctx)
					if err != nil {
						return
					}
					switch rand.IntN(3) {
					case 0: // the permit changes hands
						workers.Go(p.Release)
					case 1:
						defer p.Release()
						panic("the work failed")
					default:
						runtime.Gosched()
						p.Release()
					}
				}()
			}
		})
	}
	workers.Wait()
	close(stop)
	sampler.Wait()
	s := b.Snapshot()
	assert.Zero(t, s.InFlight)
	assert.Zero(t, s.Queued)
	assert.EqualValues(t, goroutines*rounds, ended(s))
	assert.Len(t, hold(t, b), limit)
}

// Permits go from waiter to waiter while other waiters leave. A grant is counted
// before its caller hears of it, once, and never for a caller that has left; and
// in each sample the permits that are counted and not back are in flight.
func TestGrantsAreCountedWithTheirPermits(t *testing.T) {
	const goroutines, rounds, limit = 16, 500, 2
	b := bulkhead.New(bulkhead.Config{Limit: limit, Backlog: goroutines, MaxWait: time.Hour})
	var returned, releasing atomic.Uint64
	stop := make(chan struct{})
	var workers, sampler sync.WaitGroup
	sampler.Go(func() {
		var last uint64
		for {
			select {
			case <-stop:
				return
			default:
			}
			before := returned.Load()
			s := b.Snapshot()
			after := releasing.Load()
			assert.GreaterOrEqual(t, s.Granted, before, "a grant was reported before it was counted")
			assert.GreaterOrEqual(t, s.Granted, last, "the count fell")
			assert.GreaterOrEqual(t, uint64(s.InFlight)+after, s.Granted, "a grant was counted without its permit")
			last = s.Granted
			runtime.Gosched()
		}
	})
	for range goroutines {
		workers.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(3) == 0 {
					go cancel()
				}
				if p, err := b.Acquire(ctx); err == nil {
					returned.Add(1)
					runtime.Gosched()
					releasing.Add(1)
					p.Release()
				}
				cancel()
			}
		})
	}
	workers.Wait()
	close(stop)
	sampler.Wait()
	s := b.Snapshot()
	assert.Equal(t, returned.Load(), s.Granted)
	assert.EqualValues(t, goroutines*rounds, s.Granted+s.Left)
	assert.NotZero(t, s.Left)
	assert.Zero(t, s.InFlight)
}

// E70: waits leave neither goroutines nor timers nor waiters behind.
func TestWaitsLeaveNothingBehind(t *testing.T) {
	const workers, waits = 8, 10_000
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: workers, MaxWait: time.Hour})
	// The workers live as long as the test, so that goroutines can be counted
	// while nobody is starting or ending.
	var parked, done sync.WaitGroup
	var waited atomic.Int64
	rounds := make(chan int)
	for range workers {
		done.Go(func() {
			for n := range rounds {
				for range n {
					var info bulkhead.Info
					p, err := b.AcquireInfo(t.Context(), &info)
					if assert.NoError(t, err) {
						waited.Add(min(1, int64(info.Position)))
						runtime.Gosched() // let the others queue
						p.Release()
					}
				}
				parked.Done()
			}
		})
	}
	run := func(n int) (goroutines int, objects uint64) {
		parked.Add(workers)
		for range workers {
			rounds <- n
		}
		parked.Wait()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapObjects
	}
	goroutines, objects := run(10)
	goroutinesAfter, objectsAfter := run(waits / workers)
	assert.Greater(t, waited.Load(), int64(waits/2), "most calls are meant to queue")
	assert.LessOrEqual(t, goroutinesAfter, goroutines)
	assert.Less(t, int64(objectsAfter)-int64(objects), int64(waits/10))
	close(rounds)
	done.Wait()
}

// E70: a bulkhead owns nothing that outlives it. The bubble would not end with
// a goroutine left in it.
func TestNewOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goroutines := runtime.NumGoroutine()
		for i := range 1000 {
			b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
			if i%2 == 0 {
				b.Close()
			}
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	})
}
