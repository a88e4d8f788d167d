package metrics

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
)

// fault keeps the span of a call, if it can be found again: that of its permit, or
// the caller's if it has none. It is kept while the breaker's period lasts, so it must
// be no more than its identity.
func (t *telemetry) fault(ctx context.Context, _ watertight.FaultEvent) any {
	if sc := trace.SpanContextFromContext(ctx); linkable(sc) {
		return sc
	}
	return nil
}

// faultKeeps spares the few places there are for calls in flight for those to which a
// link can lead: where few traces are sampled, it would hardly ever find one of them.
func (t *telemetry) faultKeeps(ctx context.Context) bool {
	return linkable(trace.SpanContextFromContext(ctx))
}

func linkable(sc trace.SpanContext) bool { return sc.IsValid() && sc.IsSampled() }

// linkFaults links the span of a trip to the calls that the trip is owed to. Links are
// usually given when a span starts, for samplers to see; that would be to make them for
// spans that nobody records.
//
// There is none to the trip's own parent, as when the last of the calls has no span of
// its own: Jaeger takes a link to the parent for all that there is to say of the two, and
// shows the span without a parent. Calls may have their caller's span in common; the
// latest of them stands for all.
func linkFaults(ctx context.Context, span trace.Span, faults []watertight.Fault) {
	parent := trace.SpanContextFromContext(ctx)
	for i, f := range faults {
		sc, ok := f.Kept.(trace.SpanContext)
		if !ok || same(sc, parent) || slices.ContainsFunc(faults[i+1:], func(later watertight.Fault) bool {
			of, ok := later.Kept.(trace.SpanContext)
			return ok && same(sc, of)
		}) {
			continue
		}
		span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
			linkOutcomeKey.String(linkOutcome(f)),
			linkTookKey.Float64(milliseconds(f.Took)),
		}})
	}
}

// same reports whether both name one span.
func same(a, b trace.SpanContext) bool {
	return a.TraceID() == b.TraceID() && a.SpanID() == b.SpanID()
}

func linkOutcome(f watertight.Fault) string {
	switch {
	case f.Overdue:
		return "overdue"
	case f.Failed && f.Slow:
		return "failed_slow"
	case f.Failed:
		return "failed"
	}
	return "slow"
}
