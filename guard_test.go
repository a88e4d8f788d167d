package watertight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// guard makes a Guard from native YAML.
func guard(t testing.TB, yaml string, opts ...watertight.Option) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return watertight.New(set, opts...)
}

// on describes a server request for a route that the router knows.
func on(route string) *policy.Request {
	return &policy.Request{Side: policy.Server, Method: "GET", Host: "here", EscapedPath: route, Route: route, RouteKnown: true}
}

// to describes a client call.
func to(host string) *policy.Request {
	return &policy.Request{Side: policy.Client, Method: "GET", Scheme: "http", Host: host, EscapedPath: "/"}
}

// compartment returns the one compartment with that policy and key.
func compartment(t testing.TB, g *watertight.Guard, name, key string) watertight.CompartmentSnapshot {
	t.Helper()
	var found []watertight.CompartmentSnapshot
	for _, c := range g.Snapshot().Compartments {
		if c.Policy == name && c.Key == key {
			found = append(found, c)
		}
	}
	require.Len(t, found, 1, "compartments of policy %q, key %q", name, key)
	return found[0]
}

func admit(t testing.TB, g *watertight.Guard, r *policy.Request) *watertight.Call {
	t.Helper()
	c, err := g.Admit(t.Context(), r)
	require.NoError(t, err)
	return &c
}

func refused(t testing.TB, g *watertight.Guard, r *policy.Request, want error) *watertight.RejectedError {
	t.Helper()
	_, err := g.Admit(t.Context(), r)
	require.ErrorIs(t, err, want)
	var rejected *watertight.RejectedError
	require.ErrorAs(t, err, &rejected)
	return rejected
}

func TestEachRouteIsACompartment(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    side: server
    bulkhead: {maxConcurrent: 1}
`)
	slow := admit(t, g, on("/slow"))
	fast := admit(t, g, on("/fast"))
	rej := refused(t, g, on("/slow"), bulkhead.ErrFull)
	assert.Equal(t, "all", rej.Policy)
	assert.Equal(t, "/slow", rej.Key)
	assert.Equal(t, policy.ReasonFull, rej.Reason)
	assert.Equal(t, time.Second, rej.RetryAfter)
	assert.Equal(t, http.StatusServiceUnavailable, rej.StatusCode())
	slow.Release()
	fast.Release()
	admit(t, g, on("/slow")).Release()
	c := compartment(t, g, "all", "/slow")
	assert.EqualValues(t, 2, c.Granted)
	assert.EqualValues(t, 1, c.Rejected["full"])
	assert.NotNil(t, c.Bulkhead.PressedSince, "somebody was refused a moment ago")
	c.Bulkhead.PressedSince = nil
	assert.Equal(t, &watertight.BulkheadSnapshot{Limit: 1, Peak: 1}, c.Bulkhead)
	assert.Nil(t, c.Breaker)
}

func TestTheTwoSidesShareNoCompartment(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1}
`)
	s := admit(t, g, on("/"))
	c := admit(t, g, to("there"))
	refused(t, g, on("/"), bulkhead.ErrFull)
	refused(t, g, to("elsewhere"), bulkhead.ErrFull)
	s.Release()
	c.Release()
}

func TestFirstBulkheadAndFirstBreakerMayBelongToTwoPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: watch
    side: client
    per: policy
    breaker: {minCalls: 1, window: {calls: 1}, openFor: 10s}
  - name: limit
    side: client
    bulkhead: {maxConcurrent: 1}
    breaker: {minCalls: 1}
`)
		c := admit(t, g, to("a"))
		assert.True(t, c.Watched())
		refused(t, g, to("a"), bulkhead.ErrFull)
		c.SettleStatus(500)
		c.Release()
		rej := refused(t, g, to("a"), breaker.ErrOpen)
		assert.Equal(t, "watch", rej.Policy)
		assert.Equal(t, 10*time.Second, rej.RetryAfter)

		limit := compartment(t, g, "limit", "http://a:80")
		assert.EqualValues(t, 1, limit.Granted)
		assert.EqualValues(t, 1, limit.Rejected["full"])
		assert.Zero(t, limit.Breaker.Calls, "the first breaker decides, the second never hears of the call")
		watch := compartment(t, g, "watch", "")
		assert.EqualValues(t, 1, watch.Rejected["open"])
		assert.Zero(t, watch.Granted, "a call is counted once, on the compartment that decided")
		assert.Nil(t, watch.Bulkhead)
		assert.Equal(t, "open", watch.Breaker.State)
		assert.EqualValues(t, 10_000, watch.Breaker.OpenRemainingMs)
	})
}

// E13: exempt calls are let through while everything is full, and counted.
func TestExemptIsNeverLimitedAndStillCounted(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1}
`)
	held := admit(t, g, on("/x"))
	h1, h2 := admit(t, g, on("/healthz")), admit(t, g, on("/healthz"))
	c := compartment(t, g, "health", "")
	assert.EqualValues(t, 2, c.InFlight)
	assert.EqualValues(t, 2, c.Granted)
	assert.Nil(t, c.Bulkhead)
	h1.Release()
	h2.Release()
	held.Release()
	assert.Zero(t, compartment(t, g, "health", "").InFlight)
}

// E26: what no route matches is neither limited nor a key.
func TestUnroutedAndUnmatchedAreUnlimitedAndCounted(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: a
    side: server
    match: [{path: /a}]
    bulkhead: {maxConcurrent: 1}
`)
	none := &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/a", RouteKnown: true}
	x, y := admit(t, g, none), admit(t, g, none)
	z := admit(t, g, on("/b"))
	c := compartment(t, g, "(unmatched)", "")
	assert.EqualValues(t, 3, c.Granted)
	assert.EqualValues(t, 3, c.InFlight)
	for _, call := range []*watertight.Call{x, y, z} {
		call.Release()
		call.Release()
	}
	assert.Zero(t, compartment(t, g, "(unmatched)", "").InFlight)
	assert.Len(t, g.Snapshot().Compartments, 1)
}

func TestWithoutARouterThePathPatternIsTheKey(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: a
    side: server
    match:
      - path: /a/{id}
      - path: /b/{id}
    bulkhead: {maxConcurrent: 1}
  - name: rest
    side: server
    bulkhead: {maxConcurrent: 1}
`)
	at := func(path string) *policy.Request {
		return &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: path}
	}
	a, b, rest := admit(t, g, at("/a/1")), admit(t, g, at("/b/1")), admit(t, g, at("/c"))
	assert.Equal(t, "/a/{id}", refused(t, g, at("/a/2"), bulkhead.ErrFull).Key)
	assert.Equal(t, "", refused(t, g, at("/d"), bulkhead.ErrFull).Key)
	a.Release()
	b.Release()
	rest.Release()
}

// E15: a context that is done loses even if a permit is free.
func TestDeadContextIsNeverAdmitted(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    bulkhead: {maxConcurrent: 5, maxWait: 1s}
    breaker: {}
`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		for _, r := range []*policy.Request{on("/"), to("a")} {
			_, err := g.Admit(ctx, r)
			require.Equal(t, context.Canceled, err, "the context's own error, untouched")
		}
	}
	assert.EqualValues(t, 1000, compartment(t, g, "all", "/").Left)
	assert.Zero(t, compartment(t, g, "all", "/").Granted)
}

// A caller's own error is its own, whatever it wraps.
func TestACallersErrorIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}
`)
		held := admit(t, g, to("a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Admit(wrappingContext{ctx}, to("a"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		var rejected *watertight.RejectedError
		require.NotErrorAs(t, err, &rejected)
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 1, c.Left)
		assert.Zero(t, c.Rejected["full"])
		held.Release()
	})
}

// A wrappingContext says in its error what another bulkhead said.
type wrappingContext struct{ context.Context }

func (c wrappingContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return fmt.Errorf("gone: %w", bulkhead.ErrFull)
	}
	return nil
}

func TestRefusalsCarryThePolicysStatusAndRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}
    breaker: {minCalls: 1, openFor: 1500ms, halfOpen: {calls: 1}}
    reject: {status: {full: 429, wait_timeout: 503, open: 502}, retryAfter: 7s}
`)
		held := admit(t, g, on("/"))
		done := make(chan error)
		go func() {
			_, err := g.Admit(t.Context(), on("/"))
			done <- err
		}()
		synctest.Wait()
		full := refused(t, g, on("/"), bulkhead.ErrFull)
		assert.Equal(t, 429, full.StatusCode())
		assert.Equal(t, 7*time.Second, full.RetryAfter)
		assert.False(t, full.Timeout())
		var late *watertight.RejectedError
		require.ErrorAs(t, <-done, &late)
		assert.ErrorIs(t, late, bulkhead.ErrWaitTimeout)
		assert.NotErrorIs(t, late, context.DeadlineExceeded, "nobody's context ended")
		assert.True(t, late.Timeout())
		assert.Equal(t, 503, late.StatusCode())

		held.SettleFailure()
		held.Release()
		open := refused(t, g, on("/"), breaker.ErrOpen)
		assert.Equal(t, 502, open.StatusCode())
		assert.Equal(t, 1500*time.Millisecond, open.RetryAfter, "the time left open, not the policy's")
		time.Sleep(1500 * time.Millisecond)
		probe := admit(t, g, on("/"))
		halfOpen := refused(t, g, on("/"), breaker.ErrOpen)
		assert.Equal(t, 7*time.Second, halfOpen.RetryAfter, "nobody knows when a probe comes free")
		probe.SettleStatus(200)
		probe.Release()
	})
}

// E43: an open breaker refuses without a wait although the bulkhead is full,
// and a probe that the bulkhead refuses is handed back.
func TestBreakerComesBeforeTheQueueAndProbesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 2, maxWait: 1m}
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}
`)
		held := admit(t, g, on("/"))
		failing := admit(t, g, on("/"))
		failing.SettleFailure() // its permit stays out: the limit is reached
		start := time.Now()
		refused(t, g, on("/"), breaker.ErrOpen)
		assert.Zero(t, time.Since(start))

		time.Sleep(time.Second)
		for range 100 { // each takes the only probe, waits in vain or leaves, and hands it back
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_, err := g.Admit(ctx, on("/"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		failing.Release()
		probe := admit(t, g, on("/"))
		probe.SettleStatus(200)
		probe.Release()
		held.Release()
		assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
	})
}

// E43: whoever queued while the breaker opened is asked again, and counts only
// as refused by it.
func TestWaitersMeetABreakerThatOpenedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1, maxWait: 1m}
    breaker: {minCalls: 1, openFor: 10s}
`)
		held := admit(t, g, on("/"))
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := g.Admit(t.Context(), on("/"))
				errs <- err
			}()
		}
		synctest.Wait()
		held.SettleFailure()
		held.Release()
		for range 3 {
			require.ErrorIs(t, <-errs, breaker.ErrOpen)
		}
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 1, c.Granted)
		assert.EqualValues(t, 3, c.Rejected["open"])
		assert.Zero(t, c.Bulkhead.InFlight)
	})
}

func TestCallsAreReleasedOnceHoweverOften(t *testing.T) {
	var released int
	g := guard(t, `
version: 1
defaults: {maxCompartments: 1}
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 2}}
`, watertight.WithHooks(watertight.Hooks{
		Release: func(context.Context, watertight.ReleaseEvent) { released++ },
	}))
	a, b := admit(t, g, to("a")), admit(t, g, to("a"))
	for range 3 {
		a.Release()
		a.Leak()
	}
	assert.Equal(t, 1, released)
	c := compartment(t, g, "hosts", "http://a:80")
	assert.Equal(t, 1, c.Bulkhead.InFlight)
	assert.Zero(t, c.Leaked)
	admit(t, g, to("other")).Release()
	assert.Equal(t, []string{"(overflow)", "a"}, keys(g), "one is still inside")
	require.ErrorIs(t, g.Drain(done(t)), context.Canceled)
	b.Release()
	require.NoError(t, g.Drain(done(t)))
}

// Waiting needs no breaker.
func TestABulkheadAloneMakesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}
`)
		held := admit(t, g, on("/"))
		time.AfterFunc(time.Second-1, held.Release)
		start := time.Now()
		c := admit(t, g, on("/"))
		assert.Equal(t, time.Second-1, time.Since(start))
		assert.False(t, c.Watched())
		refused(t, g, on("/"), bulkhead.ErrWaitTimeout)
		assert.Equal(t, 2*time.Second-1, time.Since(start))
		c.Release()
	})
}

// done returns a context that is.
func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestNilSetLimitsNothing(t *testing.T) {
	g := watertight.New(nil)
	admit(t, g, on("/")).Release()
	assert.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted)
	require.NoError(t, g.Drain(t.Context()))
}

func TestRejectedErrorNamesThingReasonAndWayOut(t *testing.T) {
	for _, test := range []struct {
		err  watertight.RejectedError
		want string
	}{
		{
			watertight.RejectedError{Policy: "reports", Key: "/r/{id}", Reason: policy.ReasonFull, RetryAfter: 2 * time.Second, Err: bulkhead.ErrFull},
			"watertight: policy reports (/r/{id}) refused the call, full: bulkhead: full; retry after 2s",
		},
		{
			watertight.RejectedError{Policy: "reports", Reason: policy.ReasonOpen, RetryAfter: time.Minute - 1, Err: breaker.ErrOpen},
			"watertight: policy reports refused the call, open: breaker: open; retry after 1m0s",
		},
		{
			watertight.RejectedError{Policy: "reports", Reason: policy.ReasonOpen, RetryAfter: 1500 * time.Microsecond, Err: breaker.ErrOpen},
			"watertight: policy reports refused the call, open: breaker: open; retry after 2ms",
		},
		{
			watertight.RejectedError{Policy: "reports", Reason: policy.ReasonDraining},
			"watertight: policy reports refused the call, draining",
		},
	} {
		assert.EqualError(t, &test.err, test.want)
	}
}

// net.Error and *url.Error ask for Timeout; a gateway, for the status.
func TestRejectedErrorMadeByHand(t *testing.T) {
	for _, reason := range []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining, policy.ReasonCanceled} {
		err := error(&watertight.RejectedError{Reason: reason})
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		assert.Equal(t, reason == policy.ReasonWaitTimeout, timeout.Timeout(), reason.String())
		status := http.StatusServiceUnavailable
		if reason == policy.ReasonWaitTimeout {
			status = http.StatusRequestTimeout
		}
		var rejected *watertight.RejectedError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, status, rejected.StatusCode(), reason.String())
		assert.NoError(t, errors.Unwrap(err))
	}
}

// What a policy file is warned of must not stay unseen by those who only use it.
func TestNewLogsWarnings(t *testing.T) {
	var log bytes.Buffer
	guard(t, `
version: 1
policies:
  - {name: a, breaker: {failureRate: 0.5}}
`, watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "test.yaml:4:")
}
