package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
)

// fault keeps the span of a call, if it can be found again: that of its permit, or
// the caller's if it has none. It is kept while the breaker's period lasts, so it must
// be no more than its identity.
func (t *telemetry) fault(ctx context.Context, _ watertight.FaultEvent) any {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() && sc.IsSampled() {
		return sc
	}
	return nil
}

// linkFaults links the span of a trip to the calls that the trip is owed to. Links are
// usually given when a span starts, for samplers to see; that would be to make them for
// spans that nobody records.
func linkFaults(span trace.Span, faults []watertight.Fault) {
	for _, f := range faults {
		if sc, ok := f.Kept.(trace.SpanContext); ok {
			span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
				linkOutcomeKey.String(linkOutcome(f)),
				linkTookKey.Float64(milliseconds(f.Took)),
			}})
		}
	}
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
