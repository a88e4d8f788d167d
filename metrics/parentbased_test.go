package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// counting counts the spans that a sampler is asked for.
type counting struct {
	sdktrace.Sampler
	asked *atomic.Int64
}

func (c counting) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	c.asked.Add(1)
	return c.Sampler.ShouldSample(p)
}

// With the option the sampler is not asked where it can only say no, and is asked
// everywhere else. What is recorded is the same with the option as without, for the
// samplers that it is meant for.
func TestParentBasedSampler(t *testing.T) {
	remote := func(ctx context.Context) context.Context {
		return trace.ContextWithRemoteSpanContext(ctx, remoteContext(t, unsampledRemote))
	}
	recordedOnly := func(ctx context.Context) context.Context {
		p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysRecord(sdktrace.NeverSample())))
		ctx, _ = p.Tracer("program").Start(ctx, "caller")
		return ctx
	}
	for _, tt := range []struct {
		name    string
		caller  func(context.Context) context.Context
		sampler sdktrace.Sampler
		asked   int64 // for a wait, a refusal and two grants, with the option
		spans   int
	}{
		{"a local caller, sampled out", unsampledCaller, sdktrace.AlwaysSample(), 0, 0},
		{"a local caller, sampled", sampledCaller, sdktrace.AlwaysSample(), 4, 4},
		{"a local caller, recorded only", recordedOnly, sdktrace.AlwaysSample(), 4, 0},
		{"a remote caller, sampled out", remote, sdktrace.AlwaysSample(), 4, 0},
		{"no caller", noCaller, sdktrace.AlwaysSample(), 4, 4},
		{"no caller, sampled out", noCaller, sdktrace.NeverSample(), 4, 0},
	} {
		for name, opts := range map[string][]metrics.Option{
			", without the option": nil,
			", with the option":    {metrics.WithParentBasedSampler()},
		} {
			t.Run(tt.name+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					recorder := tracetest.NewSpanRecorder()
					var asked atomic.Int64
					p := newProvider(recorder, sdktrace.WithSampler(counting{sdktrace.ParentBased(tt.sampler), &asked}))
					g := newGuard(t, oneServerPermit, metrics.New(append(opts,
						metrics.WithTracerProvider(p), metrics.WithLogger(slog.New(slog.DiscardHandler)))...))
					h := serverOf(g, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second / 2) })
					// One call is served, one waits until it is, one is refused.
					for range 3 {
						go serve(h, get(tt.caller(t.Context()), "/items/7"))
						synctest.Wait()
					}
					time.Sleep(time.Second)
					synctest.Wait()
					assert.Len(t, recorder.Ended(), tt.spans)
					if opts != nil {
						assert.Equal(t, tt.asked, asked.Load())
					} else {
						assert.EqualValues(t, 4, asked.Load())
					}
				})
			})
		}
	}
}

// A client call whose span was not even asked for leaves that of the request alone, in
// whose context it is made.
func TestParentBasedSamplerHidesTheOuterGrant(t *testing.T) {
	r := newRig(t, gateway)
	g := newGuard(t, gateway, metrics.New(metrics.WithTracerProvider(r.provider), metrics.WithParentBasedSampler()))
	up := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
	outer, err := g.Admit(t.Context(), up)
	require.NoError(t, err)
	ctx, _ := outer.Context()
	inner, err := g.Admit(unsampledCaller(ctx), up)
	require.NoError(t, err)
	inner.Release()
	require.Empty(t, r.recorder.Ended())
	outer.Release()
	r.only("bulkhead.grant")
}
