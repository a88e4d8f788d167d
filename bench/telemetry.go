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
	notSampled    = "metrics, not sampled"
	parentBased   = "metrics, not sampled, parent-based"
	recorded      = "metrics, sampled"
	spansOnly     = "sampled, no metrics"
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
	r.add(startedAlone("the SDK's span alone, not sampled", false))
	r.add(startedAlone("the SDK's span alone, sampled, no attributes", true))
	for _, l := range theirLevels() {
		r.add(visit(otelhttpAt(l.name), l, func(t telemetry) wrapper { return otelhttp.NewMiddleware("", t.otelhttp...) }))
	}
	return r
}

// startedAlone is what a span costs before anybody has said anything in it.
func startedAlone(name string, sampled bool) rival {
	return rival{name, func(m *meter, ops int) {
		tracer := tracers().Tracer("bench")
		alone(m, ops, func(ctx context.Context, ops int) {
			ctx = called(ctx, sampled)
			for range ops {
				_, span := tracer.Start(ctx, "bulkhead.grant")
				must(span.IsRecording() == sampled)
				span.End()
			}
		})
	}}
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

// A stack is what a gateway has around its handler and beneath it.
type stack struct {
	level                    level
	otelhttp, guarded, hooks bool
}

// around returns what serves a request by a call through base. Outside and beneath is
// otelhttp, as the documentation has it.
func (s stack) around(base http.RoundTripper) http.Handler {
	t := s.level.begin()
	var opts []watertight.Option
	if s.hooks {
		opts = append(opts, t.hooks)
	}
	g := guard(withBulkhead+", "+withBreaker, opts...)
	if s.otelhttp {
		base = otelhttp.NewTransport(base, t.otelhttp...)
	}
	if s.guarded {
		base = transport.New(base, g)
	}
	h := forwarding(base)
	if s.guarded {
		h = middleware.New(g)(h)
	}
	if s.otelhttp {
		h = otelhttp.NewMiddleware("", t.otelhttp...)(h)
	}
	return h
}

func telemetryInGateways() row {
	pass := func(name string, s stack) rival {
		return rival{name, func(m *meter, ops int) {
			alone(m, ops, func(ctx context.Context, ops int) {
				r := request(ctx, "/reports/17")
				propagation.TraceContext{}.Inject(called(ctx, s.level.sampled), propagation.HeaderCarrier(r.Header))
				serveAgain(ops, s.around(stub{ended{}}.transport()), r)
			})
		}}
	}
	none := levels()[0]
	r := row{name: "telemetry in a gateway, both sides", cpu: true, plus: true}
	r.raw = pass("the handler and the stub alone", stack{level: none})
	r.add(pass(ourHooks, stack{level: none, guarded: true}))
	for _, l := range levels() {
		switch l.name {
		case metricsOnly, notSampled, recorded:
			r.add(pass(otelhttpAt(l.name), stack{level: l, otelhttp: true}))
			fallthrough
		case parentBased:
			r.add(pass("otelhttp and watertight, "+l.name, stack{level: l, otelhttp: true, guarded: true, hooks: true}))
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
