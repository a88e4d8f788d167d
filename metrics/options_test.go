package metrics_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/metrics"
)

// A fixedParent finds the same caller in all headers.
type fixedParent struct {
	propagation.TextMapPropagator
	parent trace.SpanContext
}

func (p fixedParent) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, p.parent)
}

func TestLastOptionWinsAndNilChangesNothing(t *testing.T) {
	r := newRig(t, oneServerPermit)
	parent := remoteContext(t, sampledRemote)
	var log bytes.Buffer
	hooks := metrics.New(
		metrics.WithTracerProvider(noop.NewTracerProvider()),
		metrics.WithTracerProvider(r.provider),
		metrics.WithTracerProvider(nil),
		metrics.WithPropagators(faultyPropagator{}),
		metrics.WithPropagators(fixedParent{parent: parent}),
		metrics.WithPropagators(nil),
		metrics.WithLogger(slog.New(slog.DiscardHandler)),
		metrics.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		metrics.WithLogger(nil),
	)
	g := newGuard(t, oneServerPermit, hooks)
	serve(serverOf(g, nop), get(t.Context(), "/items/7"))
	hooks.Transition(t.Context(), watertight.TransitionEvent{
		Transition: breaker.Transition{From: breaker.Closed, To: breaker.Open, At: time.Now()},
	})
	requireParentContext(t, parent, r.only("bulkhead.grant"))
	assert.Contains(t, log.String(), "breaker tripped")
}
