package metrics

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// arrive puts the caller's span, as the headers name it, into the context of a
// request that comes without a span. Baggage comes along with it, and is left
// where it is without.
func (t *telemetry) arrive(ctx context.Context, req *policy.Request) context.Context {
	if req.Side != policy.Server || trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	p := t.propagators
	if p == nil {
		p = otel.GetTextMapPropagator()
	}
	remote := p.Extract(ctx, propagation.HeaderCarrier(req.Header))
	if !trace.SpanContextFromContext(remote).IsValid() {
		return nil
	}
	return remote
}

// wait records a wait after it has ended: most calls do not wait, and a span
// begun before it is known whether this one does would be for nothing.
func (t *telemetry) wait(ctx context.Context, e watertight.WaitEvent) {
	defer t.recordWait(ctx, e) // at last, or an instrument that panics would take the span with it
	if t.noSpans || t.sampledOut(ctx) {
		return
	}
	_, span := t.tracers.get().Start(ctx, waitSpan, trace.WithTimestamp(e.Arrived))
	defer span.End(trace.WithTimestamp(e.Arrived.Add(e.Waited)))
	if span.IsRecording() {
		span.SetAttributes(append(attributesOf(e.Compartment, 2),
			positionKey.Int(e.Position),
			resultKey.String(e.Result),
		)...)
	}
}

func (t *telemetry) reject(ctx context.Context, e watertight.RejectEvent) {
	t.refusal(ctx, e, policy.Enforce)
}

func (t *telemetry) observe(ctx context.Context, e watertight.RejectEvent) {
	t.refusal(ctx, e, policy.Observe)
}

// refusal records one that happened, or that would have.
func (t *telemetry) refusal(ctx context.Context, e watertight.RejectEvent, mode policy.Mode) {
	defer t.logRefusal(ctx, e, mode) // also if the tracer panics
	if !t.noSpans {
		t.traceRefusal(ctx, e, mode)
	}
}

func (t *telemetry) traceRefusal(ctx context.Context, e watertight.RejectEvent, mode policy.Mode) {
	if t.sampledOut(ctx) {
		return
	}
	name := bulkheadRejectSpan
	if e.Reason == policy.ReasonOpen {
		name = breakerRejectSpan
	}
	_, span := t.tracers.get().Start(ctx, name)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	reason := e.Reason.String()
	kind := errorTypeKey.String(reason)
	if mode == policy.Observe {
		kind = modeKey.String(mode.String())
	}
	attrs := append(attributesOf(e.Compartment, 6), reasonKey.String(reason), kind)
	if e.Reason == policy.ReasonOpen {
		attrs = append(attrs, breakerStateKey.String(e.Breaker.String()))
	} else if e.Limit > 0 { // while draining, also what has no bulkhead refuses
		attrs = append(attrs, limitKey.Int(e.Limit), inFlightKey.Int(e.InFlight), queuedKey.Int(e.Queued))
	}
	if e.RetryAfter > 0 {
		attrs = append(attrs, retryAfterKey.Float64(milliseconds(e.RetryAfter)))
	}
	span.SetAttributes(attrs...)
	if mode == policy.Enforce {
		// The error's own text names the key, and a description should group well.
		span.SetStatus(codes.Error, reason)
	}
}
