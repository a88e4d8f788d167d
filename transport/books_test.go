package transport_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// An ending is how the base and the caller of one call behave.
type ending int

const (
	bodiless ending = iota
	readAll
	readAllOf500
	closeUnread
	closeThrice
	breakOff
	closeSession
	abandonAndCancel
	baseFails
	basePanics
	baseExits
	cancelBeforeHeaders
	endings

	drop // apart from the others: it holds its permit until the garbage collector comes
)

// A trip is one call of a load. It travels in the request's context.
type trip struct {
	ending  ending
	reached bool   // the base
	leave   func() // the call needs no room any more
}

type tripKey struct{}

// A load makes calls that end in every way in which calls end, and is the base
// that they meet.
type load struct {
	inside, worst          atomic.Int64 // calls that take room: in the base, or with an open body
	arrived, reached, left atomic.Int64
	refused                [8]atomic.Int64 // by reason
}

func (l *load) RoundTrip(r *http.Request) (*http.Response, error) {
	trip := r.Context().Value(tripKey{}).(*trip)
	trip.reached = true
	l.reached.Add(1)
	n := l.inside.Add(1)
	for worst := l.worst.Load(); n > worst && !l.worst.CompareAndSwap(worst, n); worst = l.worst.Load() {
	}
	trip.leave = sync.OnceFunc(func() { l.inside.Add(-1) })

	body := &leaving{chunks{left: 3, end: io.EOF}, trip.leave}
	switch trip.ending {
	case bodiless:
		trip.leave()
		return answer(r, 204, nil), nil
	case readAllOf500:
		return answer(r, 500, body), nil
	case breakOff:
		body.end = io.ErrUnexpectedEOF
	case closeSession:
		return answer(r, 101, struct {
			io.ReadCloser
			io.Writer
		}{body, io.Discard}), nil
	case baseFails:
		trip.leave()
		return nil, io.ErrUnexpectedEOF
	case basePanics:
		trip.leave()
		panic("base")
	case baseExits:
		trip.leave()
		runtime.Goexit()
	case cancelBeforeHeaders:
		<-r.Context().Done()
		trip.leave()
		return nil, r.Context().Err()
	}
	return answer(r, 200, body), nil
}

// leaving is a body whose end makes room.
type leaving struct {
	chunks
	leave func()
}

func (b *leaving) Read(p []byte) (int, error) {
	n, err := b.chunks.Read(p)
	if err != nil {
		b.leave()
	}
	return n, err
}

func (b *leaving) Close() error {
	b.leave()
	return b.chunks.Close()
}

// call makes one call through rt and ends it.
func (l *load) call(t *testing.T, rt http.RoundTripper, e ending) {
	trip := &trip{ending: e}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), tripKey{}, trip))
	if e == cancelBeforeHeaders {
		time.AfterFunc(time.Duration(rand.IntN(100))*time.Microsecond, cancel)
	}
	defer func() {
		if v := recover(); v != nil {
			assert.Equal(t, "base", v)
		}
		if e != drop {
			cancel()
		}
	}()
	l.arrived.Add(1)
	resp, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
	var rejected *watertight.RejectedError
	switch {
	case errors.As(err, &rejected):
		l.refused[rejected.Reason].Add(1)
	case !trip.reached:
		l.left.Add(1)
		assert.ErrorIs(t, err, context.Canceled)
	}
	if err != nil {
		return
	}
	switch e {
	case readAll, readAllOf500, breakOff:
		_, _ = io.ReadAll(resp.Body)
	case closeThrice:
		_ = resp.Body.Close()
		_ = resp.Body.Close()
		_ = resp.Body.Close()
	case abandonAndCancel, drop:
		trip.leave()
	default:
		_ = resp.Body.Close()
	}
}

// E68, E14, E16: after ten thousand admitted calls, and many refused, that ended in every way, 64 at a time,
// the books balance, nothing is left inside, and the limit held all along.
func TestTheBooksBalance(t *testing.T) {
	const limit, calls, workers = 8, 10_000, 64
	var grants, releases, rejects atomic.Int64
	g, _ := logged(t, `  - name: p
    bulkhead: {maxConcurrent: 8, maxQueue: 52, maxWait: 1ms}
    breaker: {window: {calls: 10}, minCalls: 10, failureRate: 80, openFor: 1ms, halfOpen: {calls: 1}}`,
		watertight.WithHooks(watertight.Hooks{
			Grant: func(context.Context, watertight.GrantEvent) context.Context {
				grants.Add(1)
				return nil
			},
			Release: func(context.Context, watertight.ReleaseEvent) { releases.Add(1) },
			Reject:  func(context.Context, watertight.RejectEvent) { rejects.Add(1) },
		}))
	l := new(load)
	rt := transport.New(l, g)

	stop := make(chan struct{})
	var watch, work sync.WaitGroup
	watch.Go(func() { // E68: never negative, never beyond the limit, whenever one looks
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range g.Snapshot().Compartments {
				assert.GreaterOrEqual(t, c.Bulkhead.InFlight, 0)
				assert.LessOrEqual(t, c.Bulkhead.InFlight, limit)
				assert.GreaterOrEqual(t, c.Bulkhead.Queued, 0)
				assert.LessOrEqual(t, c.Bulkhead.Queued, 52)
			}
			runtime.Gosched()
		}
	})
	for range workers {
		work.Go(func() {
			for l.reached.Load() < calls {
				done := make(chan struct{})
				go func() { // its own goroutine, since one ending is Goexit
					defer close(done)
					l.call(t, rt, ending(rand.IntN(int(endings))))
				}()
				<-done
			}
		})
	}
	work.Wait()
	for before := l.reached.Load(); l.reached.Load() < before+limit; {
		l.call(t, rt, drop)
	}
	close(stop)
	watch.Wait()
	collect(t, func() bool { return inFlight(t, g) == 0 && releases.Load() == grants.Load() })

	c := only(t, g)
	assert.LessOrEqual(t, l.worst.Load(), int64(limit))
	assert.Zero(t, l.inside.Load())
	assert.Zero(t, c.Bulkhead.Queued)
	assert.EqualValues(t, l.reached.Load(), c.Granted)
	assert.EqualValues(t, grants.Load(), c.Granted)
	assert.EqualValues(t, l.left.Load(), c.Left)
	assert.GreaterOrEqual(t, c.Leaked, uint64(limit)) // an abandoned body may be found before its context ends
	sum, refused := l.reached.Load()+l.left.Load(), int64(0)
	for _, reason := range []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining} {
		n := l.refused[reason].Load()
		assert.EqualValues(t, n, c.Rejected[reason.String()], reason.String())
		sum, refused = sum+n, refused+n
	}
	assert.Equal(t, l.arrived.Load(), sum)
	assert.Equal(t, refused, rejects.Load())
	assert.NotZero(t, c.Left)
	assert.NotZero(t, c.Rejected["open"])
	assert.NotZero(t, c.Rejected["full"]+c.Rejected["wait_timeout"], "the load must reach the limit")
	require.NoError(t, g.Drain(t.Context()), "nobody is inside")
}

// leavesNothing asserts that work leaves no goroutine behind, and no memory that
// grows with it.
func leavesNothing(t *testing.T, work func()) {
	t.Helper()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	work() // so that what is made once is there
	goroutines, before := runtime.NumGoroutine(), heap()
	work()
	collect(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	var after uint64
	collect(t, func() bool {
		after = heap()
		return after < before+1<<20
	})
}

// E70: no call leaves a goroutine, a timer or a watch on a context that outlives
// it, be it refused, queued or done.
func TestCallsLeaveNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background()) // lives longer than the calls
	defer cancel()
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1h}, breaker: {failureRate: 100}}`)
	rt := transport.New(base(streaming), g)
	var wg sync.WaitGroup
	leavesNothing(t, func() {
		for range 8 {
			wg.Go(func() {
				for range 2500 {
					resp, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
					if assert.NoError(t, err) {
						assert.NoError(t, resp.Body.Close())
					}
				}
			})
		}
		wg.Wait()
	})
	assert.NotZero(t, only(t, g).Bulkhead.Peak)
}

// E70: a Guard and a transport need no clean-up.
func TestTransportsLeaveNothingBehind(t *testing.T) {
	leavesNothing(t, func() {
		for range 1000 {
			rt := transport.New(base(streaming), guard(t, limited))
			resp := open(t, rt, get(t, "http://up/"))
			require.NoError(t, resp.Body.Close())
		}
	})
}
