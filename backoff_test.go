package watertight_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// fails makes a call fail.
func fails(t *testing.T, g *watertight.Guard) {
	t.Helper()
	c := admit(t, g, to("a"))
	c.SettleFailure()
	c.Release()
}

func TestTheOpenPeriodGrowsUntilTheBreakerHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: {initial: 1s, max: 5s, multiplier: 2}}}
`)
		for _, want := range []time.Duration{1, 2, 4, 5, 5} {
			fails(t, g)
			assert.Equal(t, want*time.Second, refused(t, g, to("a"), breaker.ErrOpen).RetryAfter)
			time.Sleep(want * time.Second)
		}
		c := admit(t, g, to("a"))
		c.SettleStatus(200)
		c.Release()
		fails(t, g)
		assert.Equal(t, time.Second, refused(t, g, to("a"), breaker.ErrOpen).RetryAfter)
	})
}

func TestJitterMakesOpenPeriodsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 20 {
			g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: {initial: 10s, max: 1m, jitter: 0.2}}}
`)
			fails(t, g)
			d := refused(t, g, to("a"), breaker.ErrOpen).RetryAfter
			assert.GreaterOrEqual(t, d, 8*time.Second)
			assert.LessOrEqual(t, d, 12*time.Second)
			seen[d] = true
		}
		assert.Greater(t, len(seen), 1)
	})
}

// An upstream is heeded up to what the policy allows, and not at all if it allows
// nothing.
func TestRetryAfterIsHeededUpToItsCap(t *testing.T) {
	for _, test := range []struct {
		openFor string
		asked   time.Duration
		want    time.Duration
	}{
		{"{retryAfter: 2m}", time.Minute, time.Minute},
		{"{retryAfter: 2m}", time.Second, time.Second},
		{"{retryAfter: 2m}", time.Hour, 2 * time.Minute},
		{"{retryAfter: 2m}", 0, 30 * time.Second},
		{"{initial: 30s}", time.Minute, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: `+test.openFor+`}}
`)
			c := admit(t, g, to("a"))
			c.RetryAfter(test.asked)
			c.SettleStatus(503)
			c.RetryAfter(time.Hour) // too late
			c.Release()
			assert.Equal(t, test.want, refused(t, g, to("a"), breaker.ErrOpen).RetryAfter)
		})
	}
}

// A call that no breaker watches has nobody to tell.
func TestRetryAfterWithoutABreaker(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: all, bulkhead: {maxConcurrent: 1}}
`)
	c := admit(t, g, &policy.Request{Side: policy.Client, Host: "a"})
	assert.NotPanics(t, func() { c.RetryAfter(time.Second) })
	c.Release()
	new(watertight.Call).RetryAfter(time.Second)
}
