package tracestore

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A Span is one that has ended. Who holds one must not change its attributes.
type Span struct {
	TraceID trace.TraceID
	ID      trace.SpanID
	Parent  trace.SpanID // zero: the span began the trace

	Name       string
	Service    string // service.name of the resource it came from
	Kind       trace.SpanKind
	Start, End time.Time
	Attributes []attribute.KeyValue // in the order in which they were set
	Events     []sdktrace.Event
	Status     codes.Code
	StatusText string // only with codes.Error
}

// Attribute returns the value of the attribute with that key, and false if the
// span has none.
func (s *Span) Attribute(key attribute.Key) (attribute.Value, bool) {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return attribute.Value{}, false
}

// newSpan copies what the store keeps of s. The attributes of an ended span do
// not change, so they are shared.
func newSpan(s sdktrace.ReadOnlySpan) *Span {
	span := &Span{
		TraceID:    s.SpanContext().TraceID(),
		ID:         s.SpanContext().SpanID(),
		Parent:     s.Parent().SpanID(),
		Name:       s.Name(),
		Kind:       s.SpanKind(),
		Start:      s.StartTime(),
		End:        s.EndTime(),
		Attributes: s.Attributes(),
		Events:     s.Events(),
		Status:     s.Status().Code,
		StatusText: s.Status().Description,
	}
	if r := s.Resource(); r != nil {
		if v, ok := r.Set().Value("service.name"); ok {
			span.Service = v.AsString()
		}
	}
	return span
}

// size estimates the memory that the span holds, in bytes: the strings, and a
// fixed price for each struct around them.
func (s *Span) size() int {
	const perSpan, perEvent = 320, 96
	n := perSpan + len(s.Name) + len(s.StatusText) + attributesSize(s.Attributes)
	for _, e := range s.Events {
		n += perEvent + len(e.Name) + attributesSize(e.Attributes)
	}
	return n
}

func attributesSize(kvs []attribute.KeyValue) int {
	const perAttribute, perElement = 80, 16
	n := 0
	for _, kv := range kvs {
		n += perAttribute + len(kv.Key)
		switch kv.Value.Type() {
		case attribute.STRING:
			n += len(kv.Value.AsString())
		case attribute.STRINGSLICE:
			for _, s := range kv.Value.AsStringSlice() {
				n += perElement + len(s)
			}
		case attribute.BOOL, attribute.INT64, attribute.FLOAT64:
		default:
			n += len(kv.Value.String())
		}
	}
	return n
}
