package watertight_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
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
	assert.Equal(t, policy.ReasonCanceled, left.Reason)
	assert.ErrorIs(t, left, context.Canceled)
	assert.Zero(t, left.RetryAfter)
	c.Release() // nothing
	var none watertight.Call
	assert.Equal(t, 503, none.Left(err).StatusCode())
}

// E27: however often a request meets the Guard, each compartment counts it once,
// and lets it go when the call that entered it ends.
func TestARequestIsCountedOnceInEachCompartment(t *testing.T) {
	const all = `
version: 1
policies:
  - {name: tenants, side: server, match: [{path: /a}], per: host, bulkhead: {maxConcurrent: 1}}
  - {name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}
`
	g := twice(t, all)
	outermost := admit(t, g, on("/a")) // tenants' bulkhead, all's breaker
	again, err := within(t, g, outermost, on("/a"))
	require.NoError(t, err)
	thrice, err := within(t, g, &again, on("/a"))
	require.NoError(t, err)
	other, err := within(t, g, &thrice, on("/b")) // all's bulkhead; its breaker watches already
	require.NoError(t, err)
	otherAgain, err := within(t, g, &other, on("/b"))
	require.NoError(t, err)

	for _, inner := range []*watertight.Call{&again, &thrice, &other, &otherAgain} {
		assert.False(t, inner.Watched())
		inner.SettleFailure() // says nothing
	}
	assert.True(t, outermost.Watched())
	books := func() []int {
		tenants, all := compartment(t, g, "tenants", "here"), compartment(t, g, "all", "")
		return []int{int(tenants.Granted), tenants.Bulkhead.InFlight, int(all.Granted), all.Bulkhead.InFlight}
	}
	require.Equal(t, []int{1, 1, 1, 1}, books())
	refused(t, g, on("/a"), bulkhead.ErrFull)
	refused(t, g, on("/b"), bulkhead.ErrFull)

	otherAgain.Release()
	require.Equal(t, []int{1, 1, 1, 1}, books())
	other.Release()
	require.Equal(t, []int{1, 1, 1, 0}, books())
	thrice.Release()
	again.Release()
	require.Equal(t, []int{1, 1, 1, 0}, books())
	outermost.SettleStatus(200)
	outermost.Release()
	require.Equal(t, []int{1, 0, 1, 0}, books())
	assert.Equal(t, 1, compartment(t, g, "all", "").Breaker.Calls)
	assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
}

// E27: two Guards are two.
func TestEachGuardKnowsOnlyItsOwn(t *testing.T) {
	const one = `
version: 1
policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]
`
	a, b := twice(t, one), twice(t, one)
	outer := admit(t, a, on("/"))
	inner, err := within(t, b, outer, on("/"))
	require.NoError(t, err)
	innermost, err := within(t, a, &inner, on("/"))
	require.NoError(t, err, "the mark of b does not hide that of a")
	for _, g := range []*watertight.Guard{a, b} {
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 1, c.Granted)
		assert.Equal(t, 1, c.Bulkhead.InFlight)
	}
	innermost.Release()
	inner.Release()
	outer.Release()
}

// E27: a handler alone neither writes a mark nor looks for one; and a call of
// the client side, as of a gateway, is a call of its own whatever is in its
// context.
func TestOnlyServersThatMayMeetTwiceMark(t *testing.T) {
	const both = `
version: 1
policies: [{name: all, per: policy, bulkhead: {maxConcurrent: 1}}]
`
	alone := guard(t, both)
	alone.Wrapped()
	c := admit(t, alone, on("/"))
	ctx, derived := c.MarkedContext()
	assert.False(t, derived)
	assert.Equal(t, t.Context(), ctx)
	c.Release()

	g := twice(t, both)
	outer := admit(t, g, on("/"))
	ctx, derived = outer.MarkedContext()
	assert.True(t, derived)
	client, err := g.Admit(ctx, to("up"))
	require.NoError(t, err)
	_, err = g.Admit(ctx, to("up"))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	outer.Release()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Drain(dead), context.Canceled, "and is waited for as one")
	client.Release()
	require.NoError(t, g.Drain(dead))
}

// What no policy limits is in flight once, too.
func TestExemptAndUnmatchedAreCountedOnce(t *testing.T) {
	g := twice(t, `
version: 1
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: a, side: server, match: [{path: /a}], bulkhead: {maxConcurrent: 1}}
`)
	for _, test := range []struct{ path, policy string }{{"/healthz", "health"}, {"/other", "(unmatched)"}} {
		outer := admit(t, g, on(test.path))
		inner, err := within(t, g, outer, on(test.path))
		require.NoError(t, err)
		c := compartment(t, g, test.policy, "")
		assert.EqualValues(t, 1, c.Granted, test.path)
		assert.EqualValues(t, 1, c.InFlight, test.path)

		limited, err := within(t, g, &inner, on("/a"))
		require.NoError(t, err, "what it is in outside limits nothing inside")
		refused(t, g, on("/a"), bulkhead.ErrFull)
		limited.Release()
		inner.Release()
		outer.Release()
		assert.Zero(t, compartment(t, g, test.policy, "").InFlight, test.path)
	}
}

// What is not entered further out is entered further in, for itself.
func TestWhatIsNewFurtherInIsEntered(t *testing.T) {
	g := twice(t, `
version: 1
policies:
  - {name: outside, side: server, match: [{path: /out}], per: policy, bulkhead: {maxConcurrent: 1}, breaker: {}}
  - {name: permits, side: server, match: [{path: /permits}], bulkhead: {maxConcurrent: 1}}
  - {name: outcomes, side: server, match: [{path: /outcomes}], breaker: {minCalls: 1}}
`)
	outer := admit(t, g, on("/out"))
	for _, known := range []bool{true, false} { // with and without a router
		at := func(path string) *policy.Request {
			r := on(path)
			if !known {
				r.Route, r.RouteKnown = "", false
			}
			return r
		}
		permit, err := within(t, g, outer, at("/permits"))
		require.NoError(t, err)
		assert.False(t, permit.Watched())
		_, err = within(t, g, outer, at("/permits"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		permit.Release()

		outcome, err := within(t, g, outer, at("/outcomes"))
		require.NoError(t, err)
		assert.True(t, outcome.Watched())
		outcome.SettleStatus(200)
		outcome.Release()
	}
	assert.Equal(t, 2, compartment(t, g, "outcomes", "/outcomes").Breaker.Calls)
	assert.EqualValues(t, 2, compartment(t, g, "permits", "/permits").Granted)
	outer.Release()
}

// Invariant 1: work that a handler left behind has its context, mark and all. It
// is not inside any more, and what it sends through the Guard is new.
func TestAMarkEndsWithItsCall(t *testing.T) {
	g := twice(t, `
version: 1
policies:
  - {name: a, side: server, match: [{path: /a}], bulkhead: {maxConcurrent: 1}, breaker: {}}
  - {name: b, side: server, match: [{path: /b}], per: policy, breaker: {}}
`)
	outer := admit(t, g, on("/a"))
	first, _ := outer.MarkedContext()
	second, _ := outer.MarkedContext()
	inner, err := g.Admit(first, on("/b"))
	require.NoError(t, err)
	innerCtx, _ := inner.MarkedContext()
	outer.Release() // its handler has returned, as http.TimeoutHandler does; the inner one runs on

	held := admit(t, g, on("/a"))
	ctxs := []context.Context{first, second, innerCtx}
	for _, ctx := range ctxs {
		_, err = g.Admit(ctx, on("/a"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		blind := &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/a"}
		_, err = g.Admit(ctx, blind)
		require.ErrorIs(t, err, bulkhead.ErrFull)
	}
	held.Release()
	inner.Release()

	require.NoError(t, g.Drain(t.Context()))
	for _, ctx := range ctxs {
		_, err = g.Admit(ctx, on("/b"))
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		_, err = g.Admit(ctx, on("/none"))
		require.ErrorIs(t, err, bulkhead.ErrClosed)
	}
}

// A request that is inside already may still enter what has no bulkhead: draining
// waits for it in any case.
func TestDrainLetsARequestThatIsInsideFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := twice(t, drained)
		outer := admit(t, g, on("/other"))
		done := make(chan error, 1)
		go func() { done <- g.Drain(t.Context()) }()
		synctest.Wait()
		inner, err := within(t, g, outer, on("/watched"))
		require.NoError(t, err)
		_, err = within(t, g, outer, on("/slow"))
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		unmatched, err := within(t, g, outer, on("/another"))
		require.NoError(t, err)
		unmatched.Release()
		inner.Release()
		synctest.Wait()
		require.Empty(t, done)
		outer.Release()
		require.NoError(t, <-done)
	})
}

// Requests that meet the Guard three times, and work that they leave behind, from
// many goroutines.
func TestNestedCallsUnderLoad(t *testing.T) {
	g := twice(t, `
version: 1
policies:
  - {name: a, side: server, match: [{path: /a}], per: policy, bulkhead: {maxConcurrent: 3, maxQueue: 10000, maxWait: 1h}}
  - {name: b, side: server, match: [{path: /b}], bulkhead: {maxConcurrent: 2, maxQueue: 10000, maxWait: 1h}, breaker: {}}
`)
	var insideA, insideB atomic.Int64
	enter := func(ctx context.Context, path string, inside *atomic.Int64, limit int64, then func(context.Context)) {
		c, err := g.Admit(ctx, on(path))
		if err != nil {
			assert.ErrorIs(t, err, bulkhead.ErrClosed)
			return
		}
		assert.LessOrEqual(t, inside.Add(1), limit)
		ctx, _ = c.MarkedContext()
		runtime.Gosched()
		then(ctx)
		inside.Add(-1)
		c.Release()
	}
	nested := func(ctx context.Context, path string) {
		c, err := g.Admit(ctx, on(path))
		assert.NoError(t, err)
		c.Release()
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				enter(context.Background(), "/a", &insideA, 3, func(ctx context.Context) {
					nested(ctx, "/a")
					enter(ctx, "/b", &insideB, 2, func(ctx context.Context) {
						nested(ctx, "/a")
						nested(ctx, "/b")
					})
					if rand.IntN(4) == 0 {
						left := make(chan struct{})
						defer close(left)
						wg.Go(func() {
							<-left
							enter(context.WithoutCancel(ctx), "/b", &insideB, 2, func(ctx context.Context) { nested(ctx, "/b") })
						})
					}
				})
			}
		})
	}
	wg.Wait()
	for _, c := range g.Snapshot().Compartments {
		assert.Zero(t, c.InFlight, c.Policy)
		assert.Equal(t, map[string]int{"a": 3, "b": 2}[c.Policy], c.Bulkhead.Peak, "the load must reach the limit")
	}
	assert.NoError(t, g.Drain(t.Context()), "nobody is inside")
}

// A compartment that a request met twice is kept as long as it is inside, and not
// longer, for whatever it entered it.
func TestNestedCallsPinTheirCompartments(t *testing.T) {
	paths := []string{"/both", "/permit", "/outcome"} // of all, which is also named by these
	for _, out := range paths {
		for _, in := range paths {
			t.Run(out+in, func(t *testing.T) {
				g := twice(t, `
version: 1
defaults: {maxCompartments: 1}
policies:
  - {name: outcomes, side: server, match: [{path: /permit}], per: host, breaker: {}}
  - {name: permits, side: server, match: [{path: /outcome}], per: host, bulkhead: {maxConcurrent: 2}}
  - {name: all, side: server, per: host, bulkhead: {maxConcurrent: 1}, breaker: {}}
`)
				others := func() { // take what room there is
					for _, path := range paths {
						r := on(path)
						r.Host = "other"
						admit(t, g, r).Release()
					}
				}
				for range 3 {
					outer := admit(t, g, on(out))
					inner, err := within(t, g, outer, on(in))
					require.NoError(t, err)
					inner.SettleStatus(200)
					inner.Release()
					others()
					compartment(t, g, "all", "here")
					outer.SettleStatus(200)
					outer.Release()
					others()
					for _, c := range g.Snapshot().Compartments {
						assert.NotEqual(t, "here", c.Key, c.Policy)
						assert.Zero(t, c.InFlight, c.Policy)
					}
				}
			})
		}
	}
}
