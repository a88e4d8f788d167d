package jaegertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// kinds are the names of all spans that watertight makes.
var kinds = []string{
	"bulkhead.wait", "bulkhead.grant", "bulkhead.reject",
	"breaker.reject", "breaker.trip", "breaker.half_open", "breaker.close",
}

// The services of the example programs.
const (
	clientService = "watertight-client"
	serverService = "watertight-server"
)

// A contract is what watertight's spans must be like, given the policies. It
// asks of a trace only what holds of every one, whatever happened in it.
type contract struct {
	rules map[string]*policy.Rule // by name
}

// contractOf returns the contract for the policies in files.
func contractOf(t *testing.T, files ...string) contract {
	t.Helper()
	c := contract{rules: make(map[string]*policy.Rule)}
	for _, file := range files {
		set, err := policy.Load(file)
		require.NoError(t, err)
		for _, r := range set.Rules() {
			require.NotContains(t, c.rules, r.Name)
			c.rules[r.Name] = r
		}
	}
	return c
}

// hold checks all spans of a trace.
func (c contract) hold(t *testing.T, tr *trace) {
	t.Helper()
	for _, s := range tr.spans {
		c.holdFor(t, tr, s)
		if t.Failed() {
			require.FailNow(t, "a trace is not as it should be", "look at %s in %s", s.name, tr)
		}
	}
}

func (c contract) holdFor(t *testing.T, tr *trace, s *span) {
	t.Helper()
	if p := tr.parent(s); p != nil {
		assert.False(t, s.start.Before(p.start), "a span begins before its parent")
	}
	if s.text("otel.scope.name") != metrics.ScopeName {
		c.others(t, tr, s)
		return
	}
	require.Contains(t, kinds, s.name)
	r := c.rules[s.text("watertight.policy")]
	require.NotNil(t, r, "no policy has the name %q", s.text("watertight.policy"))
	c.compartment(t, tr, s, r)
	c.caller(t, tr, s)
	c.errors(t, tr, s, r)
	if s.name != "bulkhead.grant" {
		assert.Empty(t, tr.under(s), "nothing belongs under it")
	}
	switch s.name {
	case "bulkhead.wait":
		c.wait(t, tr, s, r)
	case "bulkhead.grant":
		c.grant(t, tr, s, r)
	case "bulkhead.reject":
		c.reject(t, tr, s, r)
	case "breaker.reject":
		c.rejectOpen(t, tr, s, r)
	case "breaker.trip":
		c.trip(t, s, r)
	case "breaker.half_open":
		assert.Equal(t, "open", s.text("watertight.breaker.from"))
		assert.Equal(t, "half_open", s.text("watertight.breaker.to"))
		assert.Equal(t, "open_elapsed", s.text("watertight.breaker.cause"))
	case "breaker.close":
		c.close(t, s, r)
	}
}

// others checks a span of otelhttp or of the programs: a call on the wire
// belongs under a permit, and what arrives there under that call.
func (c contract) others(t *testing.T, tr *trace, s *span) {
	t.Helper()
	assert.NotContains(t, kinds, s.name)
	p := tr.parent(s)
	if p == nil {
		return
	}
	switch s.text("span.kind") {
	case "client":
		assert.Equal(t, "bulkhead.grant", p.name, "a call on the wire should be under its permit")
		assert.Equal(t, p.service, s.service)
	case "server":
		assert.Equal(t, "client", p.text("span.kind"), "a request should be under the call that sent it")
		assert.NotEqual(t, p.service, s.service)
	}
}

// compartment checks policy, side and key.
func (c contract) compartment(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	assert.Equal(t, "internal", s.text("span.kind"))
	side := policy.Server
	if s.text("watertight.side") != side.String() {
		side = policy.Client
	}
	assert.Equal(t, side.String(), s.text("watertight.side"))
	assert.Equal(t, r.Side, side)
	require.Contains(t, s.tags, "watertight.key")
	key := s.text("watertight.key")
	switch r.PerOn(side) {
	case policy.PerPolicy:
		assert.Empty(t, key)
	case policy.PerRoute:
		if p := tr.parent(s); p != nil {
			assert.NotEmpty(t, key)
			assert.Equal(t, p.text("http.route"), key, "the key should be the request's route")
		}
	case policy.PerHost:
		assert.Regexp(t, `^http://127\.0\.0\.1:[0-9]+$`, key)
	}
}

// caller checks that the parent is the span that the caller was in: that of the
// request on a server, that of the handler or of the program in a client, and
// never one that the same admission made.
func (c contract) caller(t *testing.T, tr *trace, s *span) {
	t.Helper()
	p := tr.parent(s)
	if p == nil {
		return // the caller was elsewhere; the test knows where
	}
	assert.Equal(t, p.service, s.service)
	switch {
	case s.text("watertight.side") == "server":
		assert.Equal(t, "server", p.text("span.kind"), "the parent should be the request's span")
	case s.service == serverService:
		assert.Equal(t, "bulkhead.grant", p.name, "the parent should be what the handler ran under")
		assert.Equal(t, "server", p.text("watertight.side"), "the parent should be what the handler ran under")
	default:
		assert.Regexp(t, "^call ", p.name, "the parent should be the program's own span")
	}
}

// errors checks that what is marked as an error is each refusal, and nothing
// else; and that the caller got the status that goes with it.
func (c contract) errors(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	if s.name != "bulkhead.reject" && s.name != "breaker.reject" {
		for _, tag := range []string{"error", "error.type", "otel.status_code", "otel.status_description", "watertight.reason"} {
			assert.NotContains(t, s.tags, tag)
		}
		return
	}
	reason := s.text("watertight.reason")
	assert.Equal(t, true, s.tags["error"])
	assert.Equal(t, "ERROR", s.text("otel.status_code"))
	assert.Equal(t, reason, s.text("otel.status_description"))
	assert.Equal(t, reason, s.text("error.type"))
	assert.Empty(t, tr.beside(s, "bulkhead.grant"), "refused and granted")

	for p := tr.parent(s); p != nil; p = tr.parent(p) {
		if p.text("span.kind") == "server" {
			assert.EqualValues(t, r.RejectStatus(reasons[reason]), p.number("http.response.status_code"))
			return
		}
	}
}

var reasons = map[string]policy.Reason{
	"full":         policy.ReasonFull,
	"wait_timeout": policy.ReasonWaitTimeout,
	"open":         policy.ReasonOpen,
	"draining":     policy.ReasonDraining,
}

func (c contract) wait(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	between(t, s, "watertight.queue.position", 1, r.Bulkhead.MaxQueue)
	assert.Positive(t, s.duration)
	switch result := s.text("watertight.result"); result {
	case "granted":
		// A breaker that opened meanwhile may take back what the bulkhead gave.
		next := append(tr.beside(s, "bulkhead.grant"), tr.beside(s, "breaker.reject")...)
		require.Len(t, next, 1, "what came of the permit?")
		assert.False(t, next[0].start.Before(s.end()), "the wait should end before the permit is there")
	case "wait_timeout":
		assert.GreaterOrEqual(t, s.duration, r.Bulkhead.MaxWait)
		rejects := tr.beside(s, "bulkhead.reject")
		require.Len(t, rejects, 1)
		assert.Equal(t, result, rejects[0].text("watertight.reason"))
	default:
		assert.Fail(t, "nobody left and nobody drained", "result %q", result)
	}
}

func (c contract) grant(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	assert.EqualValues(t, r.Bulkhead.MaxConcurrent, s.number("watertight.limit"))
	between(t, s, "watertight.in_flight", 1, r.Bulkhead.MaxConcurrent)
	assert.NotContains(t, s.tags, "watertight.leaked")
	waits := tr.beside(s, "bulkhead.wait")
	if waited := s.number("watertight.waited_ms"); waited == 0 {
		assert.Empty(t, waits)
	} else if assert.Len(t, waits, 1) {
		assert.Positive(t, waited)
		assert.InDelta(t, waited, milliseconds(waits[0].duration), 0.001, "the wait should have taken what the grant says")
	}
	if s.text("watertight.side") == "server" {
		return // what the handler does is its own affair
	}
	calls := tr.under(s)
	require.Len(t, calls, 1, "the call on the wire should be there, once")
	assert.Equal(t, "client", calls[0].text("span.kind"))
	if r.PerOn(policy.Client) == policy.PerHost {
		host := fmt.Sprintf("http://%s:%v", calls[0].text("server.address"), calls[0].number("server.port"))
		assert.Equal(t, host, s.text("watertight.key"))
	}
}

func (c contract) reject(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	b := r.Bulkhead
	assert.EqualValues(t, b.MaxConcurrent, s.number("watertight.limit"))
	assert.EqualValues(t, b.MaxConcurrent, s.number("watertight.in_flight"), "a permit was free")
	assert.InDelta(t, milliseconds(r.RetryAfter), s.number("watertight.retry_after_ms"), 0.001)
	waits := tr.beside(s, "bulkhead.wait")
	switch reason := s.text("watertight.reason"); reason {
	case "full":
		assert.EqualValues(t, b.MaxQueue, s.number("watertight.queued"), "there was room in the queue")
		assert.Empty(t, waits)
	case "wait_timeout":
		between(t, s, "watertight.queued", 0, b.MaxQueue)
		assert.Len(t, waits, 1)
	default:
		assert.Fail(t, "no reason for a bulkhead", "reason %q", reason)
	}
}

func (c contract) rejectOpen(t *testing.T, tr *trace, s *span, r *policy.Rule) {
	t.Helper()
	assert.Equal(t, "open", s.text("watertight.reason"))
	for _, tag := range []string{"watertight.limit", "watertight.in_flight", "watertight.queued"} {
		assert.NotContains(t, s.tags, tag, "no bulkhead was asked")
	}
	retryAfter := s.number("watertight.retry_after_ms")
	switch state := s.text("watertight.breaker.state"); state {
	case "open":
		assert.Positive(t, retryAfter)
		assert.LessOrEqual(t, retryAfter, milliseconds(r.Breaker.OpenFor))
	case "half_open":
		assert.InDelta(t, milliseconds(r.RetryAfter), retryAfter, 0.001)
	default:
		assert.Fail(t, "a breaker in this state refuses nobody", "state %q", state)
	}
}

func (c contract) trip(t *testing.T, s *span, r *policy.Rule) {
	t.Helper()
	assert.Equal(t, "open", s.text("watertight.breaker.to"))
	assert.InDelta(t, milliseconds(r.Breaker.OpenFor), s.number("watertight.breaker.open_for_ms"), 0.001)
	if s.text("watertight.breaker.cause") == "overdue" {
		// Judged by the calls in flight, of which there may be more than in the
		// window.
		assert.Equal(t, "closed", s.text("watertight.breaker.from"))
		o, d := s.number("watertight.breaker.overdue"), s.number("watertight.breaker.responded")
		assert.GreaterOrEqual(t, o, float64(min(r.Breaker.MinCalls, r.Bulkhead.MaxConcurrent)))
		assert.GreaterOrEqual(t, 100*o/(o+d), r.Breaker.SlowCallRate)
		return
	}
	switch from := s.text("watertight.breaker.from"); from {
	case "closed":
		between(t, s, "watertight.breaker.calls", r.Breaker.MinCalls, r.Breaker.Window.Calls)
	case "half_open":
		c.probes(t, s, r)
	default:
		assert.Fail(t, "no state to trip from", "state %q", from)
	}
	failed, slow := rates(t, s)
	switch cause := s.text("watertight.breaker.cause"); cause {
	case "failure_rate":
		assert.GreaterOrEqual(t, failed, r.Breaker.FailureRate)
	case "slow_call_rate":
		assert.Positive(t, r.Breaker.SlowCall)
		assert.GreaterOrEqual(t, slow, r.Breaker.SlowCallRate)
	default:
		assert.Fail(t, "no cause to trip", "cause %q", cause)
	}
}

func (c contract) close(t *testing.T, s *span, r *policy.Rule) {
	t.Helper()
	assert.Equal(t, "half_open", s.text("watertight.breaker.from"))
	assert.Equal(t, "closed", s.text("watertight.breaker.to"))
	assert.Equal(t, "probes", s.text("watertight.breaker.cause"))
	c.probes(t, s, r)
	failed, slow := rates(t, s)
	assert.Less(t, failed, r.Breaker.FailureRate)
	if r.Breaker.SlowCall > 0 {
		assert.Less(t, slow, r.Breaker.SlowCallRate)
	}
}

// probes checks how many calls the half-open state came to its end with.
func (c contract) probes(t *testing.T, s *span, r *policy.Rule) {
	t.Helper()
	n := r.Breaker.HalfOpen.Calls
	between(t, s, "watertight.breaker.calls", min(n, r.Breaker.MinCalls), n)
}

// rates returns the two rates of a transition that was decided by them.
func rates(t *testing.T, s *span) (failed, slow float64) {
	t.Helper()
	between(t, s, "watertight.breaker.failure_rate", 0, 100)
	between(t, s, "watertight.breaker.slow_call_rate", 0, 100)
	return s.number("watertight.breaker.failure_rate"), s.number("watertight.breaker.slow_call_rate")
}

// between checks that a tag is a number from low to high.
func between(t *testing.T, s *span, tag string, low, high int) {
	t.Helper()
	require.Contains(t, s.tags, tag)
	v := s.number(tag)
	assert.GreaterOrEqual(t, v, float64(low), tag)
	assert.LessOrEqual(t, v, float64(high), tag)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
