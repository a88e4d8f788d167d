package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// E64: the span of a client call lasts as long as its permit, which is until the
// body ends, and ends once.
func TestGrantSpanLastsAsLongAsTheBody(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(body io.ReadCloser, leave func()) // one second into the body
		took time.Duration
	}{
		{"closed", func(body io.ReadCloser, _ func()) { body.Close() }, time.Second},
		{"closed three times", func(body io.ReadCloser, _ func()) { body.Close(); body.Close(); body.Close() }, time.Second},
		{"read to the end, then closed", func(body io.ReadCloser, _ func()) {
			io.ReadAll(body)
			time.Sleep(time.Second)
			body.Close()
		}, time.Second},
		{"abandoned", func(_ io.ReadCloser, leave func()) { leave(); synctest.Wait() }, time.Second},
		{"abandoned, then closed", func(body io.ReadCloser, leave func()) {
			leave()
			synctest.Wait()
			time.Sleep(time.Second)
			body.Close()
		}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, oneClientPermit)
				ctx, caller := r.begin(t.Context(), "caller")
				ctx, leave := context.WithCancel(ctx)
				defer leave()
				rt := transport.New(answer(http.StatusOK, "body"), r.guard)
				resp, err := rt.RoundTrip(get(ctx, "http://up.internal/"))
				require.NoError(t, err)
				require.Empty(t, r.ended("bulkhead.grant"))
				time.Sleep(time.Second)
				tt.end(resp.Body, leave)

				grant := r.only("bulkhead.grant")
				requireParent(t, caller, grant)
				assert.Equal(t, tt.took, lasted(grant))
				assert.NotContains(t, attributesOf(grant), "watertight.leaked")
			})
		})
	}
}

// What instruments the base, as otelhttp does, hangs under the grant.
func TestGrantSpanIsTheParentOfTheBase(t *testing.T) {
	r := newRig(t, oneClientPermit)
	ctx, _ := r.begin(t.Context(), "caller")
	rt := transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
		_, wire := r.begin(req.Context(), "wire")
		defer wire.End()
		return nil, errors.New("connection refused")
	}), r.guard)
	_, err := rt.RoundTrip(get(ctx, "http://up.internal/"))
	require.EqualError(t, err, "connection refused")
	require.Equal(t, []string{"wire", "bulkhead.grant"}, r.names())
	requireParentContext(t, r.only("bulkhead.grant").SpanContext(), r.only("wire"))
}

// E64, the server's side of it.
func TestGrantSpanEndsWithTheHandler(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit func()
	}{
		{"panic", func() { panic("handler") }},
		{"abort", func() { panic(http.ErrAbortHandler) }},
		{"exit", runtime.Goexit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, oneServerPermit)
			h := r.server(func(http.ResponseWriter, *http.Request) { tt.exit() })
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				defer func() { _ = recover() }()
				serve(h, get(t.Context(), "/items/7"))
			}()
			<-gone
			r.only("bulkhead.grant")
		})
	}
}

func TestLeakShowsOnTheGrantSpan(t *testing.T) {
	r := newRig(t, oneClientPermit)
	call, err := r.guard.Admit(t.Context(), &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"})
	require.NoError(t, err)
	call.Leak()
	assert.Equal(t, true, attributesOf(r.only("bulkhead.grant"))["watertight.leaked"])
}

func TestTwoSets(t *testing.T) {
	t.Run("two providers", func(t *testing.T) {
		one := newRig(t, oneClientPermit)
		other := newRig(t, oneClientPermit)
		g := newGuard(t, oneClientPermit,
			metrics.New(metrics.WithTracerProvider(one.provider)),
			metrics.New(metrics.WithTracerProvider(other.provider)))
		ctx, caller := one.begin(t.Context(), "caller")
		roundTripTwice(t, g, ctx)
		for _, r := range []*rig{one, other} {
			require.Equal(t, []string{"bulkhead.reject", "bulkhead.grant"}, r.names())
			requireParent(t, caller, r.only("bulkhead.reject"))
		}
		requireParent(t, caller, one.only("bulkhead.grant"))
		requireParentContext(t, one.only("bulkhead.grant").SpanContext(), other.only("bulkhead.grant"))
	})
	t.Run("one provider", func(t *testing.T) {
		r := newRig(t, oneClientPermit)
		g := newGuard(t, oneClientPermit,
			metrics.New(metrics.WithTracerProvider(r.provider)),
			metrics.New(metrics.WithTracerProvider(r.provider)))
		ctx, caller := r.begin(t.Context(), "caller")
		roundTripTwice(t, g, ctx)
		require.Equal(t, []string{"bulkhead.reject", "bulkhead.reject", "bulkhead.grant", "bulkhead.grant"}, r.names())
		grants := r.ended("bulkhead.grant") // the inner one ends first
		requireParent(t, caller, grants[1])
		requireParentContext(t, grants[1].SpanContext(), grants[0])
	})
}

// roundTripTwice makes a call, and another that is refused meanwhile.
func roundTripTwice(t *testing.T, g *watertight.Guard, ctx context.Context) {
	t.Helper()
	rt := transport.New(answer(http.StatusOK, "body"), g)
	resp, err := rt.RoundTrip(get(ctx, "http://up.internal/"))
	require.NoError(t, err)
	_, err = rt.RoundTrip(get(ctx, "http://up.internal/"))
	require.Error(t, err)
	require.NoError(t, resp.Body.Close())
}

const gateway = `
version: 1
policies:
  - name: all
    bulkhead: {maxConcurrent: 10}
`

// In a gateway the context of the request is that of its client calls. A call
// whose span is left out must not end that of the request.
func TestInnerCallLeavesTheOuterSpanAlone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		inner func(ctx context.Context, r *rig, faults *faultyProvider) context.Context // before the client call
	}{
		{"recorded", func(ctx context.Context, _ *rig, _ *faultyProvider) context.Context { return ctx }},
		{"in a trace that is not sampled", func(ctx context.Context, _ *rig, _ *faultyProvider) context.Context {
			return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
			}))
		}},
		{"with a tracer that panics", func(ctx context.Context, _ *rig, faults *faultyProvider) context.Context {
			faults.inStart.Store(true)
			return ctx
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, gateway)
				faults := &faultyProvider{TracerProvider: r.provider}
				g := newGuard(t, gateway, metrics.New(metrics.WithTracerProvider(faults)))
				rt := transport.New(answer(http.StatusOK, "body"), g)
				h := serverOf(g, func(w http.ResponseWriter, req *http.Request) {
					ctx := tt.inner(req.Context(), r, faults)
					resp, err := rt.RoundTrip(get(ctx, "http://up.internal/"))
					faults.inStart.Store(false)
					if assert.NoError(t, err) {
						resp.Body.Close()
					}
					time.Sleep(time.Second)
				})
				serve(h, get(t.Context(), "/items/7"))
				grants := r.ended("bulkhead.grant")
				outer := grants[len(grants)-1]
				assert.Equal(t, "server", attributesOf(outer)["watertight.side"])
				assert.Equal(t, time.Second, lasted(outer))
			})
		})
	}
}

// The same for a call inside of one of the same compartment, as when a base
// fetches something from the host that it is about to call.
func TestInnerCallOfTheSameCompartment(t *testing.T) {
	r := newRig(t, gateway)
	up := &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"}
	outer, err := r.guard.Admit(t.Context(), up)
	require.NoError(t, err)
	ctx, _ := outer.Context()
	inner, err := r.guard.Admit(unsampledCaller(ctx), up)
	require.NoError(t, err)
	inner.Release()
	require.Empty(t, r.recorder.Ended())
	outer.Release()
	r.only("bulkhead.grant")
}

// A program may wrap the hooks; then the context that comes back to Release is
// not the very one that Grant returned.
func TestGrantAndReleaseStandBeingWrapped(t *testing.T) {
	type key struct{}
	r := newRig(t, oneClientPermit)
	hooks := metrics.New(metrics.WithTracerProvider(r.provider))
	grant := hooks.Grant
	hooks.Grant = func(ctx context.Context, e watertight.GrantEvent) context.Context {
		return context.WithValue(grant(ctx, e), key{}, "more")
	}
	g := newGuard(t, oneClientPermit, hooks)
	call, err := g.Admit(t.Context(), &policy.Request{Side: policy.Client, Scheme: "http", Host: "up.internal"})
	require.NoError(t, err)
	require.Empty(t, r.recorder.Ended())
	call.Release()
	call.Release()
	r.only("bulkhead.grant")
}
