// Package tracestore keeps recent traces in memory and draws them as text, for
// programs that have no tracing backend at hand.
//
// A [Store] is a span processor of the OpenTelemetry SDK. What it keeps is
// bounded in traces, in spans for each trace and in bytes, whatever the load.
// Under load the traces worth a look are the rare ones, so traces with a
// notable span, such as a refusal, do not compete with the ordinary ones for
// room.
package tracestore

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config bounds a [Store]. The zero value of a field stands for its default.
type Config struct {
	// Traces is how many complete traces are kept of those without a notable
	// span, and again of each kind of notable ones. 0: 50.
	Traces int
	// Notable lists span names, the most notable last. A trace counts for the
	// most notable of its spans.
	Notable []string
	// Open is how many incomplete traces are kept. 0: 4096.
	Open int
	// Spans is how many spans are kept of each trace; those that end later
	// are counted, and dropped. 0: 100.
	Spans int
	// Bytes bounds the memory of all spans together, as an estimate.
	// 0: 16 MiB.
	Bytes int
}

// A Store keeps traces. Make one with [New]. It is safe for concurrent use and
// needs no clean-up.
//
// A trace is complete when none of its spans is open. Only then does it take
// the place of an older one: deciding at the first span that ends would throw
// away, under load, what the last ones have to tell.
type Store struct {
	cfg     Config
	notable map[string]int // name to class, from 1; class 0 is for all others

	mu sync.Mutex // guards the fields below
	// Invariants, whenever mu is not held:
	//   - each entry is in byID and in exactly one list: open, or kept[entry.class]
	//   - len(open) <= cfg.Open, len(kept[i]) <= cfg.Traces
	//   - bytes is the sum over all entries, and at most cfg.Bytes
	byID  map[trace.TraceID]*entry
	open  *list.List   // of *entry, the first begun at the front
	kept  []*list.List // by class, of *entry, the first completed at the front
	bytes int
	seq   uint64
}

var _ sdktrace.SpanProcessor = (*Store)(nil)

type entry struct {
	id      trace.TraceID
	spans   []*Span
	dropped int
	bytes   int
	running int // spans begun and not ended
	class   int
	seq     uint64 // order of completion; 0: never complete yet
	in      *list.List
	elem    *list.Element
}

// New returns an empty Store.
func New(cfg Config) *Store {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&cfg.Traces, 50)
	set(&cfg.Open, 4096)
	set(&cfg.Spans, 100)
	set(&cfg.Bytes, 16<<20)
	s := &Store{
		cfg:     cfg,
		notable: make(map[string]int, len(cfg.Notable)),
		byID:    make(map[trace.TraceID]*entry),
		open:    list.New(),
		kept:    []*list.List{list.New()},
	}
	for i, name := range cfg.Notable {
		s.notable[name] = i + 1
		s.kept = append(s.kept, list.New())
	}
	return s
}

// OnStart implements the SDK's SpanProcessor.
func (s *Store) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) {
	id := span.SpanContext().TraceID()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		e = &entry{id: id}
		s.byID[id] = e
		s.pushLocked(s.open, e)
		if s.open.Len() > s.cfg.Open {
			s.dropLocked(s.open.Front().Value.(*entry))
		}
	}
	e.running++
}

// OnEnd implements the SDK's SpanProcessor.
func (s *Store) OnEnd(ended sdktrace.ReadOnlySpan) {
	span := newSpan(ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[span.TraceID]
	if !ok {
		return // dropped for want of room; its other spans are gone as well
	}
	if len(e.spans) < s.cfg.Spans {
		size := span.size()
		e.spans = append(e.spans, span)
		e.bytes += size
		s.bytes += size
	} else {
		e.dropped++
	}
	e.class = max(e.class, s.notable[span.Name])
	// A span that began before the trace was dropped, and came back under the
	// same ID, was not counted.
	e.running = max(e.running-1, 0)
	if e.running == 0 {
		s.completeLocked(e)
	}
	s.fitLocked()
}

// completeLocked moves the trace to those of its class, as the latest. One that
// was complete before, as when a caller sends several requests in one trace,
// comes back.
func (s *Store) completeLocked(e *entry) {
	s.seq++
	e.seq = s.seq
	e.in.Remove(e.elem)
	class := s.kept[e.class]
	s.pushLocked(class, e)
	if class.Len() > s.cfg.Traces {
		s.dropLocked(class.Front().Value.(*entry))
	}
}

// fitLocked drops traces until the rest fits in the bytes allowed: the ordinary
// before the notable ones, within each class the oldest, and what is still
// incomplete last.
func (s *Store) fitLocked() {
	for _, l := range s.kept {
		s.drainLocked(l)
	}
	s.drainLocked(s.open)
}

func (s *Store) drainLocked(l *list.List) {
	for s.bytes > s.cfg.Bytes && l.Len() > 0 {
		s.dropLocked(l.Front().Value.(*entry))
	}
}

func (s *Store) pushLocked(l *list.List, e *entry) {
	e.in, e.elem = l, l.PushBack(e)
}

func (s *Store) dropLocked(e *entry) {
	e.in.Remove(e.elem)
	delete(s.byID, e.id)
	s.bytes -= e.bytes
}

// Shutdown implements the SDK's SpanProcessor; it keeps what there is.
func (s *Store) Shutdown(context.Context) error { return nil }

// ForceFlush implements the SDK's SpanProcessor; there is nothing to flush.
func (s *Store) ForceFlush(context.Context) error { return nil }

// Traces returns the complete traces, the latest first.
func (s *Store) Traces() []Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	var es []*entry
	for _, l := range s.kept {
		for elem := l.Front(); elem != nil; elem = elem.Next() {
			es = append(es, elem.Value.(*entry))
		}
	}
	slices.SortFunc(es, func(a, b *entry) int { return cmp.Compare(b.seq, a.seq) })
	traces := make([]Trace, len(es))
	for i, e := range es {
		traces[i] = e.trace()
	}
	return traces
}

// Latest returns the latest complete trace that has a span with that name for
// which ok returns true, or false if there is none. A nil ok is true for every
// span.
func (s *Store) Latest(name string, ok func(*Span) bool) (Trace, bool) {
	for _, t := range s.Traces() {
		for _, span := range t.Spans {
			if span.Name == name && (ok == nil || ok(span)) {
				return t, true
			}
		}
	}
	return Trace{}, false
}

// Trace returns the trace with that ID, complete or not; false if the store
// does not have it.
func (s *Store) Trace(id trace.TraceID) (Trace, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		return Trace{}, false
	}
	return e.trace(), true
}

func (e *entry) trace() Trace {
	return Trace{ID: e.id, Spans: sorted(e.spans), Dropped: e.dropped, Running: e.running}
}
