package watertight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// twice makes a Guard that expects to meet a request more than once.
func twice(t *testing.T, yaml string) *watertight.Guard {
	g := guard(t, yaml)
	g.Wrapped()
	g.Wrapped()
	return g
}

// within admits r as a handler does that is inside of outer's.
func within(t *testing.T, g *watertight.Guard, outer *watertight.Call, r *policy.Request) (watertight.Call, error) {
	t.Helper()
	ctx, _ := outer.MarkedContext()
	return g.Admit(ctx, r)
}

// An exempt call is not waited for; a limited one inside of it is.
func TestDrainWaitsForALimitedCallInsideAnExemptOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := twice(t, `
version: 1
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: all, side: server, bulkhead: {maxConcurrent: 1}}
`)
		outer := admit(t, g, on("/healthz"))
		inner, err := within(t, g, outer, on("/a"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Drain(ctx), context.DeadlineExceeded)

		// And another one does not get in any more.
		_, err = within(t, g, outer, on("/b"))
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		inner.Release()
		require.NoError(t, g.Drain(t.Context()))
		outer.Release()
	})
}

// A handler on the inside that knows no route leaves the request in the
// compartment that the one further out found for it.
func TestRouteUnknownInsideIsTheRouteKnownOutside(t *testing.T) {
	g := twice(t, `
version: 1
policies:
  - {name: all, side: server, bulkhead: {maxConcurrent: 1}, breaker: {}}
`)
	blind := &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/a"}
	outer := admit(t, g, on("/a"))
	inner, err := within(t, g, outer, blind)
	require.NoError(t, err)
	assert.False(t, inner.Watched(), "once is enough")
	require.Len(t, g.Snapshot().Compartments, 1)
	inner.Release()
	outer.SettleStatus(200)
	outer.Release()
	assert.EqualValues(t, 1, compartment(t, g, "all", "/a").Granted)
	assert.Equal(t, 1, compartment(t, g, "all", "/a").Breaker.Calls)
}

// What a breaker does shows although another policy's bulkhead counts the calls.
func TestSnapshotShowsABreakerThatCountsNoCalls(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: watch, side: client, per: policy, breaker: {minCalls: 1, window: {calls: 1}}}
  - {name: limit, side: client, bulkhead: {maxConcurrent: 1}}
`)
	c := admit(t, g, to("a"))
	c.SettleFailure()
	c.Release()
	assert.Equal(t, "open", compartment(t, g, "watch", "").Breaker.State)
}

func TestTheStatusOfACallerThatLeftIsThePolicys(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: all, side: server, bulkhead: {maxConcurrent: 1}, reject: {status: {canceled: 499}}}
`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := g.Admit(ctx, on("/a"))
	require.Equal(t, context.Canceled, err)
	left := c.Left(err)
	assert.Equal(t, 499, left.StatusCode())
	assert.Equal(t, policy.Canceled, left.Reason)
	assert.ErrorIs(t, left, context.Canceled)
	assert.Zero(t, left.RetryAfter)
	c.Release() // nothing
	var none watertight.Call
	assert.Equal(t, 503, none.Left(err).StatusCode())
}
