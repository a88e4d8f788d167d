package tracestore_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) trace.SpanEventOption {
	return trace.WithTimestamp(began.Add(time.Duration(ms) * time.Millisecond))
}

func service(s *tracestore.Store, name string) trace.Tracer {
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(s),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", name))),
	).Tracer("test")
}

// withoutID takes out what differs from run to run.
func withoutID(s string) string {
	return regexp.MustCompile(`[0-9a-f]{32}`).ReplaceAllString(s, "ID")
}

func TestTree(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	client, server := service(s, "client"), service(s, "server")
	ctx, root := client.Start(t.Context(), "call", at(0))
	ctx, request := server.Start(ctx, "GET /delay/{ms}", at(1),
		trace.WithAttributes(attribute.String("url.path", "/delay/80"), attribute.String("user_agent.original", "x")))
	_, wait := server.Start(ctx, "bulkhead.wait", at(1), trace.WithAttributes(attribute.Int("watertight.queue.position", 2), attribute.Float64("waited_ms", 59.1251)))
	wait.End(at(60))
	grantCtx, grant := server.Start(ctx, "bulkhead.grant", at(60))
	_, inner := server.Start(grantCtx, "HTTP GET", at(61))
	inner.AddEvent("retry", at(70), trace.WithAttributes(attribute.Bool("last", true)))
	inner.SetStatus(codes.Error, "dial: refused")
	inner.End(at(80))
	grant.End(at(80))
	request.End(at(81))
	root.End(at(83))

	got, ok := s.Trace(root.SpanContext().TraceID())
	require.True(t, ok)
	assert.Equal(t, `trace ID  03:04:05.000  83.00ms  5 spans
call [client]                    +0.00ms    83.00ms
└─ GET /delay/{ms} [server]      +1.00ms    80.00ms  url.path=/delay/80
   ├─ bulkhead.wait              +1.00ms    59.00ms  queue.position=2  waited_ms=59.13
   └─ bulkhead.grant            +60.00ms    20.00ms
      └─ HTTP GET               +61.00ms    19.00ms  ERROR "dial: refused"
           · retry              +70.00ms  last=true
`, withoutID(got.String()))
}

func TestSpanWithoutItsParentStandsAtTheTop(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	remote := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	_, span := service(s, "server").Start(remote, "GET", at(0))
	span.End(at(1))
	got, ok := s.Trace(trace.TraceID{1})
	require.True(t, ok)
	assert.Regexp(t, `(?m)^GET \[server\]`, got.String())
}

// Paths and user agents come from callers, who may hope that somebody prints
// them on a terminal.
func TestNothingPrintedMovesTheTerminal(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	_, span := service(s, "server").Start(t.Context(), "a\nb", at(0), trace.WithAttributes(
		attribute.String("url.path", "/\x1b[2J\u202e"),
		attribute.String("two words", `say "no"`),
		attribute.StringSlice("list", []string{"\r"})))
	span.SetStatus(codes.Error, "\x07")
	span.End(at(1))
	got, _ := s.Trace(span.SpanContext().TraceID())
	for _, r := range got.String() {
		assert.True(t, r == '\n' || r >= ' ' && r != 0x7f && r != '\u202e', "%q", r)
	}
	assert.Contains(t, got.String(), `"a\nb"`)
	assert.Contains(t, got.String(), `url.path="/\x1b[2J\u202e"`)
	assert.Contains(t, got.String(), `two words="say \"no\""`)
}

func TestNoSpans(t *testing.T) {
	var none tracestore.Trace
	assert.Zero(t, none.Start())
	assert.Zero(t, none.Duration())
	assert.Contains(t, none.String(), "0 spans")
}

func TestAttribute(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	_, span := service(s, "server").Start(t.Context(), "x", trace.WithAttributes(attribute.Int("n", 3)))
	span.End()
	got, ok := s.Latest("x", nil)
	require.True(t, ok)
	v, ok := got.Spans[0].Attribute("n")
	require.True(t, ok)
	assert.Equal(t, int64(3), v.AsInt64())
	_, ok = got.Spans[0].Attribute("m")
	assert.False(t, ok)
}

func ExampleNew() {
	store := tracestore.New(tracestore.Config{Notable: []string{"bulkhead.reject"}})
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(store)).Tracer("example")

	ctx, request := tracer.Start(context.Background(), "GET /reports")
	_, reject := tracer.Start(ctx, "bulkhead.reject")
	reject.End()
	request.End()

	trace, ok := store.Latest("bulkhead.reject", nil)
	fmt.Println(ok, len(trace.Spans), trace.Spans[0].Name)
	// Output: true 2 GET /reports
}
