package metrics

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

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
	defer t.log(ctx, e, late)
	defer t.recordTransition(ctx, e)
	if !t.noSpans {
		t.traceTransition(ctx, e, late)
	}
}

// minLate is what counts as late: less is the time that it takes to tell.
const minLate = time.Millisecond

// A turn is how a change of state is called, by the state that it leads to.
type turn struct {
	span    string
	message string
	level   slog.Level
}

func turnTo(s breaker.State) turn {
	switch s {
	case breaker.Open, breaker.ForcedOpen:
		return turn{tripSpan, "watertight: breaker tripped", slog.LevelWarn}
	case breaker.HalfOpen:
		return turn{halfOpenSpan, "watertight: breaker half-open", slog.LevelInfo}
	}
	return turn{closeSpan, "watertight: breaker closed", slog.LevelInfo}
}

// traceTransition records a moment now, not when the change was due: nothing of
// that time is in this trace, and a span far before it would shrink the rest
// to nothing.
func (t *telemetry) traceTransition(ctx context.Context, e watertight.TransitionEvent, late time.Duration) {
	_, span := t.tracers.get().Start(ctx, turnTo(e.To).span)
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

// maxLogAttributes is how many attributes a record has at most.
const maxLogAttributes = 16

func (t *telemetry) log(ctx context.Context, e watertight.TransitionEvent, late time.Duration) {
	l := t.logger
	if l == nil {
		l = slog.Default()
	}
	turn := turnTo(e.To)
	attrs := make([]slog.Attr, 0, maxLogAttributes)
	attrs = append(attrs, slog.String(logPolicy, e.Policy), slog.String(logSide, e.Side.String()))
	if e.Key != "" && loggable(e.Per) {
		attrs = append(attrs, slog.String(logKey, keyText(e.Key)))
	}
	if e.Mode == policy.Observe {
		attrs = append(attrs, slog.String(logMode, e.Mode.String()))
	}
	attrs = append(attrs,
		slog.String(logFrom, e.From.String()),
		slog.String(logTo, e.To.String()),
		slog.String(logCause, e.Cause.String()),
	)
	if e.FailureRate >= 0 {
		attrs = append(attrs, slog.Float64(logFailureRate, e.FailureRate))
	}
	if e.SlowCallRate >= 0 {
		attrs = append(attrs, slog.Float64(logSlowCallRate, e.SlowCallRate))
	}
	attrs = append(attrs, slog.Int(logCalls, e.Calls))
	if e.Cause == breaker.CauseOverdue {
		attrs = append(attrs, slog.Int(logOverdue, e.Overdue), slog.Int(logResponded, e.Responded))
	}
	if e.OpenFor > 0 {
		attrs = append(attrs, slog.Duration(logOpenFor, e.OpenFor))
	}
	if late > 0 {
		attrs = append(attrs, slog.Duration(logLate, late))
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(attrs,
			slog.String(logTraceID, sc.TraceID().String()),
			slog.String(logSpanID, sc.SpanID().String()))
	}
	l.LogAttrs(ctx, turn.level, turn.message, attrs...)
}
