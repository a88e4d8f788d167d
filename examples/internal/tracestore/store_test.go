package tracestore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

// tracerOf returns a tracer whose spans s keeps.
func tracerOf(s *tracestore.Store) trace.Tracer {
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s)).Tracer("test")
}

// record makes a trace of a root and one span for each name beneath it.
func record(t trace.Tracer, root string, names ...string) trace.TraceID {
	ctx, span := t.Start(context.Background(), root)
	for _, name := range names {
		_, child := t.Start(ctx, name)
		child.End()
	}
	span.End()
	return span.SpanContext().TraceID()
}

func roots(traces []tracestore.Trace) []string {
	var names []string
	for _, t := range traces {
		names = append(names, t.Spans[0].Name)
	}
	return names
}

func TestLatestFirst(t *testing.T) {
	s := tracestore.New(tracestore.Config{Traces: 3})
	tr := tracerOf(s)
	for _, name := range []string{"a", "b", "c", "d"} {
		record(tr, name)
	}
	assert.Equal(t, []string{"d", "c", "b"}, roots(s.Traces()))
}

func TestNotableTracesHaveRoomOfTheirOwn(t *testing.T) {
	s := tracestore.New(tracestore.Config{Traces: 2, Notable: []string{"wait", "trip"}})
	tr := tracerOf(s)
	record(tr, "tripped", "wait", "trip")
	record(tr, "waited 1", "wait")
	for i := range 100 {
		record(tr, fmt.Sprint("ordinary ", i), "grant")
	}
	for i := range 2 {
		record(tr, fmt.Sprint("waited ", i+2), "wait")
	}
	assert.Equal(t, []string{"waited 3", "waited 2", "ordinary 99", "ordinary 98", "tripped"}, roots(s.Traces()))

	got, ok := s.Latest("trip", nil)
	require.True(t, ok)
	assert.Equal(t, "tripped", got.Spans[0].Name)
	got, ok = s.Latest("wait", nil)
	require.True(t, ok)
	assert.Equal(t, "waited 3", got.Spans[0].Name)
	got, ok = s.Latest("wait", func(span *tracestore.Span) bool { return span.TraceID != got.ID })
	require.True(t, ok)
	assert.Equal(t, "waited 2", got.Spans[0].Name)
	_, ok = s.Latest("reject", nil)
	assert.False(t, ok)
}

// A trace under way takes no other's place, and loses none of its spans when
// many others come and go meanwhile.
func TestIncompleteTracesWait(t *testing.T) {
	s := tracestore.New(tracestore.Config{Traces: 2, Notable: []string{"wait"}})
	tr := tracerOf(s)
	ctx, root := tr.Start(t.Context(), "long")
	_, wait := tr.Start(ctx, "wait")
	wait.End()
	for range 10 {
		record(tr, "short", "wait")
	}
	assert.Equal(t, []string{"short", "short"}, roots(s.Traces()))
	open, ok := s.Trace(root.SpanContext().TraceID())
	require.True(t, ok)
	assert.Len(t, open.Spans, 1)
	assert.Equal(t, 1, open.Running)

	root.End()
	got := s.Traces()
	assert.Equal(t, []string{"long", "short"}, roots(got))
	assert.Len(t, got[0].Spans, 2)
}

// A caller that sends a second request in the same trace adds to it.
func TestTraceThatGoesOn(t *testing.T) {
	s := tracestore.New(tracestore.Config{Notable: []string{"trip"}})
	tr := tracerOf(s)
	ctx, first := tr.Start(t.Context(), "first")
	first.End()
	record(tr, "other")
	_, second := tr.Start(ctx, "trip")
	second.End()
	got := s.Traces()
	assert.Equal(t, []string{"first", "other"}, roots(got))
	assert.Len(t, got[0].Spans, 2)
}

func TestBounds(t *testing.T) {
	t.Run("spans of a trace", func(t *testing.T) {
		s := tracestore.New(tracestore.Config{Spans: 3})
		id := record(tracerOf(s), "root", "a", "b", "c", "d")
		got, ok := s.Trace(id)
		require.True(t, ok)
		assert.Len(t, got.Spans, 3)
		assert.Equal(t, 2, got.Dropped) // d and root, which ended last
	})
	t.Run("open traces", func(t *testing.T) {
		s := tracestore.New(tracestore.Config{Open: 2})
		tr := tracerOf(s)
		var spans []trace.Span
		for _, name := range []string{"a", "b", "c"} {
			_, span := tr.Start(t.Context(), name)
			spans = append(spans, span)
		}
		for _, span := range spans {
			span.End()
		}
		assert.Equal(t, []string{"c", "b"}, roots(s.Traces()), "the oldest should have made room")
	})
	t.Run("bytes", func(t *testing.T) {
		const each = 10_000
		s := tracestore.New(tracestore.Config{Traces: 1000, Notable: []string{"big trip"}, Bytes: 10 * each})
		tr := tracerOf(s)
		big := func(name string) {
			_, span := tr.Start(t.Context(), name)
			span.SetAttributes(attribute.String("text", strings.Repeat("x", each)))
			span.End()
		}
		big("big trip")
		for range 100 {
			big("big")
		}
		got := s.Traces()
		assert.InDelta(t, 9, len(got), 1)
		assert.Equal(t, "big trip", got[len(got)-1].Spans[0].Name, "ordinary traces should go first")

		// One that is too big by itself must not stay either.
		_, span := tr.Start(t.Context(), "huge")
		span.SetAttributes(attribute.StringSlice("texts", []string{strings.Repeat("x", 20*each)}))
		span.End()
		assert.NotContains(t, roots(s.Traces()), "huge")
	})
}

// The estimate is worth something if the memory that a full store holds is of
// the order of the bytes that it allows.
func TestBytesAreHonest(t *testing.T) {
	const allowed = 8 << 20
	before := heap()
	s := tracestore.New(tracestore.Config{Traces: 1 << 20, Bytes: allowed})
	tr := tracerOf(s)
	for i := range 20_000 {
		ctx, root := tr.Start(context.Background(), "GET /route")
		root.SetAttributes(attribute.String("path", strings.Repeat("p", i%200)), attribute.Int("status", 200))
		_, child := tr.Start(ctx, "grant")
		child.SetAttributes(attribute.String("policy", "p"), attribute.Int("limit", i), attribute.Float64("waited", 1.5))
		child.End()
		root.End()
	}
	held := heap() - before
	assert.Less(t, held, int64(2*allowed))
	assert.Greater(t, len(s.Traces()), 1000, "the bound should be the bytes")
	assert.Less(t, len(s.Traces()), 20_000, "the bound should be the bytes")
	runtime.KeepAlive(s)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestConcurrentUse(t *testing.T) {
	s := tracestore.New(tracestore.Config{Traces: 5, Open: 20, Spans: 3, Bytes: 20_000, Notable: []string{"wait"}})
	tr := tracerOf(s)
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, trace := range s.Traces() {
					assert.NotEmpty(t, trace.String())
				}
			}
		})
	}
	for range 8 {
		writers.Go(func() {
			for i := range 500 {
				names := []string{"grant", "wait", "grant", "grant"}[:i%5]
				record(tr, "root", names...)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	got := s.Traces()
	assert.NotEmpty(t, got)
	assert.LessOrEqual(t, len(got), 10)
	for _, trace := range got {
		assert.Zero(t, trace.Running)
	}
}
