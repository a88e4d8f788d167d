package tracestore

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// A Trace is what a [Store] has of one trace. It is a copy: spans that end
// later do not show in it.
type Trace struct {
	ID      trace.TraceID
	Spans   []*Span // those that have ended, in order of their start
	Dropped int     // spans that ended when the trace was full
	Running int     // spans that had begun and not ended
}

// Start returns when the first span began; the zero time if there is none.
func (t Trace) Start() time.Time {
	if len(t.Spans) == 0 {
		return time.Time{}
	}
	return t.Spans[0].Start
}

// Duration returns the time from the start of the first span to the end of the
// last.
func (t Trace) Duration() time.Duration {
	var d time.Duration
	for _, s := range t.Spans {
		d = max(d, s.End.Sub(t.Start()))
	}
	return d
}

// sorted returns the spans in order of their start; those of the same instant
// in the order in which they ended.
func sorted(spans []*Span) []*Span {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b *Span) int { return a.Start.Compare(b.Start) })
	return spans
}
