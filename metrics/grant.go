package metrics

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
)

// A grant is what grant leaves in the context for release. One without a span
// hides the grant of an outer call, as of the request for which a client call
// is made.
type grant struct {
	span trace.Span
	of   watertight.Compartment
}

// grantKey is under which the context holds the grant of the innermost call. It
// names the telemetry, since several may be at work.
type grantKey struct{ *telemetry }

func (t *telemetry) grant(ctx context.Context, e watertight.GrantEvent) context.Context {
	key := grantKey{t}
	under, span := t.tracers.get().Start(ctx, grantSpan)
	if !span.IsRecording() && immaterial(span.SpanContext(), trace.SpanContextFromContext(ctx)) {
		if ctx.Value(key) == nil {
			return nil
		}
		return context.WithValue(ctx, key, &grant{of: e.Compartment})
	}
	if span.IsRecording() {
		span.SetAttributes(append(attributesOf(e.Compartment, 3),
			limitKey.Int(e.Limit),
			inFlightKey.Int(e.InFlight),
			waitedKey.Float64(milliseconds(e.Waited)),
		)...)
	}
	return context.WithValue(under, key, &grant{span: span, of: e.Compartment})
}

// immaterial reports whether a span that is not recorded can be left out of the
// context: what comes beneath fares the same under its parent. Then the call
// keeps its context, and nobody has to copy the request for it.
//
// That is so if there is no tracer behind the span, which hands on the parent's
// identity, or if neither of the two is sampled. It is not so if the span was
// sampled out as a root: each span beneath would be a new root, and its chance
// to be sampled a new one. Nor under a remote parent, for which samplers may have
// another rule than for a local one.
func immaterial(span, parent trace.SpanContext) bool {
	if span.SpanID() == parent.SpanID() {
		return true
	}
	return parent.IsValid() && !parent.IsRemote() && !parent.IsSampled() && !span.IsSampled()
}

func (t *telemetry) release(ctx context.Context, e watertight.ReleaseEvent) {
	defer t.recordRelease(ctx, e) // at last, or an instrument that panics would take the span with it
	if t.noSpans {
		return
	}
	g, _ := ctx.Value(grantKey{t}).(*grant)
	// If the tracer panicked in grant, the context is that from before, and the
	// grant in it, if any, one of an outer call.
	if g == nil || g.span == nil || g.of != e.Compartment {
		return
	}
	if e.Leaked {
		g.span.SetAttributes(leakedKey.Bool(true))
	}
	g.span.End()
}
