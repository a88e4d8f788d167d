package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A reporting exporter logs when its collector goes away and when it is back,
// and not each batch between: the SDK would report every one of them, to a
// handler that all of the process shares.
type reporting struct {
	sdktrace.SpanExporter
	endpoint string
	log      *slog.Logger
	away     atomic.Bool
}

// ExportSpans implements the SDK's SpanExporter.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && r.away.CompareAndSwap(false, true):
		r.log.Warn("spans are being dropped: the collector cannot be reached", "collector", r.endpoint, "error", err)
	case err == nil && r.away.CompareAndSwap(true, false):
		r.log.Info("the collector can be reached again", "collector", r.endpoint)
	}
	return nil
}
