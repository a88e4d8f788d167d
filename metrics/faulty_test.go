package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/transport"
)

// A faultyProvider panics where it is told to.
type faultyProvider struct {
	trace.TracerProvider
	inTracer, inStart, inSetAttributes, inEnd atomic.Bool
}

func (p *faultyProvider) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	if p.inTracer.Load() {
		panic("Tracer")
	}
	return faultyTracer{p.TracerProvider.Tracer(name, opts...), p}
}

type faultyTracer struct {
	trace.Tracer
	p *faultyProvider
}

func (t faultyTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	if t.p.inStart.Load() {
		panic("Start")
	}
	ctx, span := t.Tracer.Start(ctx, name, opts...)
	return ctx, faultySpan{span, t.p}
}

type faultySpan struct {
	trace.Span
	p *faultyProvider
}

func (s faultySpan) SetAttributes(kv ...attribute.KeyValue) {
	if s.p.inSetAttributes.Load() {
		panic("SetAttributes")
	}
	s.Span.SetAttributes(kv...)
}

func (s faultySpan) End(opts ...trace.SpanEndOption) {
	if s.p.inEnd.Load() {
		panic("End")
	}
	s.Span.End(opts...)
}

// A faultyPropagator and a faultyLog panic always.
type faultyPropagator struct{ propagation.TextMapPropagator }

func (faultyPropagator) Extract(context.Context, propagation.TextMapCarrier) context.Context {
	panic("Extract")
}

type faultyLog struct{ slog.Handler }

func (faultyLog) Enabled(context.Context, slog.Level) bool { panic("Enabled") }

// Invariant 6: telemetry that fails never changes an admission.
func TestFaultsChangeNoAdmission(t *testing.T) {
	const policies = `
version: 1
policies:
  - name: all
    bulkhead: {maxConcurrent: 1}
    breaker: {minCalls: 3, openFor: 1h}
`
	for _, tt := range []struct {
		name  string
		spoil func(*faultyProvider)
		opts  []metrics.Option
	}{
		{"Tracer", func(p *faultyProvider) { p.inTracer.Store(true) }, nil},
		{"Start", func(p *faultyProvider) { p.inStart.Store(true) }, nil},
		{"SetAttributes", func(p *faultyProvider) { p.inSetAttributes.Store(true) }, nil},
		{"End", func(p *faultyProvider) { p.inEnd.Store(true) }, nil},
		{"Extract and the log", func(*faultyProvider) {}, []metrics.Option{
			metrics.WithPropagators(faultyPropagator{}), metrics.WithLogger(slog.New(faultyLog{})),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			provider := &faultyProvider{TracerProvider: newProvider(tracetest.NewSpanRecorder())}
			tt.spoil(provider)
			opts := append([]metrics.Option{
				metrics.WithTracerProvider(provider),
				metrics.WithLogger(slog.New(slog.DiscardHandler)),
			}, tt.opts...)
			g := newGuard(t, policies, metrics.New(opts...))

			status := http.StatusOK
			var h http.Handler
			inside := func() {}
			h = serverOf(g, func(w http.ResponseWriter, req *http.Request) {
				inside()
				w.WriteHeader(status)
			})
			ask := func() int { return serve(h, get(t.Context(), "/items/7")).StatusCode }

			inside = func() {
				inside = func() { t.Error("two calls inside") }
				assert.Equal(t, http.StatusServiceUnavailable, ask(), "full")
				inside = func() {}
			}
			assert.Equal(t, http.StatusOK, ask())
			status = http.StatusInternalServerError
			for range 2 {
				assert.Equal(t, http.StatusInternalServerError, ask())
			}
			assert.Equal(t, http.StatusServiceUnavailable, ask(), "open")

			rt := transport.New(answer(http.StatusOK, "body"), g)
			resp, err := rt.RoundTrip(get(t.Context(), "http://up.internal/"))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "body", string(body))

			for _, c := range g.Snapshot().Compartments {
				assert.Zero(t, c.InFlight)
				if c.Side == "server" && c.Policy == "all" {
					assert.Equal(t, uint64(3), c.Granted)
					assert.Equal(t, map[string]uint64{"full": 1, "open": 1}, nonzero(c.Rejected))
				}
			}
		})
	}
}

func nonzero(counts map[string]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for k, v := range counts {
		if v > 0 {
			m[k] = v
		}
	}
	return m
}
