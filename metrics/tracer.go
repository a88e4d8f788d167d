package metrics

import (
	"context"
	"reflect"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracers hands out the tracer of the provider in use. The zero value uses the
// global provider.
type tracers struct {
	provider trace.TracerProvider // nil: the global one
	latest   atomic.Pointer[made]
}

// scope is made once: handed to an interface, it would be allocated each time.
var scope = []trace.TracerOption{trace.WithInstrumentationVersion(Version)}

type made struct {
	by     trace.TracerProvider
	tracer trace.Tracer
}

// get asks the provider only if it is another than the last time, since the
// SDK's takes a lock and a map to answer. It does so in a hook rather than in
// New: there the Guard contains a provider that panics.
func (t *tracers) get() trace.Tracer {
	p := t.provider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	if _, none := p.(noop.TracerProvider); none {
		return noop.Tracer{}
	}
	// The comparison cannot panic: by is a pointer.
	if m := t.latest.Load(); m != nil && m.by == p {
		return m.tracer
	}
	tracer := p.Tracer(ScopeName, scope...)
	if reflect.TypeOf(p).Kind() == reflect.Pointer {
		t.latest.Store(&made{by: p, tracer: tracer})
	}
	return tracer
}

// sampledOut reports whether it is known without asking the sampler that no span under
// that of ctx would be recorded.
func (t *telemetry) sampledOut(ctx context.Context) bool {
	if !t.parentBased {
		return false
	}
	parent := trace.SpanFromContext(ctx)
	if parent.IsRecording() {
		return false
	}
	sc := parent.SpanContext()
	return sc.IsValid() && !sc.IsSampled() && !sc.IsRemote()
}
