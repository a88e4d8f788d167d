package metrics_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const roomy = `
version: 1
policies:
  - name: all
    bulkhead: {maxConcurrent: 100}
`

// variants are what telemetry can cost, with what is allocated for a call that the Guard
// admits and releases. Of what is allocated for a span that is not recorded, nothing is
// ours; of what is for one that is, the context that holds it and its attributes.
var variants = []struct {
	name   string
	hooks  func() []watertight.Hooks
	caller func(context.Context) context.Context
	allocs float64
}{
	{"no hooks", noHooks, noCaller, 0},
	{"noop providers", hooksWith(noop.NewTracerProvider(), noopmetric.NewMeterProvider()), noCaller, 0},
	{"noop providers, with a caller", hooksWith(noop.NewTracerProvider(), noopmetric.NewMeterProvider()), unsampledCaller, 0},
	{"metrics only", hooksWith(nil, aggregating(), metrics.WithoutSpans()), noCaller, 0},
	{"not sampled", hooksWith(sdk(sdktrace.NeverSample()), aggregating()), unsampledCaller, 2},
	{"not sampled, parent-based", hooksWith(sdk(sdktrace.NeverSample()), aggregating(), metrics.WithParentBasedSampler()), unsampledCaller, 0},
	{"recorded", hooksWith(sdk(sdktrace.AlwaysSample()), aggregating()), noCaller, 4},
	{"recorded, of a sampled caller", hooksWith(sdk(sdktrace.AlwaysSample()), aggregating()), sampledCaller, 4},
}

func noHooks() []watertight.Hooks { return nil }

func hooksWith(p trace.TracerProvider, m metric.MeterProvider, opts ...metrics.Option) func() []watertight.Hooks {
	return func() []watertight.Hooks {
		return []watertight.Hooks{metrics.New(append(opts, metrics.WithTracerProvider(p), metrics.WithMeterProvider(m))...)}
	}
}

// aggregating returns a provider that aggregates, with nobody to collect.
func aggregating() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithResource(resource.Empty()), sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// sdk returns a provider that makes spans and drops them at their end.
func sdk(s sdktrace.Sampler) trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithResource(resource.Empty()), sdktrace.WithSampler(sdktrace.ParentBased(s)))
}

func noCaller(ctx context.Context) context.Context { return ctx }

func unsampledCaller(ctx context.Context) context.Context { return caller(ctx, 0) }
func sampledCaller(ctx context.Context) context.Context   { return caller(ctx, trace.FlagsSampled) }

func caller(ctx context.Context, flags trace.TraceFlags) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags,
	}))
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			g := newGuard(t, roomy, v.hooks()...)
			ctx := v.caller(t.Context())
			req := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
			assert.Equal(t, v.allocs, testing.AllocsPerRun(1000, func() {
				call, err := g.Admit(ctx, req)
				if err != nil {
					t.Fatal(err)
				}
				call.Release()
			}))
		})
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, v := range variants {
		b.Run(v.name, func(b *testing.B) {
			g := newGuard(b, roomy, v.hooks()...)
			ctx := v.caller(b.Context())
			req := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
			b.ReportAllocs()
			for b.Loop() {
				call, err := g.Admit(ctx, req)
				if err != nil {
					b.Fatal(err)
				}
				call.Release()
			}
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, v := range variants {
		b.Run(v.name, func(b *testing.B) {
			resp := &http.Response{StatusCode: http.StatusNoContent}
			rt := transport.New(baseFunc(func(*http.Request) (*http.Response, error) { return resp, nil }),
				newGuard(b, roomy, v.hooks()...))
			req := get(v.caller(b.Context()), "http://up.internal/")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReject(b *testing.B) {
	for _, v := range variants {
		b.Run(v.name, func(b *testing.B) {
			g := newGuard(b, oneClientPermit, v.hooks()...)
			ctx := v.caller(b.Context())
			req := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
			held, err := g.Admit(ctx, req)
			require.NoError(b, err)
			defer held.Release()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Admit(ctx, req); err == nil {
					b.Fatal("admitted")
				}
			}
		})
	}
}
