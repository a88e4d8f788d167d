// Package stacking_test shows which spans there are where watertight and otelhttp stand
// around each other, in either order and on either side. It has no other code, and is
// what docs/tracing.md says, proved.
package stacking_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// patience is how long a test waits for what should come soon.
const patience = 20 * time.Second

// A rig remembers the spans of all the programs in a test, as a backend would.
type rig struct {
	*testing.T
	recorder *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

func newRig(t *testing.T) *rig {
	recorder := tracetest.NewSpanRecorder()
	return &rig{t, recorder, sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.Empty()),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithSpanProcessor(recorder))}
}

// guard returns one that reports to the rig.
func (r *rig) guard(policies string) *watertight.Guard {
	r.Helper()
	set, err := policy.Parse("test.yaml", []byte("version: 1\npolicies:\n"+policies))
	require.NoError(r, err)
	quiet := slog.New(slog.DiscardHandler)
	wt := watertight.New(set, watertight.WithLogger(quiet), watertight.WithHooks(metrics.New(
		metrics.WithTracerProvider(r.provider), metrics.WithPropagators(telemetry.Propagator()), metrics.WithLogger(quiet), metrics.WithoutMetrics())))
	r.Cleanup(wt.Close)
	return wt
}

func (r *rig) otelOptions() []otelhttp.Option {
	return []otelhttp.Option{
		otelhttp.WithTracerProvider(r.provider),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(telemetry.Propagator()),
	}
}

// traced is otelhttp's middleware.
func (r *rig) traced(next http.Handler) http.Handler {
	return otelhttp.NewMiddleware("", r.otelOptions()...)(next)
}

// tracedBy is otelhttp's transport.
func (r *rig) tracedBy(base http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(base, r.otelOptions()...)
}

func (r *rig) begin(ctx context.Context, name string) (context.Context, oteltrace.Span) {
	return r.provider.Tracer("program").Start(ctx, name)
}

// work is a handler with a span of its own.
func (r *rig) work(w http.ResponseWriter, req *http.Request) {
	_, span := r.begin(req.Context(), "work")
	defer span.End()
	_, _ = io.WriteString(w, "done")
}

// serve starts a server of both HTTP/1 and cleartext HTTP/2.
func (r *rig) serve(h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	r.Cleanup(s.Close)
	return s.URL
}

// wire returns a transport for a version of HTTP.
func (r *rig) wire(version int) *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	if version == 2 {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	r.Cleanup(t.CloseIdleConnections)
	return t
}

// get calls under a span of the program, reads the answer to its end, and returns the
// status, 0 if there is no answer.
func (r *rig) get(rt http.RoundTripper, url string) int {
	r.Helper()
	ctx, span := r.begin(r.Context(), "program")
	defer span.End()
	return r.getIn(ctx, rt, url)
}

func (r *rig) getIn(ctx context.Context, rt http.RoundTripper, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(r, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(r, err)
	return resp.StatusCode
}

// settled waits until all spans have ended: a handler may return after its answer has
// been read.
func (r *rig) settled() []sdktrace.ReadOnlySpan {
	r.Helper()
	require.Eventually(r, func() bool { return len(r.recorder.Ended()) == len(r.recorder.Started()) }, patience, time.Millisecond)
	return r.recorder.Ended()
}

// tree draws the spans of the only trace.
func (r *rig) tree() string {
	r.Helper()
	return story{r.T, r.settled()}.tree()
}

// storyOf returns the trace in which there is a span of that name.
func (r *rig) storyOf(name string) story {
	r.Helper()
	id := r.only(name).SpanContext().TraceID()
	return story{r.T, slices.DeleteFunc(slices.Clone(r.settled()), func(s sdktrace.ReadOnlySpan) bool { return s.SpanContext().TraceID() != id })}
}

// only returns the one span of that name.
func (r *rig) only(name string) sdktrace.ReadOnlySpan {
	r.Helper()
	return story{r.T, r.settled()}.only(name)
}

// A story is the spans of one trace.
type story struct {
	*testing.T
	spans []sdktrace.ReadOnlySpan
}

// tree draws them: names, the side in brackets for those of watertight, and "!" for an
// error.
func (r story) tree() string {
	r.Helper()
	ids := map[oteltrace.TraceID]bool{}
	byParent := map[oteltrace.SpanID][]sdktrace.ReadOnlySpan{}
	here := map[oteltrace.SpanID]bool{}
	for _, s := range r.spans {
		ids[s.SpanContext().TraceID()] = true
		here[s.SpanContext().SpanID()] = true
	}
	require.Len(r, ids, 1, "there should be one trace")
	for _, s := range r.spans {
		parent := s.Parent().SpanID()
		if !here[parent] {
			parent = oteltrace.SpanID{} // of somebody who is not here
		}
		byParent[parent] = append(byParent[parent], s)
	}
	var b strings.Builder
	var draw func(parent oteltrace.SpanID, indent string)
	draw = func(parent oteltrace.SpanID, indent string) {
		children := byParent[parent]
		slices.SortFunc(children, func(a, b sdktrace.ReadOnlySpan) int {
			return cmp.Or(a.StartTime().Compare(b.StartTime()), cmp.Compare(a.Name(), b.Name()))
		})
		for _, s := range children {
			fmt.Fprintf(&b, "%s%s", indent, s.Name())
			for _, a := range s.Attributes() {
				if a.Key == "watertight.side" {
					fmt.Fprintf(&b, " (%s)", a.Value.AsString())
				}
			}
			if s.Status().Code == codes.Error {
				b.WriteString(" !")
			}
			b.WriteString("\n")
			draw(s.SpanContext().SpanID(), indent+"  ")
		}
	}
	draw(oteltrace.SpanID{}, "")
	return b.String()
}

func (r story) only(name string) sdktrace.ReadOnlySpan {
	r.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.spans {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	require.Len(r, found, 1, name)
	return found[0]
}

// requireWithin checks that one span lasted within another.
func requireWithin(t *testing.T, outer, inner sdktrace.ReadOnlySpan) {
	t.Helper()
	require.False(t, inner.StartTime().Before(outer.StartTime()), "%s begins before %s", inner.Name(), outer.Name())
	require.False(t, inner.EndTime().After(outer.EndTime()), "%s ends after %s", inner.Name(), outer.Name())
}

// A gate is a handler behind which calls wait until it opens.
type gate struct {
	arrived chan struct{}
	opened  chan struct{}
	open    func()
}

func (r *rig) gate() *gate {
	g := &gate{arrived: make(chan struct{}, 100), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	r.Cleanup(g.open)
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.arrived <- struct{}{}
	<-g.opened
	_, _ = io.WriteString(w, "through the gate")
}

// queued waits until so many calls wait for permits of the Guard.
func (r *rig) queued(wt *watertight.Guard, n int) {
	r.Helper()
	require.Eventually(r, func() bool {
		waiting := 0
		for _, c := range wt.Snapshot().Compartments {
			if c.Bulkhead != nil {
				waiting += c.Bulkhead.Queued
			}
		}
		return waiting == n
	}, patience, time.Millisecond)
}

// task is one that queries a database, and calls an upstream.
func (r *rig) task(wt *watertight.Guard, rt http.RoundTripper, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := wt.Do(ctx, "db", func(ctx context.Context) error {
			_, span := r.begin(ctx, "query")
			span.End()
			return nil
		})
		r.getIn(ctx, rt, url)
		return err
	}
}
