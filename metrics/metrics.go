package metrics

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
)

// ScopeName is the name of the instrumentation scope of all spans, by which a
// backend can be told to drop or to keep them.
const ScopeName = "github.com/watertight-go/watertight/metrics"

// Version is the version of the instrumentation scope.
const Version = "0.0.0"

// New returns hooks that report to OpenTelemetry and to slog what a Guard
// decides; give them to [watertight.WithHooks]. It never fails. The hooks may
// serve any number of Guards and are safe for concurrent use; there is nothing
// to close. Several sets from New, for several providers, work side by side:
// each records all spans, and where they share a provider the bulkhead.grant
// of the later set is a child of that of the earlier one.
func New(opts ...Option) watertight.Hooks {
	t := &telemetry{}
	for _, opt := range opts {
		opt.apply(t)
	}
	h := watertight.Hooks{
		Wait:       t.wait,
		Release:    t.release,
		Transition: t.transition,
	}
	if !t.noMetrics {
		h.Attach = t.attach
	}
	if !t.noSpans {
		h.Arrive, h.Grant, h.Reject, h.Observe = t.arrive, t.grant, t.reject, t.observe
		h.Fault, h.FaultKeeps = t.fault, t.faultKeeps
	}
	if !t.noLogs {
		t.logs = newLogs(t.logger)
		h.Attach = t.attachLogs
		h.Reject, h.Observe = t.reject, t.observe
		h.LimitChange, h.Evict, h.Overflow, h.LogAttrs = t.limitChange, t.evict, t.overflow, traceAttrs
	}
	return h
}

// A telemetry is what the hooks of one New share. Only tracers and instruments change
// after New.
type telemetry struct {
	propagators propagation.TextMapPropagator // nil: the global one
	meters      metric.MeterProvider          // nil: the global one
	logger      *slog.Logger                  // nil: slog.Default()
	noSpans     bool
	noMetrics   bool
	noLogs      bool
	parentBased bool // no span is sampled whose local parent is not

	logs        *logs // nil: noLogs
	tracers     tracers
	once        sync.Once                   // of instruments
	instruments atomic.Pointer[instruments] // nil: none before the first Guard, or at all
}

// An Option configures [New].
type Option interface{ apply(*telemetry) }

type optionFunc func(*telemetry)

func (f optionFunc) apply(t *telemetry) { f(t) }

// WithTracerProvider sets where the spans go. The default is the
// global TracerProvider at the time of the span; the last one given wins, and nil
// changes nothing.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(t *telemetry) {
		if p != nil {
			t.tracers.provider = p
		}
	})
}

// WithMeterProvider sets where the metrics go. The default is the
// global MeterProvider, which may be set later; the last one given wins, and nil
// changes nothing.
func WithMeterProvider(p metric.MeterProvider) Option {
	return optionFunc(func(t *telemetry) {
		if p != nil {
			t.meters = p
		}
	})
}

// WithoutSpans leaves the spans out, and what they cost.
func WithoutSpans() Option { return optionFunc(func(t *telemetry) { t.noSpans = true }) }

// WithParentBasedSampler says that the TracerProvider samples no span whose parent, in
// this process, was sampled out. So does the SDK's own default, and every ParentBased
// sampler without a rule of its own for such parents. Then no span is started only to be
// dropped: in a trace that is not sampled, spans cost next to nothing. With a sampler to
// which this does not apply, the spans are lost that it would have sampled there.
//
// It is not the default, since nothing tells what a provider's sampler does but asking it,
// which is what costs. A parent that is recorded though it is not sampled, as the SDK's
// AlwaysRecord has it, is none that was sampled out.
func WithParentBasedSampler() Option {
	return optionFunc(func(t *telemetry) { t.parentBased = true })
}

// WithoutMetrics leaves the metrics out, and what they cost.
func WithoutMetrics() Option { return optionFunc(func(t *telemetry) { t.noMetrics = true }) }

// WithPropagators sets what finds the caller's span in the headers of a request
// that comes without a span in its context; server side only. The default
// is the global propagator at the time of the request; the last one given wins,
// and nil changes nothing.
func WithPropagators(p propagation.TextMapPropagator) Option {
	return optionFunc(func(t *telemetry) {
		if p != nil {
			t.propagators = p
		}
	})
}

// WithoutLogs leaves the records out, and what they cost. The Guard's own, about
// policies and what somebody should mend, are up to [watertight.WithLogger].
func WithoutLogs() Option { return optionFunc(func(t *telemetry) { t.noLogs = true }) }

// WithLogger sets where the records go. The default is
// slog.Default() at the time of the record; the last one given wins, and nil
// changes nothing.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(t *telemetry) {
		if l != nil {
			t.logger = l
		}
	})
}
