package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
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

// A situation is one in which the next call to http://up/ is refused. Set up
// inside a bubble, it leaves nothing behind that would need an end.
type situation struct {
	name   string
	yaml   string
	set    func(*testing.T, *watertight.Guard, http.RoundTripper) context.Context
	want   error         // what errors.Is finds
	reason policy.Reason // policy.ReasonCanceled: the error is the context's own
	after  time.Duration // how long the call waits before it is refused
	retry  time.Duration // RejectedError.RetryAfter
}

var situations = []situation{
	{
		name: "full", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1}, reject: {retryAfter: 3s}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			return t.Context()
		},
		want: bulkhead.ErrFull, reason: policy.ReasonFull, retry: 3 * time.Second,
	},
	{
		name: "queue full", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			hang(t, rt)
			return t.Context()
		},
		want: bulkhead.ErrFull, reason: policy.ReasonFull, retry: time.Second,
	},
	{
		name: "wait timeout", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 70ms}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			return t.Context()
		},
		want: bulkhead.ErrWaitTimeout, reason: policy.ReasonWaitTimeout, after: 70 * time.Millisecond, retry: time.Second,
	},
	{
		name: "open", yaml: `  - {name: p, breaker: {minCalls: 1, openFor: 1500ms}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			fail(t, rt)
			return t.Context()
		},
		want: breaker.ErrOpen, reason: policy.ReasonOpen, retry: 1500 * time.Millisecond,
	},
	{
		name: "half-open without a probe left", yaml: `  - {name: p, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}, reject: {retryAfter: 9s}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			fail(t, rt)
			time.Sleep(time.Second)
			hang(t, rt)
			return t.Context()
		},
		want: breaker.ErrOpen, reason: policy.ReasonOpen, retry: 9 * time.Second,
	},
	{
		name: "the breaker opens while the call queues", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1m}, breaker: {minCalls: 1, openFor: 2s}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			inside := hang(t, rt)
			time.AfterFunc(50*time.Millisecond, func() { inside <- errors.New("connection refused") })
			return t.Context()
		},
		want: breaker.ErrOpen, reason: policy.ReasonOpen, after: 50 * time.Millisecond, retry: 2 * time.Second,
	},
	{
		name: "draining", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			require.NoError(t, g.Drain(t.Context()))
			return t.Context()
		},
		want: bulkhead.ErrClosed, reason: policy.ReasonDraining, retry: time.Second,
	},
	{
		name: "draining while the call queues", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1m}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			time.AfterFunc(20*time.Millisecond, func() {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = g.Drain(ctx) // shuts, and does not wait for the call inside
			})
			return t.Context()
		},
		want: bulkhead.ErrClosed, reason: policy.ReasonDraining, after: 20 * time.Millisecond, retry: time.Second,
	},
	{
		name: "dead context, a permit is free", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		},
		want: context.Canceled, reason: policy.ReasonCanceled,
	},
	{
		name: "cancelled while queued", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 5s}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			return ctx
		},
		want: context.Canceled, reason: policy.ReasonCanceled, after: 30 * time.Millisecond,
	},
	{
		name: "deadline while queued", yaml: `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 5s}}`,
		set: func(t *testing.T, g *watertight.Guard, rt http.RoundTripper) context.Context {
			hang(t, rt)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		},
		want: context.DeadlineExceeded, reason: policy.ReasonCanceled, after: 30 * time.Millisecond,
	},
}

type sayKey struct{}

// said is a base that does what the request's context says; without a word it
// answers 200 and no body.
func said(r *http.Request) (*http.Response, error) {
	switch say := r.Context().Value(sayKey{}).(type) {
	case error:
		return nil, say
	case chan error:
		if err := <-say; err != nil {
			return nil, err
		}
	}
	return answer(r, 200, nil), nil
}

// hang starts a call to http://up/ that stays in the base until something is
// sent on the channel returned, or the test ends.
func hang(t *testing.T, rt http.RoundTripper) chan error {
	say := make(chan error, 1)
	t.Cleanup(func() { close(say) })
	r := get(t, "http://up/")
	r = r.WithContext(context.WithValue(r.Context(), sayKey{}, say))
	go func() { _, _ = rt.RoundTrip(r) }()
	synctest.Wait()
	return say
}

// fail makes a call to http://up/ that ends in a transport error.
func fail(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	r := get(t, "http://up/")
	broken := errors.New("connection refused")
	_, err := rt.RoundTrip(r.WithContext(context.WithValue(r.Context(), sayKey{}, broken)))
	require.Equal(t, broken, err, "errors of the base arrive untouched")
}

// E31, E15, E40: whatever the refusal, the body is closed and never read, the
// base hears nothing, the caller gets no response and learns why, in time.
func TestRefusal(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, s.yaml)
				var hits atomic.Int64
				rt := transport.New(counted(&hits, said), g)
				ctx := s.set(t, g, rt)
				before := hits.Load()

				body := &chunks{left: 1, end: io.EOF}
				start := time.Now()
				resp, err := rt.RoundTrip(post(t, "http://up/", body).WithContext(ctx))
				assert.Nil(t, resp)
				assert.Equal(t, s.after, time.Since(start), "waited")
				assert.Equal(t, before, hits.Load(), "calls of the base")
				reads, closes := body.counts()
				assert.Zero(t, reads)
				assert.GreaterOrEqual(t, closes, 1)

				require.ErrorIs(t, err, s.want)
				if s.reason == policy.ReasonCanceled {
					assert.Equal(t, s.want, err, "the context's own error, untouched")
					return
				}
				var rejected *watertight.RejectedError
				require.ErrorAs(t, err, &rejected)
				assert.Equal(t, "p", rejected.Policy)
				assert.Equal(t, "http://up:80", rejected.Key)
				assert.Equal(t, s.reason, rejected.Reason)
				assert.Equal(t, s.retry, rejected.RetryAfter)
				assert.Equal(t, s.want, rejected.Err)
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "nobody's context ended")
			})
		})
	}
}

// E31: there may be no body to close.
func TestRefusalWithoutABody(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			for _, body := range []io.ReadCloser{nil, http.NoBody} {
				synctest.Test(t, func(t *testing.T) {
					g := guard(t, s.yaml)
					rt := transport.New(base(said), g)
					r := get(t, "http://up/").WithContext(s.set(t, g, rt))
					r.Body = body
					_, err := rt.RoundTrip(r)
					require.ErrorIs(t, err, s.want)
				})
			}
		})
	}
}

// E31: a request that names no host is refused like the others. Nothing limits
// it, so nothing counts it.
func TestNilURL(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	var hits atomic.Int64
	rt := transport.New(counted(&hits, always(200)), g)
	body := &chunks{left: 1, end: io.EOF}
	for _, b := range []io.ReadCloser{body, nil, http.NoBody} {
		resp, err := rt.RoundTrip(&http.Request{Method: "POST", Body: b})
		assert.Nil(t, resp)
		assert.EqualError(t, err, "transport: Request.URL is nil")
	}
	reads, closes := body.counts()
	assert.Zero(t, reads)
	assert.Equal(t, 1, closes)
	assert.Zero(t, hits.Load())
	assert.Empty(t, g.Snapshot().Compartments)
}

// E31: an admitted request's body is the base's to close, whatever happens.
func TestAdmittedBodyIsTheBasesToClose(t *testing.T) {
	for _, test := range []struct {
		name string
		base base
	}{
		{"answers", always(200)},
		{"streams", streaming},
		{"fails", func(*http.Request) (*http.Response, error) { return nil, errors.New("broken pipe") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := transport.New(test.base, guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`))
			body := &chunks{left: 1, end: io.EOF}
			if resp, err := rt.RoundTrip(post(t, "http://up/", body)); err == nil {
				require.NoError(t, resp.Body.Close())
			}
			reads, closes := body.counts()
			assert.Zero(t, reads)
			assert.Zero(t, closes)
		})
	}
}

// What the user of an http.Client holds is a *url.Error. E40: it is a time-out
// if the caller's time or the max wait ran out, and only then.
func TestRefusalThroughAClient(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, s.yaml)
				rt := transport.New(base(said), g)
				ctx := s.set(t, g, rt)
				client := &http.Client{Transport: rt}
				resp, err := client.Do(get(t, "http://up/").WithContext(ctx))
				assert.Nil(t, resp)
				require.ErrorIs(t, err, s.want)

				var outer *url.Error
				require.ErrorAs(t, err, &outer)
				timeout := s.want == bulkhead.ErrWaitTimeout || s.want == context.DeadlineExceeded
				assert.Equal(t, timeout, outer.Timeout())
				var netErr net.Error
				require.ErrorAs(t, err, &netErr)
				assert.Equal(t, timeout, netErr.Timeout())
				assert.Equal(t, s.want == context.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded))
				assert.Equal(t, s.want == bulkhead.ErrWaitTimeout, errors.Is(err, bulkhead.ErrWaitTimeout))

				var rejected *watertight.RejectedError
				assert.Equal(t, s.reason != policy.ReasonCanceled, errors.As(err, &rejected))
			})
		})
	}
}

// E40: the queue is not deaf to the client's own time-out, which arrives by
// another way than the request's context if the transport is not net/http's.
func TestClientTimeoutEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 5s}}`)
		var hits atomic.Int64
		rt := transport.New(counted(&hits, said), g)
		hang(t, rt)
		client := &http.Client{Transport: rt, Timeout: 30 * time.Millisecond}
		start := time.Now()
		_, err := client.Do(get(t, "http://up/"))
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
		var outer *url.Error
		require.ErrorAs(t, err, &outer)
		assert.True(t, outer.Timeout())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, bulkhead.ErrWaitTimeout)
		assert.EqualValues(t, 1, hits.Load())
		c := only(t, g)
		assert.EqualValues(t, 1, c.Left)
		assert.Zero(t, c.Rejected["wait_timeout"])
		assert.Zero(t, c.Bulkhead.Queued)
	})
}

// E15: a dead context never takes a permit, were it by chance.
func TestDeadContextNeverReachesTheBase(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 5, maxWait: 1s}, breaker: {}}`)
	var hits atomic.Int64
	rt := transport.New(counted(&hits, always(200)), g)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := get(t, "http://up/").WithContext(ctx)
	for range 1000 {
		_, err := rt.RoundTrip(r)
		require.Equal(t, context.Canceled, err)
	}
	assert.Zero(t, hits.Load())
	c := only(t, g)
	assert.EqualValues(t, 1000, c.Left)
	assert.Zero(t, c.Granted)
	assert.Zero(t, c.Bulkhead.InFlight)
}

// E36: a response or an error, never both. net/http logs the response that it
// has to drop.
func TestNeverAResponseBesideAnError(t *testing.T) {
	var out bytes.Buffer
	stderr := log.Writer()
	log.SetOutput(&out)
	t.Cleanup(func() { log.SetOutput(stderr) })

	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
	client := &http.Client{Transport: transport.New(always(500), g)}
	resp, err := client.Do(get(t, "http://up/"))
	require.NoError(t, err, "a failure for the breaker is still an answer")
	assert.Equal(t, 500, resp.StatusCode)
	require.NoError(t, resp.Body.Close())

	resp, err = client.Do(get(t, "http://up/"))
	require.ErrorIs(t, err, breaker.ErrOpen)
	assert.Nil(t, resp)
	assert.Empty(t, out.String())
}

// A base that breaks the rules is not covered up for, and takes no permit along.
func TestBaseThatBreaksTheRules(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		resp *http.Response
		err  error
	}{
		{"neither response nor error", nil, nil},
		{"both", answer(nil, 200, text("x")), broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
			rt := transport.New(base(func(*http.Request) (*http.Response, error) { return test.resp, test.err }), g)
			resp, err := rt.RoundTrip(get(t, "http://up/"))
			assert.Same(t, test.resp, resp)
			assert.Equal(t, test.err, err)
			assert.Zero(t, inFlight(t, g))
			assert.Equal(t, "open", only(t, g).Breaker.State, "that is a failure")
		})
	}
}

// A client that meets a draining Guard gets the answer of its policy, or of
// none.
func TestDrainingRefusesUnlimitedCallsToo(t *testing.T) {
	g := watertight.New(nil)
	rt := transport.New(always(200), g)
	require.NoError(t, open(t, rt, get(t, "http://up/")).Body.Close())
	require.NoError(t, g.Drain(t.Context()))
	body := &chunks{end: io.EOF}
	_, err := rt.RoundTrip(post(t, "http://up/", body))
	require.ErrorIs(t, err, bulkhead.ErrClosed)
	_, closes := body.counts()
	assert.Equal(t, 1, closes)
}
