package metrics

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight"
)

// What no snapshot holds, and so must be recorded as it happens.

func (t *telemetry) recordWait(ctx context.Context, e watertight.WaitEvent) {
	if in := t.instruments.Load(); in != nil && in.waitTime.Enabled(ctx) {
		in.waitTime.Record(ctx, e.Waited.Seconds(), in.byPolicy.options(e.Compartment)...)
	}
}

func (t *telemetry) recordRelease(ctx context.Context, e watertight.ReleaseEvent) {
	if in := t.instruments.Load(); in != nil && in.useTime.Enabled(ctx) {
		in.useTime.Record(ctx, e.Held.Seconds(), in.byPolicy.options(e.Compartment)...)
	}
}

func (t *telemetry) recordTransition(ctx context.Context, e watertight.TransitionEvent) {
	if in := t.instruments.Load(); in != nil {
		in.transitions.Add(ctx, 1, metric.WithAttributes(
			policyKey.String(e.Policy), sideKey.String(e.Side.String()),
			breakerToKey.String(e.To.String()), breakerCauseKey.String(e.Cause.String())))
	}
}
