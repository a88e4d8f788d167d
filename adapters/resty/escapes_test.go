package watertightresty_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A fallback's answer is an answer to resty; conditions decide about it as about any
// other, and each attempt asks anew. An error of the fallback's own is retried like
// other errors, and a refusal that it leaves alone is not.
func TestFallback(t *testing.T) {
	errStandby := errors.New("standby down")
	for name, test := range map[string]struct {
		status   int // 0: none
		err      error
		attempts int
		want     error
	}{
		"an answer":                    {200, nil, 1, nil},
		"one to be retried":            {503, nil, 4, nil},
		"an error":                     {0, errStandby, 4, errStandby},
		"nothing, so it stays refused": {0, nil, 1, breaker.ErrOpen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, tripsAtOnce)
				u := always(500)
				asked := 0
				c := watertightresty.Configure(client(u), g, watertightresty.WithTransport(transport.WithFallback(
					func(r *http.Request, refused *watertight.RejectedError) (*http.Response, error) {
						asked++
						assert.Equal(t, policy.ReasonOpen, refused.Reason)
						if test.status == 0 {
							return nil, test.err
						}
						return &http.Response{StatusCode: test.status, Body: io.NopCloser(strings.NewReader("cached"))}, nil
					}))).AddRetryCondition(on503).AddRetryCondition(onError)
				_, err := c.R().Get("http://up/") // trips the breaker
				require.NoError(t, err)

				r := c.R().SetBody("ping")
				resp, err := r.Post("http://up/")
				require.ErrorIs(t, err, test.want)
				assert.Equal(t, test.attempts, r.Attempt)
				assert.Equal(t, test.attempts, asked)
				assert.EqualValues(t, 1, u.calls.Load())
				assert.EqualValues(t, test.attempts, hosts(t, g).Rejected["open"])
				if test.status != 0 {
					assert.Equal(t, "cached", resp.String())
					assert.Equal(t, test.status, resp.StatusCode())
				}
			})
		})
	}
}

// The classifier and the key of the transport beneath hold for each attempt.
func TestClassifierAndKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: hosts, side: client, breaker: {minCalls: 2, openFor: 1m}}]}")
		u := always(429)
		c := watertightresty.Configure(client(u).SetRetryMaxWaitTime(time.Second), g, watertightresty.WithTransport(
			transport.WithClassifier(func(resp *http.Response, _ error) breaker.Outcome {
				if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
					return breaker.Failure
				}
				return 0
			}),
			transport.WithKey(func(r *http.Request) string { return r.Header.Get("X-Shard") }),
		)).AddRetryCondition(onError)
		c.AddRetryCondition(onStatus(429))
		r := c.R().SetHeader("X-Shard", "one")
		_, err := r.Get("http://up/")
		require.ErrorIs(t, err, breaker.ErrOpen, "the second 429 tripped it, and the third attempt was refused")
		assert.Equal(t, 3, r.Attempt)
		assert.Equal(t, "one", hosts(t, g).Key)
	})
}

// The context of one request lets it past the limits, or names its policy.
func TestOverridesByContext(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: nightly, side: client, match: [{method: [NIGHTLY]}], bulkhead: {maxConcurrent: 1}}
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}}
`)
	c := watertightresty.Configure(client(always(200)), g)
	held, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
	require.NoError(t, err)
	_, err = c.R().Get("http://up/")
	require.ErrorIs(t, err, bulkhead.ErrFull)
	_, err = c.R().SetContext(watertight.WithoutLimits(t.Context(), policy.Client)).Get("http://up/")
	require.NoError(t, err)
	_, err = c.R().SetContext(watertight.WithPolicy(t.Context(), policy.Client, "nightly")).Get("http://up/")
	require.NoError(t, err)
	require.NoError(t, held.RawBody().Close())
	granted := map[string]uint64{}
	for _, c := range g.Snapshot().Compartments {
		granted[c.Policy] = c.Granted
		assert.Zero(t, c.InFlight)
	}
	assert.Equal(t, map[string]uint64{"nightly": 1, "hosts": 1, "(exempt)": 1}, granted)
}
