package metrics

import (
	"context"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// transition tells of a breaker's change of state three times, and neither a tracer
// nor an instrument that panics keeps the others from it.
func (t *telemetry) transition(ctx context.Context, e watertight.TransitionEvent) {
	late := time.Since(e.At)
	if late < minLate {
		late = 0
	}
	defer t.logTransition(ctx, e, late)
	defer t.recordTransition(ctx, e)
	if !t.noSpans {
		t.traceTransition(ctx, e, late)
	}
}

// minLate is what counts as late: less is the time that it takes to tell.
const minLate = time.Millisecond

// transitionSpan is how a change of state is called, by the state that it leads to.
func transitionSpan(to breaker.State) string {
	switch to {
	case breaker.Open, breaker.ForcedOpen:
		return tripSpan
	case breaker.HalfOpen:
		return halfOpenSpan
	}
	return closeSpan
}

// traceTransition records a moment now, not when the change was due: nothing of
// that time is in this trace, and a span far before it would shrink the rest
// to nothing.
func (t *telemetry) traceTransition(ctx context.Context, e watertight.TransitionEvent, late time.Duration) {
	_, span := t.tracers.get().Start(ctx, transitionSpan(e.To))
	defer span.End()
	if !span.IsRecording() {
		return
	}
	attrs := append(attributesOf(e.Compartment, 11),
		breakerFromKey.String(e.From.String()),
		breakerToKey.String(e.To.String()),
		breakerCauseKey.String(e.Cause.String()),
		breakerCallsKey.Int(e.Calls),
	)
	if e.FailureRate >= 0 {
		attrs = append(attrs, failureRateKey.Float64(e.FailureRate))
	}
	if e.SlowCallRate >= 0 {
		attrs = append(attrs, slowCallRateKey.Float64(e.SlowCallRate))
	}
	if e.Cause == breaker.CauseOverdue {
		attrs = append(attrs, overdueKey.Int(e.Overdue), respondedKey.Int(e.Responded))
	}
	if e.OpenFor > 0 {
		attrs = append(attrs, breakerOpenKey.Float64(milliseconds(e.OpenFor)))
	}
	if late > 0 {
		attrs = append(attrs, breakerLateKey.Float64(milliseconds(late)))
	}
	if e.Mode == policy.Observe {
		attrs = append(attrs, modeKey.String(e.Mode.String()))
	}
	span.SetAttributes(attrs...)
	linkFaults(ctx, span, e.Faults)
}
