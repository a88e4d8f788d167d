package watertightresty_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/bulkhead"
)

const patient = "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 100}}]}"

// Other failures are retried as without us, and each attempt is a call of its
// own, with its own permit and its own outcome.
func TestEachAttemptIsACall(t *testing.T) {
	refused := errors.New("connection refused")
	for name, test := range map[string]struct {
		upstream  func() *upstream
		condition resty.RetryConditionFunc
		err       error
		failed    float64
	}{
		"errors by default": {func() *upstream { return failing(refused) }, nil, refused, 100},
		"errors on demand":  {func() *upstream { return failing(refused) }, onError, refused, 100},
		"a status":          {func() *upstream { return always(503) }, on503, nil, 100},
		"good answers": {func() *upstream { return always(200) },
			func(r *resty.Response, _ error) bool { return r.StatusCode() == 200 }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plain, guarded := test.upstream(), test.upstream()
				g := guard(t, `
version: 1
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 4, window: {calls: 4}}}
`)
				configured := watertightresty.Configure(client(guarded), g)
				for _, c := range []*resty.Client{client(plain), configured} {
					if test.condition != nil {
						c.AddRetryCondition(test.condition)
					}
					_, err := c.R().SetBody("ping").Post("http://up/")
					require.ErrorIs(t, err, test.err)
				}
				assert.EqualValues(t, 4, plain.calls.Load())
				assert.EqualValues(t, 4, guarded.calls.Load())
				c := hosts(t, g)
				assert.EqualValues(t, 4, c.Granted)
				assert.Equal(t, 1, c.Bulkhead.Peak)
				assert.Zero(t, c.InFlight)
				if test.failed == 100 {
					assert.Equal(t, "open", c.Breaker.State, "four failures tripped it")
				} else {
					assert.Equal(t, test.failed, c.Breaker.FailureRate)
				}
			})
		})
	}
}

// Between attempts, no permit is held.
func TestBackoffHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := always(503)
		g := guard(t, patient)
		c := watertightresty.Configure(client(u), g).AddRetryCondition(on503)
		done := make(chan *resty.Response, 1)
		go func() {
			resp, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
			assert.NoError(t, err)
			done <- resp
		}()
		synctest.Wait()
		assert.EqualValues(t, 1, u.calls.Load())
		assert.Zero(t, hosts(t, g).InFlight)
		require.NoError(t, (<-done).RawBody().Close())
	})
}

// A caller who leaves while waiting for a permit, or between attempts, gets the
// error of the context, and no more attempts.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripsAtOnce)
		u := always(200)
		c := watertightresty.Configure(client(u), g)
		after := holdOne(t, nil, c)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r := c.R().SetContext(ctx)
		_, err := r.Get("http://up/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, bulkhead.ErrWaitTimeout)
		assert.Equal(t, 1, r.Attempt)
		assert.EqualValues(t, 1, hosts(t, g).Left)
		after()
	})
	synctest.Test(t, func(t *testing.T) {
		u := always(503)
		g := guard(t, onePermit)
		c := watertightresty.Configure(client(u), g).AddRetryCondition(on503)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.R().SetContext(ctx).SetDoNotParseResponse(true).Get("http://up/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualValues(t, 1, u.calls.Load())
		assert.Zero(t, u.open.Load())
		assert.Zero(t, hosts(t, g).InFlight)
	})
}

// The client's own time-out is the caller's doing, not a refusal: resty goes on.
func TestClientTimeoutWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
		c := watertightresty.Configure(client(always(200)), g)
		after := holdOne(t, nil, c)
		c.SetTimeout(time.Second)
		r := c.R()
		_, err := r.Get("http://up/")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 4, r.Attempt)
		assert.EqualValues(t, 4, hosts(t, g).Left)
		after()
	})
}

// E61: a refused connection has no response, and is a failure.
func TestNoResponse(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	g := guard(t, "{version: 1, policies: [{name: hosts, side: client, breaker: {minCalls: 2}}]}")
	c := watertightresty.Configure(resty.New().SetLogger(&log{}).SetRetryCount(3).SetRetryWaitTime(1).EnableTrace(), g)
	var failed *resty.ResponseError
	c.OnError(func(_ *resty.Request, err error) { errors.As(err, &failed) })
	resp, err := c.R().Get(url)
	require.Error(t, err)
	assert.Nil(t, resp.RawResponse)
	assert.Zero(t, resp.StatusCode())
	assert.Same(t, resp, failed.Response)
	_ = resp.Request.TraceInfo()
	assert.Equal(t, "open", hosts(t, g).Breaker.State, "2 failures, then a refusal")
	assert.EqualValues(t, 2, hosts(t, g).Granted)

	// What resty itself does not do, a wrapper of the user's may.
	for _, resp := range []*resty.Response{nil, {}, {Request: c.R()}} {
		assert.NotPanics(t, func() {
			for _, hook := range c.RetryHooks {
				hook(resp, err)
			}
			wait, err := c.RetryAfter(c, resp)
			assert.Zero(t, wait)
			assert.NoError(t, err)
		})
	}
	// An attempt that a request middleware ends has no response at all.
	c.OnBeforeRequest(func(*resty.Client, *resty.Request) error { return errors.New("no") })
	c.AddRetryCondition(onError)
	_, err = c.R().Get(url)
	require.EqualError(t, err, "no")
}

// Many requests at once, some refused, while the first of them find that a
// RetryAfter was set after Configure: no refusal of one ends the retries of
// another, and every permit comes back. Meant for the race detector.
func TestManyAtOnce(t *testing.T) {
	const limit = 4
	var inside, worst, served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for was := worst.Load(); n > was && !worst.CompareAndSwap(was, n); was = worst.Load() {
		}
		if served.Add(1)%3 == 0 {
			w.WriteHeader(503)
		}
	}))
	defer s.Close()
	g := guard(t, "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 4}}]}")
	c := watertightresty.Configure(resty.New().SetLogger(&log{}).SetRetryCount(5).AddRetryCondition(on503).AddRetryCondition(onError), g)
	c.SetRetryAfter(func(*resty.Client, *resty.Response) (time.Duration, error) { return 1, nil }).SetRetryWaitTime(1)

	var refused, good, gaveUp atomic.Uint64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 50 {
				r := c.R()
				resp, err := r.Get(s.URL)
				switch {
				case errors.Is(err, bulkhead.ErrFull):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case resp.StatusCode() == 200:
					good.Add(1)
				case r.Attempt != 6:
					t.Errorf("status %d after %d attempts", resp.StatusCode(), r.Attempt)
				default:
					gaveUp.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 32*50, refused.Load()+good.Load()+gaveUp.Load())
	h := hosts(t, g)
	assert.Equal(t, refused.Load(), h.Rejected["full"], "one refusal for each request that ended by one")
	assert.EqualValues(t, served.Load(), h.Granted)
	assert.LessOrEqual(t, worst.Load(), int64(limit))
	assert.Zero(t, h.InFlight)
	c.GetClient().CloseIdleConnections()
}
