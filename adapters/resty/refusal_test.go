package watertightresty_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
)

// E58: what was refused is not retried, for whatever reason, whatever
// conditions, hooks and waits there are, and whether they were set before or
// after.
func TestRefusalsAreNotRetried(t *testing.T) {
	reasons := map[string]struct {
		reason   policy.Reason
		sentinel error
		yaml     string
		// ready makes the next call be refused.
		ready func(t *testing.T, g *watertight.Guard, c *resty.Client) (after func())
		takes time.Duration
	}{
		"open": {policy.ReasonOpen, breaker.ErrOpen, tripsAtOnce,
			func(t *testing.T, _ *watertight.Guard, c *resty.Client) func() {
				_, err := c.R().Get("http://up/")
				require.NoError(t, err)
				return func() {}
			}, 0},
		"full": {policy.ReasonFull, bulkhead.ErrFull, onePermit, holdOne, 0},
		"wait_timeout": {policy.ReasonWaitTimeout, bulkhead.ErrWaitTimeout, tripsAtOnce, func(t *testing.T, g *watertight.Guard, c *resty.Client) func() {
			c.GetClient().Transport.(interface{ Base() http.RoundTripper }).Base().(*upstream).answer = func() (int, error) { return 200, nil }
			return holdOne(t, g, c)
		}, 200 * time.Millisecond},
		"draining": {policy.ReasonDraining, bulkhead.ErrClosed, onePermit,
			func(t *testing.T, g *watertight.Guard, _ *resty.Client) func() {
				require.NoError(t, g.Drain(context.Background()))
				return func() {}
			}, 0},
	}
	settings := map[string]func(c *resty.Client, r func(resty.RetryConditionFunc)){
		"nothing":                 func(*resty.Client, func(resty.RetryConditionFunc)) {},
		"a condition":             func(c *resty.Client, _ func(resty.RetryConditionFunc)) { c.AddRetryCondition(onError) },
		"the request's condition": func(_ *resty.Client, r func(resty.RetryConditionFunc)) { r(onError) },
		"a hook": func(c *resty.Client, _ func(resty.RetryConditionFunc)) {
			c.AddRetryHook(func(resp *resty.Response, _ error) { resp.Request.SetContext(context.Background()) })
		},
		"a RetryAfter": func(c *resty.Client, _ func(resty.RetryConditionFunc)) {
			c.SetRetryAfter(func(*resty.Client, *resty.Response) (time.Duration, error) { return time.Second, nil })
		},
		"a context for each attempt": func(c *resty.Client, _ func(resty.RetryConditionFunc)) {
			c.OnBeforeRequest(func(_ *resty.Client, r *resty.Request) error {
				r.SetContext(context.Background())
				return nil
			})
		},
		"a trace": func(c *resty.Client, _ func(resty.RetryConditionFunc)) { c.EnableTrace() },
	}
	for why, refusal := range reasons {
		for what, set := range settings {
			for _, order := range []string{"before", "after"} {
				t.Run(why+"/"+what+" "+order, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						g := guard(t, refusal.yaml)
						u := always(500)
						c := client(u)
						var own resty.RetryConditionFunc
						request := func(condition resty.RetryConditionFunc) { own = condition }
						if order == "before" {
							set(c, request)
						}
						require.Same(t, c, watertightresty.Configure(c, g))
						if order == "after" {
							set(c, request)
						}
						after := refusal.ready(t, g, c)
						calls := u.calls.Load()

						r := c.R()
						if own != nil {
							r.AddRetryCondition(own)
						}
						start := time.Now()
						resp, err := r.Get("http://up/")
						assert.Equal(t, refusal.takes, time.Since(start), "nothing is waited for but a permit")
						require.ErrorIs(t, err, refusal.sentinel)
						var rejected *watertight.RejectedError
						require.ErrorAs(t, err, &rejected)
						assert.Equal(t, refusal.reason, rejected.Reason)
						assert.Equal(t, 1, r.Attempt)
						assert.Equal(t, calls, u.calls.Load())
						assert.Nil(t, resp.RawResponse, "no response is made up")
						after()
						assert.Zero(t, u.open.Load())
					})
				})
			}
		}
	}
}

// holdOne takes the only permit until after.
func holdOne(t *testing.T, _ *watertight.Guard, c *resty.Client) (after func()) {
	resp, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
	require.NoError(t, err)
	return func() { require.NoError(t, resp.RawBody().Close()) }
}

// A RetryAfter that replaces another one later replaces it, in front of nothing
// but the refusals.
func TestRetryAfterSetAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := always(503)
		var before, later, last int
		c := client(u).SetRetryAfter(pause(2*time.Second, &before)).AddRetryCondition(on503)
		watertightresty.Configure(c, guard(t, onePermit))
		for _, step := range []struct {
			set    func()
			calls  *int
			pauses time.Duration
		}{
			{func() {}, &before, 2 * time.Second},
			{func() { c.SetRetryAfter(pause(3*time.Second, &later)) }, &later, 3 * time.Second},
			{func() { c.RetryAfter = pause(4*time.Second, &last) }, &last, 4 * time.Second},
		} {
			step.set()
			before, later, last = 0, 0, 0
			start := time.Now()
			_, err := c.R().Get("http://up/")
			require.NoError(t, err)
			assert.Equal(t, 3, *step.calls)
			assert.Equal(t, 3, before+later+last)
			assert.Equal(t, 3*step.pauses, time.Since(start))

			held := holdOne(t, nil, c.SetRetryCount(0))
			c.SetRetryCount(3)
			start = time.Now()
			_, err = c.R().Get("http://up/")
			require.ErrorIs(t, err, bulkhead.ErrFull)
			assert.Zero(t, time.Since(start))
			held()
		}
	})
}

// An error of the client's own RetryAfter ends the retries as ever.
func TestErrorOfRetryAfterIsKept(t *testing.T) {
	quota := errors.New("quota exceeded")
	u := always(503)
	c := client(u).AddRetryCondition(on503).SetRetryAfter(func(*resty.Client, *resty.Response) (time.Duration, error) {
		return 0, quota
	})
	_, err := watertightresty.Configure(c, guard(t, onePermit)).R().Get("http://up/")
	require.ErrorIs(t, err, quota)
	assert.EqualValues(t, 1, u.calls.Load())
}

// E58: who waited for a permit in vain is retried only on demand.
func TestRetryWaitTimeouts(t *testing.T) {
	for _, test := range []struct {
		opts  []watertightresty.Option
		waits time.Duration // between the attempts
		tries int
	}{
		{nil, 0, 1},
		{[]watertightresty.Option{watertightresty.RetryWaitTimeouts()}, 3 * time.Second, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			var pauses int
			u := always(200)
			c := watertightresty.Configure(client(u).SetRetryAfter(pause(time.Second, &pauses)), guard(t, tripsAtOnce), test.opts...)
			after := holdOne(t, nil, c)
			r := c.R()
			start := time.Now()
			_, err := r.Get("http://up/")
			require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
			assert.Equal(t, test.waits+time.Duration(test.tries)*200*time.Millisecond, time.Since(start))
			assert.Equal(t, test.tries, r.Attempt)
			after()

			u.answer = func() (int, error) { return 500, nil } // trips
			_, err = c.R().Get("http://up/")
			require.NoError(t, err)
			r = c.R()
			_, err = r.Get("http://up/")
			require.ErrorIs(t, err, breaker.ErrOpen)
			assert.Equal(t, 1, r.Attempt, "the option is about nothing else")
		})
	}
}

// A refusal that comes after failures ends the request as well, also at the
// last attempt, and the same resty request may be sent again.
func TestRefusedAfterFailures(t *testing.T) {
	for trips := 1; trips <= 3; trips++ {
		synctest.Test(t, func(t *testing.T) {
			u := failing(errors.New("connection reset"))
			c := watertightresty.Configure(client(u), guard(t, fmt.Sprintf(
				"{version: 1, policies: [{name: hosts, side: client, breaker: {minCalls: %d, openFor: 1m}}]}", trips)))
			r := c.R()
			_, err := r.Get("http://up/")
			require.ErrorIs(t, err, breaker.ErrOpen)
			assert.Equal(t, trips+1, r.Attempt)
			assert.EqualValues(t, trips, u.calls.Load())

			time.Sleep(time.Minute)
			u.answer = func() (int, error) { return 200, nil }
			resp, err := r.Get("http://up/")
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode())
		})
	}
}
