package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight"
)

// grantKey is under which the context holds the grant of the innermost call. It
// names the telemetry, since several may be at work.
type grantKey struct{ *telemetry }

// A grant is the context of a call with a span, in which release finds what to end. A
// nil one hides that of an outer call, as of the request for which a client call is
// made.
type grant struct {
	context.Context // with the span in it
	key             grantKey
	span            trace.Span
}

// Value makes the grant its own value, which spares it a context of its own.
func (g *grant) Value(key any) any {
	if key == g.key {
		return g
	}
	return g.Context.Value(key)
}

// A recordedGrant has room for what the span says, which lives as long and need not be
// allocated apart from it.
type recordedGrant struct {
	grant
	attributes [6]attribute.KeyValue
}

func (t *telemetry) grant(ctx context.Context, e watertight.GrantEvent) context.Context {
	if t.sampledOut(ctx) {
		return t.withoutGrant(ctx)
	}
	tracer := t.tracers.get()
	if _, none := tracer.(noop.Tracer); none {
		return t.withoutGrant(ctx)
	}
	under, span := tracer.Start(ctx, grantSpan)
	if span.IsRecording() {
		g := &recordedGrant{grant: grant{under, grantKey{t}, span}}
		span.SetAttributes(append(appendCompartment(g.attributes[:0], e.Compartment),
			limitKey.Int(e.Limit),
			inFlightKey.Int(e.InFlight),
			waitedKey.Float64(milliseconds(e.Waited)),
		)...)
		return &g.grant
	}
	if immaterial(span.SpanContext(), trace.SpanContextFromContext(ctx)) {
		return t.withoutGrant(ctx)
	}
	return &grant{under, grantKey{t}, span}
}

// withoutGrant returns the context of a call whose span is left out: nil, the one that
// it has, unless an outer call's grant is in that.
func (t *telemetry) withoutGrant(ctx context.Context) context.Context {
	key := grantKey{t}
	if outer, _ := ctx.Value(key).(*grant); outer == nil {
		return nil
	}
	return context.WithValue(ctx, key, (*grant)(nil))
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
	if g == nil {
		return
	}
	if e.Leaked {
		g.span.SetAttributes(leakedKey.Bool(true))
	}
	g.span.End()
}
