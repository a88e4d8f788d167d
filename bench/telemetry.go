package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"

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
	sampled bool // the caller's trace is
	spans   func() trace.TracerProvider
	meters  func() metric.MeterProvider
	ours    []metrics.Option // besides the providers
	goals   []goal           // of ours
}

const (
	ourHooks = "watertight, no hooks"

	noopProviders = "noop providers"
	metricsOnly   = "metrics only"
	notSampled    = "metrics, spans not sampled"
	parentBased   = "metrics, spans not sampled, parent-based"
	recorded      = "metrics, spans sampled"
	spansOnly     = "spans sampled, no metrics"
)

func watertightAt(level string) string { return "watertight, " + level }
func otelhttpAt(level string) string   { return "otelhttp, " + level }

func levels() []level {
	return []level{
		{name: noopProviders, spans: noTracers, meters: noMeters},
		{name: metricsOnly, spans: noTracers, meters: meters, ours: []metrics.Option{metrics.WithoutSpans()},
			goals: []goal{extraOver(ourHooks, 400), allocsOver(ourHooks, 1)}},
		{name: notSampled, spans: tracers, meters: meters,
			goals: []goal{timesOf(1.2, watertightAt(metricsOnly))}},
		{name: parentBased, spans: tracers, meters: meters, ours: []metrics.Option{metrics.WithParentBasedSampler()},
			goals: []goal{timesOf(1.2, watertightAt(metricsOnly))}},
		{name: recorded, spans: tracers, meters: meters, sampled: true,
			goals: []goal{addsTimes(1.5, ourHooks, otelhttpAt(spansOnly))}},
		{name: spansOnly, spans: tracers, meters: noMeters, ours: []metrics.Option{metrics.WithoutMetrics()}, sampled: true,
			goals: []goal{addsTimes(1.5, ourHooks, otelhttpAt(spansOnly))}},
	}
}

func noTracers() trace.TracerProvider { return nooptrace.NewTracerProvider() }
func noMeters() metric.MeterProvider  { return noopmetric.NewMeterProvider() }

// tracers is an SDK with its default sampler that drops each span at its end: to export
// it is the exporter's business, and done on other goroutines.
func tracers() trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithResource(resource.Empty()), sdktrace.WithSpanProcessor(dropper{}))
}

type dropper struct{}

func (dropper) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropper) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropper) Shutdown(context.Context) error                  { return nil }
func (dropper) ForceFlush(context.Context) error                { return nil }

// meters is an SDK that aggregates, with nobody to collect.
func meters() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithResource(resource.Empty()), sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// A telemetry is what a program at some level gives to those who report.
type telemetry struct {
	hooks    watertight.Option
	otelhttp []otelhttp.Option
}

// begin makes the providers anew, so that no turn meets what another has left in them.
func (l level) begin() telemetry {
	spans, meters := l.spans(), l.meters()
	return telemetry{
		hooks: watertight.WithHooks(metrics.New(append(slices.Clone(l.ours),
			metrics.WithTracerProvider(spans), metrics.WithMeterProvider(meters),
			metrics.WithPropagators(propagation.TraceContext{}),
			metrics.WithLogger(slog.New(slog.DiscardHandler)))...)),
		otelhttp: []otelhttp.Option{
			otelhttp.WithTracerProvider(spans), otelhttp.WithMeterProvider(meters),
			otelhttp.WithPropagators(propagation.TraceContext{}),
		},
	}
}

// called is the context of a request in whose trace a span of this process is the
// latest, as beneath otelhttp.
func called(ctx context.Context, sampled bool) context.Context {
	return trace.ContextWithSpanContext(ctx, spanContext(sampled))
}

func spanContext(sampled bool) trace.SpanContext {
	c := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}
	return trace.NewSpanContext(c).WithTraceFlags(trace.TraceFlags(0).WithSampled(sampled))
}

func telemetryRows() []row {
	return []row{telemetryOnServers(), telemetryInClients(), telemetryInGateways()}
}

func telemetryOnServers() row {
	const keys = "per: policy, " + withBulkhead
	visit := func(name string, l level, make func(telemetry) wrapper) rival {
		return rival{name: name, run: func(m *meter, ops int) {
			alone(m, ops, func(ctx context.Context, ops int) {
				h := make(l.begin())(empty)
				serveAgain(ops, h, request(called(ctx, l.sampled), "/reports/17"))
			})
		}}
	}
	r := row{name: "telemetry on the server, around an empty handler", cpu: true, plus: true}
	none := levels()[0]
	r.raw = visit("the handler alone", none, func(telemetry) wrapper {
		return func(next http.Handler) http.Handler { return next }
	})
	r.add(visit(ourHooks, none, func(telemetry) wrapper { return middleware.New(guard(keys)) }), allocs(0))
	for _, l := range levels() {
		r.add(visit(watertightAt(l.name), l, func(t telemetry) wrapper { return middleware.New(guard(keys, t.hooks)) }), l.goals...)
	}
	for _, l := range theirLevels() {
		r.add(visit(otelhttpAt(l.name), l, func(t telemetry) wrapper { return otelhttp.NewMiddleware("", t.otelhttp...) }))
	}
	return r
}

func telemetryInClients() row {
	const keys = withBulkhead + ", " + withBreaker
	call := func(name string, l level, make func(http.RoundTripper, telemetry) http.RoundTripper) rival {
		return rival{name: name, run: func(m *meter, ops int) {
			ctx, cancel := cancellable()
			defer cancel()
			exchange(m, ops, make(stub{ended{}}.transport(), l.begin()), request(called(ctx, l.sampled), "/reports/17"))
		}}
	}
	r := row{name: "telemetry in a client, over a stub transport, an open body", cpu: true, plus: true}
	none := levels()[0]
	r.raw = call("the stub alone", none, func(base http.RoundTripper, _ telemetry) http.RoundTripper { return base })
	r.add(call(ourHooks, none, func(base http.RoundTripper, _ telemetry) http.RoundTripper {
		return transport.New(base, guard(keys))
	}))
	for _, l := range levels() {
		r.add(call(watertightAt(l.name), l, func(base http.RoundTripper, t telemetry) http.RoundTripper {
			return transport.New(base, guard(keys, t.hooks))
		}), l.goals...)
	}
	for _, l := range theirLevels() {
		r.add(call(otelhttpAt(l.name), l, func(base http.RoundTripper, t telemetry) http.RoundTripper {
			return otelhttp.NewTransport(base, t.otelhttp...)
		}))
	}
	return r
}

// theirLevels are those that otelhttp has, too.
func theirLevels() []level {
	return slices.DeleteFunc(levels(), func(l level) bool { return l.name == parentBased })
}

// telemetryInGateways has what a program has that does as the documentation says:
// otelhttp around the middleware, and beneath the transport.
func telemetryInGateways() row {
	const keys = withBulkhead + ", " + withBreaker
	pass := func(name string, l level, wrapServer func(telemetry, *watertight.Guard) wrapper,
		wrapClient func(telemetry, *watertight.Guard, http.RoundTripper) http.RoundTripper) rival {
		return rival{name: name, run: func(m *meter, ops int) {
			alone(m, ops, func(ctx context.Context, ops int) {
				t := l.begin()
				g := guard(keys, t.hooks)
				if l.name == "" {
					g = guard(keys)
				}
				rt := wrapClient(t, g, stub{ended{}}.transport())
				r := request(ctx, "/reports/17")
				propagation.TraceContext{}.Inject(called(ctx, l.sampled), propagation.HeaderCarrier(r.Header))
				serveAgain(ops, wrapServer(t, g)(forwarding(rt)), r)
			})
		}}
	}
	plain := func(telemetry, *watertight.Guard) wrapper { return func(h http.Handler) http.Handler { return h } }
	plainClient := func(_ telemetry, _ *watertight.Guard, base http.RoundTripper) http.RoundTripper { return base }
	guarded := func(_ telemetry, g *watertight.Guard) wrapper { return middleware.New(g) }
	guardedClient := func(_ telemetry, g *watertight.Guard, base http.RoundTripper) http.RoundTripper {
		return transport.New(base, g)
	}
	traced := func(t telemetry, _ *watertight.Guard) wrapper { return otelhttp.NewMiddleware("", t.otelhttp...) }
	tracedClient := func(t telemetry, _ *watertight.Guard, base http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(base, t.otelhttp...)
	}
	both := func(t telemetry, g *watertight.Guard) wrapper {
		return func(h http.Handler) http.Handler { return traced(t, g)(guarded(t, g)(h)) }
	}
	bothClient := func(t telemetry, g *watertight.Guard, base http.RoundTripper) http.RoundTripper {
		return guardedClient(t, g, tracedClient(t, g, base))
	}

	none := level{spans: noTracers, meters: noMeters}
	r := row{name: "telemetry in a gateway, both sides", cpu: true, plus: true}
	r.raw = pass("the handler and the stub alone", none, plain, plainClient)
	r.add(pass(ourHooks, none, guarded, guardedClient))
	for _, l := range levels() {
		switch l.name {
		case metricsOnly, notSampled, recorded:
			r.add(pass(otelhttpAt(l.name), l, traced, tracedClient))
			r.add(pass("otelhttp and watertight, "+l.name, l, both, bothClient))
		case parentBased:
			r.add(pass("otelhttp and watertight, "+l.name, l, both, bothClient))
		}
	}
	return r
}

// forwarding is a handler that does its work by a call, whose response it reads to the
// end.
func forwarding(rt http.RoundTripper) http.Handler {
	out := request(context.Background(), "/reports/17")
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served++
		var buf [1]byte
		resp, err := rt.RoundTrip(out.WithContext(r.Context()))
		must(err == nil)
		_, err = resp.Body.Read(buf[:])
		must(err == io.EOF)
		must(resp.Body.Close() == nil)
	})
}

func serveAgain(ops int, h http.Handler, r *http.Request) {
	w := writer{http.Header{}}
	served = 0
	for range ops {
		h.ServeHTTP(w, r)
	}
	must(served == ops)
}

func (r *row) add(one rival, goals ...goal) {
	r.rivals = append(r.rivals, one)
	if r.own == nil {
		r.own = make(map[string][]goal)
	}
	r.own[one.name] = goals
}
