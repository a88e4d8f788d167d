package watertightresty_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func guard(t testing.TB, yaml string) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return watertight.New(set)
}

// upstream is a RoundTripper that answers by itself and counts.
type upstream struct {
	calls  atomic.Int64
	open   atomic.Int64 // bodies handed out and not closed
	answer func() (status int, err error)
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.calls.Add(1)
	status, err := u.answer()
	if err != nil {
		return nil, err
	}
	u.open.Add(1)
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: -1, Request: r,
		Body: &counted{Reader: strings.NewReader("body"), open: &u.open},
	}, nil
}

type counted struct {
	io.Reader
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return nil
}

func always(status int) *upstream {
	return &upstream{answer: func() (int, error) { return status, nil }}
}

func client(u http.RoundTripper) *resty.Client {
	return resty.New().SetTransport(u).SetLogger(silent{}).SetRetryCount(3).
		SetRetryWaitTime(time.Second).SetRetryMaxWaitTime(time.Minute)
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

const tripsAtOnce = `
version: 1
policies:
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 1, maxWait: 200ms, maxQueue: 1}
    breaker: {minCalls: 1, openFor: 1h}
`

// E58: what an open breaker refused is not retried, whatever conditions there
// are, before or after.
func TestRefusalsAreNotRetried(t *testing.T) {
	stubborn := func(_ *resty.Response, err error) bool { return err != nil }
	for name, conditions := range map[string]struct{ before, after, request resty.RetryConditionFunc }{
		"by default":             {},
		"with a condition":       {before: stubborn},
		"with a later condition": {after: stubborn},
		"with the request's own": {request: stubborn},
		"with all of them":       {before: stubborn, after: stubborn, request: stubborn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := always(500)
				c := client(u)
				if conditions.before != nil {
					c.AddRetryCondition(conditions.before)
				}
				require.Same(t, c, watertightresty.Configure(c, guard(t, tripsAtOnce)))
				if conditions.after != nil {
					c.AddRetryCondition(conditions.after)
				}
				_, err := c.R().Get("http://up/") // trips the breaker
				require.NoError(t, err)
				require.EqualValues(t, 1, u.calls.Load())

				start := time.Now()
				r := c.R()
				if conditions.request != nil {
					r.AddRetryCondition(conditions.request)
				}
				_, err = r.Get("http://up/")
				require.ErrorIs(t, err, breaker.ErrOpen)
				var rejected *watertight.RejectedError
				require.ErrorAs(t, err, &rejected)
				assert.Equal(t, "hosts", rejected.Policy)
				assert.EqualValues(t, 1, u.calls.Load())
				assert.Zero(t, time.Since(start), "no backoff")
			})
		})
	}
}

func TestOtherFailuresAreRetriedAndEachAttemptIsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 100}}
`)
		broken := &upstream{answer: func() (int, error) { return 0, errors.New("connection refused") }}
		_, err := watertightresty.Configure(client(broken), g).R().Get("http://down/")
		require.Error(t, err)
		assert.EqualValues(t, 4, broken.calls.Load())

		failing := always(503)
		c := watertightresty.Configure(client(failing), g)
		c.AddRetryCondition(func(r *resty.Response, _ error) bool { return r.StatusCode() == 503 })
		resp, err := c.R().Get("http://up/")
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode())
		assert.EqualValues(t, 4, failing.calls.Load())
		for _, s := range g.Snapshot().Compartments {
			assert.EqualValues(t, 4, s.Granted)
			assert.Equal(t, 4, s.Breaker.Calls)
			assert.Zero(t, s.Bulkhead.InFlight)
		}
	})
}

func TestWaitTimeoutsAreRetriedOnlyOnRequest(t *testing.T) {
	for _, test := range []struct {
		opts []watertightresty.Option
		took time.Duration
	}{
		{nil, 200 * time.Millisecond},
		{[]watertightresty.Option{watertightresty.RetryWaitTimeouts()}, 4 * 200 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := always(200)
			c := watertightresty.Configure(client(u).SetRetryAfter(func(*resty.Client, *resty.Response) (time.Duration, error) {
				return time.Second, nil
			}), guard(t, tripsAtOnce), test.opts...)
			held, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
			require.NoError(t, err)
			defer held.RawBody().Close()
			start := time.Now()
			_, err = c.R().Get("http://up/")
			require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
			waits := time.Duration(0)
			if test.opts != nil {
				waits = 3 * time.Second
			}
			assert.Equal(t, test.took+waits, time.Since(start))
		})
	}
}

// E59: a raw response that is retried must not keep its permit from the next
// attempt.
func TestRawModeDoesNotStarveItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}}
`)
		u := always(503)
		c := watertightresty.Configure(client(u), g)
		c.AddRetryCondition(func(r *resty.Response, _ error) bool { return r.StatusCode() == 503 })
		resp, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
		require.NoError(t, err)
		assert.EqualValues(t, 4, u.calls.Load())
		assert.EqualValues(t, 1, u.open.Load(), "the last one is the caller's")
		text, err := io.ReadAll(resp.RawBody())
		require.NoError(t, err)
		assert.Equal(t, "body", string(text))
		require.NoError(t, resp.RawBody().Close())
		assert.Zero(t, g.Snapshot().Compartments[0].Bulkhead.InFlight)
	})
}

// E57: what was set before stays; the order that resty cannot serve is told.
func TestTLSSetBeforeIsKept(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }))
	defer s.Close()
	g := guard(t, tripsAtOnce)
	c := resty.New().SetTLSClientConfig(s.Client().Transport.(*http.Transport).TLSClientConfig.Clone())
	watertightresty.Configure(c, g)
	resp, err := c.R().Get(s.URL)
	require.NoError(t, err)
	assert.Equal(t, "secret", resp.String())
	assert.EqualValues(t, 1, g.Snapshot().Compartments[0].Granted)
	c.GetClient().CloseIdleConnections()
}

func TestConfiguringTwiceWrapsOnce(t *testing.T) {
	g := guard(t, tripsAtOnce)
	c := client(always(200))
	watertightresty.Configure(c, g)
	installed, hooks := c.GetClient().Transport, len(c.RetryHooks)
	watertightresty.Configure(c, g)
	assert.Same(t, installed, c.GetClient().Transport)
	assert.Len(t, c.RetryHooks, hooks)
	assert.Same(t, installed, transport.New(installed, g))
	watertightresty.Configure(c.Clone(), g)
	assert.Same(t, installed, c.GetClient().Transport)
	_, err := c.R().Get("http://up/")
	require.NoError(t, err, "a limit of 1 is enough")
}

// E62: a response that nobody will read gives its permit back.
func TestFailedOutputGivesThePermitBack(t *testing.T) {
	g := guard(t, tripsAtOnce)
	u := always(200)
	c := watertightresty.Configure(client(u).SetRetryCount(0), g)
	_, err := c.R().SetOutput(t.TempDir() + "/no\x00name").Get("http://up/")
	require.Error(t, err)
	assert.Zero(t, u.open.Load())
	assert.Zero(t, g.Snapshot().Compartments[0].Bulkhead.InFlight)
}
