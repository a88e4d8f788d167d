package middleware_test

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// hijackable is a ResponseRecorder that can be hijacked.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, _ := net.Pipe()
	return c, nil, nil
}

// E14, E16, E67, E68: whatever handlers and clients do, every permit comes back,
// each request is counted once, and the gauges stay true.
func TestEveryPermitComesBack(t *testing.T) {
	const limit = 4
	g := guard(t, `
version: 1
policies:
  - name: all
    side: server
    per: policy
    bulkhead: {maxConcurrent: 4, maxQueue: 8, maxWait: 1ms}
    breaker: {minCalls: 50, failureRate: 70, openFor: 1ms, slowCall: 1ms, halfOpen: {calls: 3, probeTimeout: 5ms}}
`)
	var inside, worst, ran atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		n := inside.Add(1)
		defer inside.Add(-1)
		for {
			if old := worst.Load(); n <= old || worst.CompareAndSwap(old, n) {
				break
			}
		}
		for range rand.IntN(20) {
			runtime.Gosched()
		}
		switch rand.IntN(6) {
		case 0:
			w.WriteHeader(500)
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			runtime.Goexit()
		case 3:
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				c.Close()
			}
		default:
			w.Write([]byte("ok"))
		}
	})
	wrap := middleware.New(g)
	h := wrap(wrap(handler))

	stop := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range g.Snapshot().Compartments {
				assert.GreaterOrEqual(t, c.InFlight, int64(0))
				assert.LessOrEqual(t, c.InFlight, int64(limit))
			}
			runtime.Gosched()
		}
	})
	const clients, each = 64, 100
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				done := make(chan struct{})
				go func() { // of its own, for Goexit
					defer close(done)
					defer func() { recover() }()
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if rand.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
					}
					h.ServeHTTP(hijackable{httptest.NewRecorder()}, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				}()
				<-done
			}
		})
	}
	wg.Wait()
	close(stop)
	sampler.Wait()

	c := compartment(t, g, "all", "")
	assert.LessOrEqual(t, worst.Load(), int64(limit))
	assert.Zero(t, c.InFlight)
	assert.Zero(t, c.Bulkhead.Queued)
	assert.EqualValues(t, ran.Load(), c.Granted)
	sum := c.Granted + c.Left
	for _, n := range c.Rejected {
		sum += n
	}
	assert.EqualValues(t, clients*each, sum)

	// The capacity is what it was: a fresh breaker lets us ask.
	for compartment(t, g, "all", "").Breaker.State != "closed" {
		get(wrap(ok), "/")
	}
	gate := newGate()
	full := wrap(gate)
	for range limit {
		gate.hold(full, "/")
	}
	require.Contains(t, []int{408, 503}, get(full, "/").Code)
	require.Equal(t, limit, compartment(t, g, "all", "").Bulkhead.InFlight)
	close(gate.open)
}
