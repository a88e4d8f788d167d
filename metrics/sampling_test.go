package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// droppingNames samples all spans but those with a name that begins so.
type droppingNames string

func (d droppingNames) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if strings.HasPrefix(p.Name, string(d)) {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}
func (d droppingNames) Description() string { return "all but " + string(d) }

// What the sampler decides is what there is: whole traces where it goes by the trace,
// and no span of a name that it drops.
func TestSamplersAreObeyed(t *testing.T) {
	const calls = 200
	for _, tt := range []struct {
		name    string
		sampler sdktrace.Sampler
		want    func(t *testing.T, sampled int, ended map[string]int)
	}{
		{"all", sdktrace.AlwaysSample(), func(t *testing.T, sampled int, ended map[string]int) {
			assert.Equal(t, map[string]int{"caller": calls, "bulkhead.grant": calls, "bulkhead.reject": calls, "work": calls}, ended)
		}},
		{"none", sdktrace.NeverSample(), func(t *testing.T, sampled int, ended map[string]int) { assert.Empty(t, ended) }},
		{"half of the traces", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.5)), func(t *testing.T, sampled int, ended map[string]int) {
			assert.Equal(t, map[string]int{"caller": sampled, "bulkhead.grant": sampled, "bulkhead.reject": sampled, "work": sampled}, ended)
		}},
		{"no permits", droppingNames("bulkhead.grant"), func(t *testing.T, sampled int, ended map[string]int) {
			assert.Equal(t, map[string]int{"caller": calls, "bulkhead.reject": calls, "work": calls}, ended)
		}},
		{"nothing of ours", droppingNames("bulkhead."), func(t *testing.T, sampled int, ended map[string]int) {
			assert.Equal(t, map[string]int{"caller": calls, "work": calls}, ended)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, oneClientPermit, sdktrace.WithSampler(tt.sampler))
			up := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
			sampled := 0
			for range calls {
				ctx, caller := r.begin(t.Context(), "caller")
				if caller.SpanContext().IsSampled() {
					sampled++
				}
				c, err := r.guard.Admit(ctx, up)
				require.NoError(t, err)
				_, err = r.guard.Admit(ctx, up)
				require.Error(t, err)
				run, _ := c.Context()
				_, work := r.begin(run, "work")
				assert.Equal(t, caller.SpanContext().TraceID(), work.SpanContext().TraceID())
				work.End()
				c.Release()
				caller.End()
			}
			ended := map[string]int{}
			for _, s := range r.recorder.Ended() {
				ended[s.Name()]++
			}
			tt.want(t, sampled, ended)
		})
	}
}

// Where nothing is recorded, a hook costs what it costs to ask, and nothing of what it
// would have said is made.
func TestNothingIsAllocatedToBeDropped(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	p := sdk(sdktrace.NeverSample())
	hooks := metrics.New(metrics.WithTracerProvider(p), metrics.WithoutMetrics())
	ctx := unsampledCaller(t.Context())
	tracer := p.Tracer("bare")
	asking := testing.AllocsPerRun(1000, func() {
		_, span := tracer.Start(ctx, "bare")
		span.End()
	})
	event := watertight.RejectEvent{
		Compartment: watertight.Compartment{Policy: "up", Side: policy.Client, Key: "a key that is\x00 not printable"},
		Reason:      policy.ReasonFull, Limit: 1000, InFlight: 1000, Queued: 1000, RetryAfter: 1,
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { hooks.Reject(ctx, event) }), asking, "Reject")
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { hooks.Observe(ctx, event) }), asking, "Observe")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if hooks.Fault(ctx, watertight.FaultEvent{}) != nil {
			t.Fatal("kept what is not sampled")
		}
	}), "Fault")
}

// A call that goes well has nothing to do with the links of a trip: it allocates no more
// with a breaker, nor after others have failed.
func TestSuccessesPayNothingForLinks(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	admit := func(policies string) float64 {
		g := newGuard(t, policies, metrics.New(metrics.WithTracerProvider(sdk(sdktrace.AlwaysSample())), metrics.WithoutMetrics()))
		_ = g.Do(t.Context(), "up", func(context.Context) error { return errors.New("no") })
		req := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
		return testing.AllocsPerRun(1000, func() {
			c, err := g.Admit(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			c.SettleStatus(200)
			c.Release()
		})
	}
	const without = "version: 1\npolicies:\n  - {name: up, per: policy, bulkhead: {maxConcurrent: 10}}\n"
	const with = "version: 1\npolicies:\n  - {name: up, per: policy, bulkhead: {maxConcurrent: 10}, breaker: {slowCall: 1h}}\n"
	assert.Equal(t, admit(without), admit(with))
}

// E65: names of spans are those of the documentation, and what a caller can make up is
// cut down to something printable.
func TestHostileKeys(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - {name: tenants, side: client, per: "header:X-Tenant", bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1h}}
`)
	for _, tenant := range []string{"", strings.Repeat("long ", 100), "bad \xff byte", "new\nline", "\x1b[31mred", "caf\u00e9", "breaker.trip"} {
		c, err := r.guard.Admit(t.Context(), &policy.Request{
			Side: policy.Client, Scheme: "http", Host: "up.internal", Method: "X" + tenant, Path: tenant, EscapedPath: tenant,
			Header: map[string][]string{"X-Tenant": {tenant}},
		})
		require.NoError(t, err)
		c.SettleStatus(500)
		c.Release()
	}
	names := map[string]bool{}
	for _, s := range r.recorder.Ended() {
		names[s.Name()] = true
		key := attributesOf(s)["watertight.key"].(string)
		assert.LessOrEqual(t, len(key), 64)
		assert.NotContains(t, key, "\n")
		assert.NotContains(t, key, "\x1b")
		assert.NotContains(t, key, "\xff")
		for _, l := range s.Links() {
			assert.True(t, l.SpanContext.IsValid())
			assert.Len(t, l.Attributes, 2)
		}
	}
	assert.Equal(t, map[string]bool{"bulkhead.grant": true, "breaker.trip": true}, names)
}
