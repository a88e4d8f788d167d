package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// A rig is an SDK that remembers its spans, and a Guard that reports to it.
type rig struct {
	t        testing.TB
	recorder *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
	guard    *watertight.Guard
}

func newRig(t testing.TB, policies string, opts ...sdktrace.TracerProviderOption) *rig {
	t.Helper()
	r := &rig{t: t, recorder: tracetest.NewSpanRecorder()}
	r.provider = newProvider(r.recorder, opts...)
	r.guard = newGuard(t, policies, metrics.New(
		metrics.WithTracerProvider(r.provider),
		metrics.WithLogger(slog.New(slog.DiscardHandler))))
	return r
}

func newProvider(recorder *tracetest.SpanRecorder, opts ...sdktrace.TracerProviderOption) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(append([]sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.Empty()),
		sdktrace.WithSpanProcessor(recorder),
	}, opts...)...)
}

func newGuard(t testing.TB, policies string, hooks ...watertight.Hooks) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(policies))
	require.NoError(t, err)
	opts := []watertight.Option{watertight.WithLogger(slog.New(slog.DiscardHandler))}
	for _, h := range hooks {
		opts = append(opts, watertight.WithHooks(h))
	}
	return watertight.New(set, opts...)
}

// begin starts a span as the program itself would.
func (r *rig) begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return r.provider.Tracer("program").Start(ctx, name)
}

// server returns the handler behind the Guard, at the route "GET /items/{id}".
func (r *rig) server(h http.HandlerFunc) http.Handler {
	return serverOf(r.guard, h)
}

func serverOf(g *watertight.Guard, h http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", h)
	return middleware.New(g)(mux)
}

// ended returns the spans of that name that have ended.
func (r *rig) ended(name string) []sdktrace.ReadOnlySpan {
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.recorder.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

// only returns the one span of that name that has ended.
func (r *rig) only(name string) sdktrace.ReadOnlySpan {
	r.t.Helper()
	found := r.ended(name)
	require.Len(r.t, found, 1, name)
	return found[0]
}

// names returns the names of all spans that have ended, in the order of their
// ends.
func (r *rig) names() []string {
	var names []string
	for _, s := range r.recorder.Ended() {
		names = append(names, s.Name())
	}
	return names
}

// attrs are the attributes of a span, as plain Go values.
type attrs map[string]any

func attributesOf(s sdktrace.ReadOnlySpan) attrs {
	m := attrs{}
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func requireParent(t testing.TB, parent trace.Span, s sdktrace.ReadOnlySpan) {
	t.Helper()
	requireParentContext(t, parent.SpanContext(), s)
}

func requireParentContext(t testing.TB, parent trace.SpanContext, s sdktrace.ReadOnlySpan) {
	t.Helper()
	require.Equal(t, parent.SpanID(), s.Parent().SpanID(), "parent of %s", s.Name())
	require.Equal(t, parent.TraceID(), s.SpanContext().TraceID(), "trace of %s", s.Name())
}

func nop(http.ResponseWriter, *http.Request) {}

func get(ctx context.Context, target string) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
}

func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// A baseFunc is what a transport sends through.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a base that answers at once, with a body to be read.
func answer(status int, body string) baseFunc {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode:    status,
			Header:        http.Header{},
			Body:          io.NopCloser(strings.NewReader(body)),
			ContentLength: -1,
			Request:       r,
		}, nil
	}
}

func lasted(s sdktrace.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }
