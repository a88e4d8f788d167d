package main

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

// A level is how much telemetry a program has.
type level struct {
	name    string
	spans   trace.TracerProvider
	meters  metric.MeterProvider
	opts    []metrics.Option // what of ours is left out
	sampled bool             // the caller's span is
}

const (
	noHooks      = "no hooks"
	noopProvider = "noop providers"
	metricsOnly  = "metrics only"
	notSampled   = "metrics, spans not sampled"
	parentBased  = "metrics, spans not sampled, WithParentBasedSampler"
	sampled      = "metrics, spans sampled"
	spansOnly    = "spans sampled, no metrics"
)

func levels() []level {
	return []level{
		{name: noopProvider, spans: nooptrace.NewTracerProvider(), meters: noopmetric.NewMeterProvider()},
		{name: metricsOnly, spans: nooptrace.NewTracerProvider(), meters: meters(), opts: []metrics.Option{metrics.WithoutSpans()}},
		{name: notSampled, spans: tracers(), meters: meters()},
		{name: parentBased, spans: tracers(), meters: meters(), opts: []metrics.Option{metrics.WithParentBasedSampler()}},
		{name: sampled, spans: tracers(), meters: meters(), sampled: true},
		{name: spansOnly, spans: tracers(), meters: noopmetric.NewMeterProvider(), opts: []metrics.Option{metrics.WithoutMetrics()}, sampled: true},
	}
}

// hooks are those of package metrics at that level.
func (l level) hooks() watertight.Option {
	return watertight.WithHooks(metrics.New(append(l.opts,
		metrics.WithTracerProvider(l.spans), metrics.WithMeterProvider(l.meters), metrics.WithLogger(slog.New(slog.DiscardHandler)))...))
}

func (l level) otelhttp() []otelhttp.Option {
	return []otelhttp.Option{
		otelhttp.WithTracerProvider(l.spans), otelhttp.WithMeterProvider(l.meters), otelhttp.WithPropagators(propagation.TraceContext{}),
	}
}

// caller puts a span into the context that says whether the trace is sampled.
func caller(ctx context.Context, sampled bool) context.Context {
	c := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}
	if sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
}

// tracers is an SDK that drops each span at its end: what an exporter takes is its own,
// and on other goroutines.
func tracers() trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithResource(resource.Empty()), sdktrace.WithSpanProcessor(dropper{}))
}

type dropper struct{}

func (dropper) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropper) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropper) Shutdown(context.Context) error                  { return nil }
func (dropper) ForceFlush(context.Context) error                { return nil }

// meters is an SDK that aggregates and is never collected from.
func meters() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithResource(resource.Empty()), sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

func telemetryRows() []row {
	return []row{telemetryServer(), telemetryClient(), telemetryGateway()}
}

// over is the goal of a level that is to cost no more than so many times another.
func telemetryServer() row {
	r := row{name: "telemetry on the server, around an empty handler", plus: true}
	run := func(name string, sampled bool, wrap func() wrapper) rival {
		return rival{name: name, run: func(m *meter, ops int) {
			alone(m, ops, func(ctx context.Context, ops int) {
				h := wrap()(empty)
				req := request(caller(ctx, sampled), "/reports/17")
				w := writer{http.Header{}}
				served = 0
				for range ops {
					h.ServeHTTP(w, req)
				}
				must(served == ops)
			})
		}}
	}
	r.raw = run("the handler alone", false, func() wrapper { return func(h http.Handler) http.Handler { return h } })
	r.rivals = append(r.rivals, run("watertight, "+noHooks, false, func() wrapper { return middleware.New(guard("per: policy, " + withBulkhead)) }))
	for _, l := range levels() {
		r.rivals = append(r.rivals, run("watertight, "+l.name, l.sampled, func() wrapper {
			return middleware.New(guard("per: policy, "+withBulkhead, l.hooks()))
		}))
	}
	for _, l := range levels() {
		r.rivals = append(r.rivals, run("otelhttp, "+l.name, l.sampled, func() wrapper {
			return otelhttp.NewMiddleware("", l.otelhttp()...)
		}))
	}
	return r
}

func telemetryClient() row {
	r := row{name: "telemetry in a client, over a stub transport, an open body", plus: true}
	run := func(name string, sampled bool, wrap func(http.RoundTripper) http.RoundTripper) rival {
		return rival{name: name, run: func(m *meter, ops int) {
			ctx, cancel := cancellable()
			defer cancel()
			exchange(m, ops, wrap(stub{ended{}}.transport()), request(caller(ctx, sampled), "/reports/17"))
		}}
	}
	r.raw = run("the stub alone", false, func(base http.RoundTripper) http.RoundTripper { return base })
	r.rivals = append(r.rivals, run("watertight, "+noHooks, false, func(base http.RoundTripper) http.RoundTripper {
		return transport.New(base, guard(withBulkhead+", "+withBreaker))
	}))
	for _, l := range levels() {
		r.rivals = append(r.rivals, run("watertight, "+l.name, l.sampled, func(base http.RoundTripper) http.RoundTripper {
			return transport.New(base, guard(withBulkhead+", "+withBreaker, l.hooks()))
		}))
	}
	for _, l := range levels() {
		r.rivals = append(r.rivals, run("otelhttp, "+l.name, l.sampled, func(base http.RoundTripper) http.RoundTripper {
			return otelhttp.NewTransport(base, l.otelhttp()...)
		}))
	}
	return r
}

func telemetryGateway() row { return row{name: "x", raw: telemetryServer().raw} }
