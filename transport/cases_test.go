package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// E10, this side of it: a base that is deaf to its context is waited for. The caller
// gets its answer when the base has returned, and until then the permit is out.
func TestADeafBaseIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
			time.Sleep(300 * time.Millisecond)
			return nil, r.Context().Err()
		}), g)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { assert.Equal(t, 1, inFlight(t, g)) })
		_, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		assert.Zero(t, inFlight(t, g))
	})
}

// E19: 408 and 429 are answers of a host that is well enough to give them, and close a
// half-open breaker, unless failureStatus names them.
func TestTimeoutStatusOfTheHost(t *testing.T) {
	for _, status := range []int{http.StatusRequestTimeout, http.StatusTooManyRequests} {
		for _, test := range []struct{ failures, want string }{
			{"500-599", "closed"},
			{"500-599, 408, 429", "open"},
		} {
			synctest.Test(t, func(t *testing.T) {
				g := tripped(t, `  - {name: p, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}, failureStatus: [`+test.failures+`]}}`)
				time.Sleep(time.Second)
				resp := open(t, transport.New(always(status), g), get(t, "http://up/"))
				assert.Equal(t, status, resp.StatusCode, "returned as it is, and once")
				assert.Equal(t, test.want, only(t, g).Breaker.State, "%d with %s", status, test.failures)
			})
		}
	}
}

// E40: Request.Cancel, which is deprecated, ends no wait, as the documentation says; the
// base gets it as it is.
func TestTheLegacyCancelEndsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1s}}`)
		rt := transport.New(base(said), g)
		hang(t, rt)
		cancel := make(chan struct{})
		close(cancel)
		r := get(t, "http://up/")
		//lint:ignore SA1019 what becomes of the deprecated field is the question here
		r.Cancel = cancel
		start := time.Now()
		_, err := rt.RoundTrip(r)
		require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		assert.Equal(t, time.Second, time.Since(start))

		free := transport.New(base(func(got *http.Request) (*http.Response, error) {
			//lint:ignore SA1019 likewise
			assert.Equal(t, r.Cancel, got.Cancel)
			return answer(got, 200, nil), nil
		}), guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`, derive()))
		open(t, free, r)
	})
}

// E43: refusals of our own are nothing to the breaker, however many.
func TestRefusalsDoNotOpenTheBreaker(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, failureRate: 1}}`)
	rt := transport.New(base(streaming), g)
	held := open(t, rt, get(t, "http://up/"))
	for range 30 {
		_, err := rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
	}
	require.NoError(t, held.Body.Close())
	b := only(t, g).Breaker
	assert.Equal(t, "closed", b.State)
	assert.Equal(t, 1, b.Calls)
}

// E52: who is told of a change may look at everything and call through the same
// transport, and one that panics disturbs nobody.
func TestTransitionMayCallBack(t *testing.T) {
	var mu sync.Mutex
	var story []string
	var rt *transport.Transport
	var g *watertight.Guard
	g = guard(t, `  - {name: p, breaker: {minCalls: 1, openFor: 1ms, halfOpen: {calls: 1}}}`,
		watertight.WithLogger(silent()),
		watertight.WithHooks(watertight.Hooks{Transition: func(context.Context, watertight.TransitionEvent) { panic("hook") }}),
		watertight.WithHooks(watertight.Hooks{Transition: func(_ context.Context, e watertight.TransitionEvent) {
			g.Snapshot()
			if resp, err := rt.RoundTrip(get(t, "http://elsewhere/")); assert.NoError(t, err) {
				assert.NoError(t, resp.Body.Close())
			}
			mu.Lock()
			defer mu.Unlock()
			story = append(story, e.To.String())
		}}))
	rt = transport.New(base(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Fail") != "" {
			return failing(r)
		}
		return answer(r, 200, nil), nil
	}), g)
	r := get(t, "http://up/")
	r.Header.Set("X-Fail", "1")
	_, err := rt.RoundTrip(r)
	require.Error(t, err)
	for {
		_, err := rt.RoundTrip(get(t, "http://up/"))
		if err == nil {
			break
		}
		require.ErrorIs(t, err, breaker.ErrOpen)
		runtime.Gosched()
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"open", "half_open", "closed"}, story)
}

// E67: each fate of a call has a counter of its own, and their sum is the number of
// calls.
func TestEachFateIsCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 10ms}, breaker: {minCalls: 1, openFor: 1m}}`)
		rt := transport.New(base(said), g)
		inside := hang(t, rt) // granted
		queued := make(chan error)
		go func() {
			_, err := rt.RoundTrip(get(t, "http://up/"))
			queued <- err
		}()
		synctest.Wait()
		_, err := rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		require.ErrorIs(t, <-queued, bulkhead.ErrWaitTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
		require.Equal(t, context.DeadlineExceeded, err)
		inside <- errors.New("connection refused")
		synctest.Wait()
		_, err = rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, breaker.ErrOpen)
		_ = g.Drain(t.Context())
		_, err = rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, bulkhead.ErrClosed)

		c := only(t, g)
		assert.EqualValues(t, 1, c.Granted)
		assert.EqualValues(t, 1, c.Left)
		assert.Equal(t, map[string]uint64{"full": 1, "wait_timeout": 1, "open": 1, "draining": 1}, c.Rejected)
	})
}

// E53: a million hosts leave no more behind than the table's bound allows, and no
// goroutine.
func TestAMillionHosts(t *testing.T) {
	hosts := 1_000_000
	if raceEnabled {
		hosts = 50_000
	}
	set, err := policy.Parse("test.yaml", []byte(`
version: 1
defaults: {maxCompartments: 1000}
policies:
  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {window: {calls: 10}, minCalls: 5}}
`))
	require.NoError(t, err)
	g := watertight.New(set)
	rt := transport.New(always(200), g)
	r := get(t, "http://up/")
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	goroutines := runtime.NumGoroutine()
	var early uint64
	for i := range hosts {
		r.URL.Host = "host-" + strconv.Itoa(i) + ".example"
		if _, err := rt.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		if i == hosts/10 {
			early = heap()
		}
	}
	assert.Less(t, heap(), early+1<<20)
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	ks := keys(g)
	assert.Len(t, ks, 1000)
	assert.Contains(t, ks, "http://host-"+strconv.Itoa(hosts-1)+".example:80", "the latest stay")
}

// Hosts that are in use are not among those that a flood of others pushes out: their
// limit holds.
func TestAFloodOfHostsLeavesThoseInUse(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte(`
version: 1
defaults: {maxCompartments: 10}
policies:
  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1h}}
`))
	require.NoError(t, err)
	g := watertight.New(set)
	held := open(t, transport.New(base(streaming), g), get(t, "http://used/"))
	_, err = transport.New(base(failing), g).RoundTrip(get(t, "http://down/"))
	require.Error(t, err)
	rt := transport.New(always(200), g)
	for i := range 10_000 {
		r := get(t, "http://up/")
		r.URL.Host = "host-" + strconv.Itoa(i)
		open(t, rt, r)
	}
	_, err = rt.RoundTrip(get(t, "http://used/"))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	_, err = rt.RoundTrip(get(t, "http://down/"))
	require.ErrorIs(t, err, breaker.ErrOpen)
	assert.Len(t, keys(g), 10)
	_, err = io.ReadAll(held.Body)
	require.NoError(t, err)
	open(t, rt, get(t, "http://used/"))
}
