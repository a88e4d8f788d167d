package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const (
	sampledRemote   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledRemote = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// guardWith returns a Guard whose hooks use the provider and W3C's headers.
func guardWith(t testing.TB, policies string, p trace.TracerProvider) *watertight.Guard {
	t.Helper()
	return newGuard(t, policies, metrics.New(metrics.WithTracerProvider(p), metrics.WithPropagators(w3c)))
}

func remoteContext(t testing.TB, traceparent string) trace.SpanContext {
	t.Helper()
	sc := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": traceparent}))
	require.True(t, sc.IsValid())
	return sc
}

func TestArriveFindsTheRemoteParent(t *testing.T) {
	r := newRig(t, oneServerPermit)
	var within baggage.Baggage
	h := serverOf(guardWith(t, oneServerPermit, r.provider), func(w http.ResponseWriter, req *http.Request) {
		within = baggage.FromContext(req.Context())
	})
	req := get(t.Context(), "/items/7")
	req.Header.Set("Traceparent", sampledRemote)
	req.Header.Set("Baggage", "tenant=blue")
	serve(h, req)
	grant := r.only("bulkhead.grant")
	requireParentContext(t, remoteContext(t, sampledRemote), grant)
	assert.True(t, grant.Parent().IsRemote())
	assert.Equal(t, "blue", within.Member("tenant").Value())
}

func TestArriveKeepsTheSpanThatIsThere(t *testing.T) {
	r := newRig(t, oneServerPermit)
	h := serverOf(guardWith(t, oneServerPermit, r.provider), nop)
	ctx, caller := r.begin(t.Context(), "caller")
	req := get(ctx, "/items/7")
	req.Header.Set("Traceparent", sampledRemote)
	serve(h, req)
	requireParent(t, caller, r.only("bulkhead.grant"))
}

func TestArriveWithoutUsableHeaders(t *testing.T) {
	for name, traceparent := range map[string]string{
		"none":       "",
		"malformed":  "00-zz",
		"all zeroes": "00-00000000000000000000000000000000-0000000000000000-01",
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, oneServerPermit, noop.NewTracerProvider())
			req := get(t.Context(), "/items/7")
			req.Header.Set("Traceparent", traceparent)
			req.Header.Set("Baggage", "tenant=blue")
			// Nobody gained anything, so nothing may have been copied.
			serve(serverOf(g, func(_ http.ResponseWriter, got *http.Request) { assert.Same(t, req, got) }), req)
		})
	}
}

// The headers of a client's request are the client's own: they are neither read
// for a parent nor written.
func TestClientNeitherExtractsNorInjects(t *testing.T) {
	r := newRig(t, oneClientPermit)
	rt := transport.New(baseFunc(func(sent *http.Request) (*http.Response, error) {
		assert.Equal(t, http.Header{"Traceparent": {sampledRemote}}, sent.Header)
		return answer(http.StatusNoContent, "")(sent)
	}), guardWith(t, oneClientPermit, r.provider))

	req := get(t.Context(), "http://up.internal/")
	req.Header.Set("Traceparent", sampledRemote)
	_, err := rt.RoundTrip(req)
	require.NoError(t, err)
	assert.False(t, r.only("bulkhead.grant").Parent().IsValid())
}

func TestGlobalsAreReadAtUse(t *testing.T) {
	formerProvider, formerPropagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(formerProvider)
		otel.SetTextMapPropagator(formerPropagator)
	})
	g := newGuard(t, oneServerPermit, metrics.New(
		metrics.WithTracerProvider(nil), metrics.WithPropagators(nil), metrics.WithLogger(nil)))
	h := serverOf(g, nop)
	ask := func() {
		req := get(t.Context(), "/items/7")
		req.Header.Set("Traceparent", sampledRemote)
		serve(h, req)
	}
	ask() // the hooks have seen the state before set-up
	otel.SetTextMapPropagator(w3c)
	for range 2 { // a second provider takes over from the first
		r := newRig(t, oneServerPermit)
		otel.SetTracerProvider(r.provider)
		ask()
		requireParentContext(t, remoteContext(t, sampledRemote), r.only("bulkhead.grant"))
	}
}

func TestNoProviderChangesNothing(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	program := newProvider(recorder).Tracer("program")
	for name, ctx := range map[string]context.Context{
		"no span": t.Context(),
		"a span of another provider": func() context.Context {
			ctx, _ := program.Start(t.Context(), "caller")
			return ctx
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			req := get(ctx, "/items/7")
			g := guardWith(t, oneServerPermit, noop.NewTracerProvider())
			serve(serverOf(g, func(_ http.ResponseWriter, got *http.Request) { assert.Same(t, req, got) }), req)
		})
	}
}

// rootSampler samples nothing, and counts how often it is asked for a root.
type rootSampler struct{ asked int }

func (s *rootSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.asked++
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (*rootSampler) Description() string { return "none" }

func TestUnsampledStaysUnsampled(t *testing.T) {
	for _, tt := range []struct {
		name        string
		caller      func(ctx context.Context, r *rig) context.Context
		traceparent string
		asked       int
		same        bool // the handler gets the very request
	}{
		{
			name:   "no caller: the grant is the root that was sampled out",
			caller: func(ctx context.Context, _ *rig) context.Context { return ctx },
			asked:  1,
		},
		{
			name: "a local caller",
			caller: func(ctx context.Context, r *rig) context.Context {
				ctx, _ = r.begin(ctx, "caller")
				return ctx
			},
			asked: 1, // for the caller
			same:  true,
		},
		{
			name:        "a remote caller",
			caller:      func(ctx context.Context, _ *rig) context.Context { return ctx },
			traceparent: unsampledRemote,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := &rootSampler{}
			r := newRig(t, oneServerPermit, sdktrace.WithSampler(sdktrace.ParentBased(root)))
			req := get(tt.caller(t.Context(), r), "/items/7")
			if tt.traceparent != "" {
				req.Header.Set("Traceparent", tt.traceparent)
			}
			g := guardWith(t, oneServerPermit, r.provider)
			serve(serverOf(g, func(_ http.ResponseWriter, got *http.Request) {
				assert.Equal(t, tt.same, req == got)
				parent := trace.SpanContextFromContext(got.Context())
				_, own := r.begin(got.Context(), "own")
				assert.False(t, own.IsRecording())
				assert.False(t, own.SpanContext().IsSampled())
				assert.Equal(t, parent.TraceID(), own.SpanContext().TraceID())
				assert.False(t, parent.IsRemote())
			}), req)
			assert.Equal(t, tt.asked, root.asked)
			assert.Empty(t, r.recorder.Started())
		})
	}
}

// A sampler may drop these spans alone; then those beneath, whose parent they
// are, go the same way, as with any span in OpenTelemetry.
func TestGrantDroppedUnderASampledCaller(t *testing.T) {
	r := newRig(t, oneServerPermit, sdktrace.WithSampler(dropping("bulkhead.grant")))
	ctx, caller := r.begin(t.Context(), "caller")
	serve(r.server(func(_ http.ResponseWriter, req *http.Request) {
		sc := trace.SpanContextFromContext(req.Context())
		assert.Equal(t, caller.SpanContext().TraceID(), sc.TraceID())
		assert.NotEqual(t, caller.SpanContext().SpanID(), sc.SpanID())
		assert.False(t, sc.IsSampled())
	}), get(ctx, "/items/7"))
	assert.Empty(t, r.recorder.Ended())
}

type dropping string

func (d dropping) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == string(d) {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

func (d dropping) Description() string { return "all but " + string(d) }

// What nobody records is not put together either.
func TestNothingIsBuiltForSpansThatAreNotRecorded(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	p := &faultyProvider{TracerProvider: newProvider(recorder, sdktrace.WithSampler(sdktrace.NeverSample()))}
	p.inSetAttributes.Store(true)
	hooks := metrics.New(metrics.WithTracerProvider(p), metrics.WithLogger(slog.New(slog.DiscardHandler)))
	assert.NotPanics(t, func() {
		hooks.Wait(t.Context(), watertight.WaitEvent{})
		hooks.Release(hooks.Grant(t.Context(), watertight.GrantEvent{}), watertight.ReleaseEvent{})
		hooks.Reject(t.Context(), watertight.RejectEvent{Reason: policy.ReasonFull})
		hooks.Reject(t.Context(), watertight.RejectEvent{Reason: policy.ReasonOpen})
		hooks.Transition(t.Context(), watertight.TransitionEvent{})
	})
	assert.Empty(t, recorder.Started())
}
