package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const oneServerPermit = `
version: 1
policies:
  - name: items
    side: server
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}
`

const oneClientPermit = `
version: 1
policies:
  - name: upstream
    side: client
    bulkhead: {maxConcurrent: 1}
`

func TestGrantSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, oneServerPermit)
		ctx, caller := r.begin(t.Context(), "caller")
		start := time.Now()
		h := r.server(func(w http.ResponseWriter, req *http.Request) {
			time.Sleep(20 * time.Millisecond)
			_, own := r.begin(req.Context(), "own")
			time.Sleep(30 * time.Millisecond)
			own.End()
		})
		serve(h, get(ctx, "/items/7"))

		require.Equal(t, []string{"own", "bulkhead.grant"}, r.names())
		grant, own := r.only("bulkhead.grant"), r.only("own")
		requireParent(t, caller, grant)
		requireParentContext(t, grant.SpanContext(), own)
		assert.Equal(t, start, grant.StartTime())
		assert.Equal(t, 50*time.Millisecond, lasted(grant))
		assert.Equal(t, trace.SpanKindInternal, grant.SpanKind())
		assert.Equal(t, sdktrace.Status{}, grant.Status())
		assert.Equal(t, metrics.ScopeName, grant.InstrumentationScope().Name)
		assert.Equal(t, metrics.Version, grant.InstrumentationScope().Version)
		assert.Equal(t, attrs{
			"watertight.policy":    "items",
			"watertight.side":      "server",
			"watertight.key":       "GET /items/{id}",
			"watertight.limit":     int64(1),
			"watertight.in_flight": int64(1),
			"watertight.waited_ms": 0.0,
		}, attributesOf(grant))
	})
}

// There is always a key attribute, so that a search need not know the policy.
func TestEmptyKeyWithOneCompartment(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 5}
`)
	serve(r.server(nop), get(t.Context(), "/items/7"))
	assert.Equal(t, "", attributesOf(r.only("bulkhead.grant"))["watertight.key"])
}

func TestWaitSpan(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(r *rig, release, leave func()) // at 300ms; the wait began at 100ms
		lasted time.Duration
		result string
		after  []string // the spans that end with the wait or after it
	}{
		{
			"granted", func(r *rig, release, leave func()) { release() },
			200 * time.Millisecond, "granted", []string{"bulkhead.grant", "bulkhead.wait", "bulkhead.grant"},
		},
		{
			"waited too long", func(r *rig, release, leave func()) { time.Sleep(time.Second); release() },
			time.Second, "wait_timeout", []string{"bulkhead.wait", "bulkhead.reject", "bulkhead.grant"},
		},
		{
			"left", func(r *rig, release, leave func()) { leave(); synctest.Wait(); release() },
			200 * time.Millisecond, "canceled", []string{"bulkhead.wait", "bulkhead.grant"},
		},
		{
			"draining", func(r *rig, release, leave func()) {
				drained := make(chan error)
				go func() { drained <- r.guard.Drain(r.t.Context()) }()
				synctest.Wait()
				release()
				assert.NoError(r.t, <-drained)
			},
			200 * time.Millisecond, "draining", []string{"bulkhead.wait", "bulkhead.reject", "bulkhead.grant"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, oneServerPermit)
				held := make(chan struct{})
				h := r.server(func(w http.ResponseWriter, req *http.Request) {
					if req.PathValue("id") == "first" {
						<-held
					}
				})
				go serve(h, get(t.Context(), "/items/first"))
				time.Sleep(100 * time.Millisecond)
				arrived := time.Now()
				ctx, caller := r.begin(t.Context(), "caller")
				ctx, leave := context.WithCancel(ctx)
				defer leave()
				go serve(h, get(ctx, "/items/second"))
				time.Sleep(200 * time.Millisecond)
				tt.end(r, func() { close(held); synctest.Wait() }, leave)
				synctest.Wait()

				wait := r.only("bulkhead.wait")
				requireParent(t, caller, wait)
				assert.Equal(t, arrived, wait.StartTime())
				assert.Equal(t, tt.lasted, lasted(wait))
				assert.Equal(t, attrs{
					"watertight.policy":         "items",
					"watertight.side":           "server",
					"watertight.key":            "GET /items/{id}",
					"watertight.queue.position": int64(1),
					"watertight.result":         tt.result,
				}, attributesOf(wait))
				// The reject span is the one that is marked.
				assert.Equal(t, codes.Unset, wait.Status().Code)
				assert.ElementsMatch(t, tt.after, r.names())
				for _, s := range r.ended("bulkhead.reject") {
					requireParent(t, caller, s)
					assert.Equal(t, tt.result, attributesOf(s)["error.type"])
				}
				if tt.result == "granted" {
					last := r.ended("bulkhead.grant")[1]
					requireParent(t, caller, last)
					assert.Equal(t, wait.EndTime(), last.StartTime())
					assert.Equal(t, 200.0, attributesOf(last)["watertight.waited_ms"])
				}
			})
		})
	}
}

// The span is that of the wait, however much later the hook is called.
func TestWaitSpanHasTheTimesOfTheEvent(t *testing.T) {
	r := newRig(t, oneServerPermit)
	arrived := time.Now().Add(-time.Minute)
	metrics.New(metrics.WithTracerProvider(r.provider)).Wait(t.Context(), watertight.WaitEvent{
		Arrived: arrived, Waited: 2 * time.Second, Position: 3, Result: "granted",
	})
	wait := r.only("bulkhead.wait")
	assert.Equal(t, arrived, wait.StartTime())
	assert.Equal(t, 2*time.Second, lasted(wait))
	assert.Equal(t, int64(3), attributesOf(wait)["watertight.queue.position"])
}

// E67: one call for each fate, and each fate has spans of its own.
func TestRejectSpans(t *testing.T) {
	const policies = `
version: 1
policies:
  - name: broken
    side: client
    match: [{host: broken.internal}]
    breaker: {minCalls: 2, openFor: 5s, halfOpen: {calls: 1}}
  - name: busy
    side: client
    match: [{host: busy.internal}]
    bulkhead: {maxConcurrent: 1}
    reject: {retryAfter: 2500ms}
`
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policies)
		ctx, caller := r.begin(t.Context(), "caller")
		probing := make(chan struct{})
		rt := transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/fail":
				return nil, errors.New("connection refused")
			case "/probe":
				<-probing
			}
			return answer(http.StatusOK, "body")(req)
		}), r.guard)
		call := func(url string) (*http.Response, error) { return rt.RoundTrip(get(ctx, url)) }

		// refused makes a call that must be turned away, and returns the span,
		// which E64 wants to have ended by then.
		refused := func(url, span string) sdktrace.ReadOnlySpan {
			before := len(r.recorder.Ended())
			_, err := call(url)
			var rejected *watertight.RejectedError
			require.ErrorAs(t, err, &rejected)
			ended := r.recorder.Ended()
			require.Len(t, ended, before+1)
			s := ended[before]
			assert.Equal(t, span, s.Name())
			requireParent(t, caller, s)
			assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: rejected.Reason.String()}, s.Status())
			assert.Zero(t, lasted(s))
			return s
		}

		holding, err := call("http://busy.internal/")
		require.NoError(t, err)
		full := refused("http://busy.internal/", "bulkhead.reject")
		assert.Equal(t, attrs{
			"watertight.policy":         "busy",
			"watertight.side":           "client",
			"watertight.key":            "http://busy.internal:80",
			"watertight.reason":         "full",
			"error.type":                "full",
			"watertight.limit":          int64(1),
			"watertight.in_flight":      int64(1),
			"watertight.queued":         int64(0),
			"watertight.retry_after_ms": 2500.0,
		}, attributesOf(full))

		for range 2 {
			_, err := call("http://broken.internal/fail")
			require.EqualError(t, err, "connection refused")
		}
		time.Sleep(time.Second)
		open := refused("http://broken.internal/", "breaker.reject")
		assert.Equal(t, attrs{
			"watertight.policy":         "broken",
			"watertight.side":           "client",
			"watertight.key":            "http://broken.internal:80",
			"watertight.reason":         "open",
			"error.type":                "open",
			"watertight.breaker.state":  "open",
			"watertight.retry_after_ms": 4000.0,
		}, attributesOf(open))

		time.Sleep(4 * time.Second)
		go func() {
			resp, err := call("http://broken.internal/probe")
			if assert.NoError(t, err) {
				resp.Body.Close()
			}
		}()
		synctest.Wait()
		halfOpen := refused("http://broken.internal/", "breaker.reject")
		assert.Equal(t, "half_open", attributesOf(halfOpen)["watertight.breaker.state"])
		assert.Equal(t, "open", attributesOf(halfOpen)["error.type"])
		close(probing)
		synctest.Wait()

		require.NoError(t, holding.Body.Close())
		require.NoError(t, r.guard.Drain(t.Context()))
		drainingBusy := attributesOf(refused("http://busy.internal/", "bulkhead.reject"))
		assert.Equal(t, "draining", drainingBusy["error.type"])
		assert.Equal(t, int64(1), drainingBusy["watertight.limit"])
		drainingBroken := attributesOf(refused("http://broken.internal/", "bulkhead.reject"))
		assert.Equal(t, "draining", drainingBroken["watertight.reason"])
		assert.NotContains(t, drainingBroken, "watertight.limit")
	})
}

func TestRejectOnTheServerEndsBeforeTheAnswer(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - name: items
    bulkhead: {maxConcurrent: 1}
    reject: {retryAfter: 0s}
`)
	ctx, caller := r.begin(t.Context(), "caller")
	var h http.Handler
	h = r.server(func(w http.ResponseWriter, req *http.Request) {
		resp := serve(h, get(ctx, "/items/second"))
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, []string{"bulkhead.reject"}, r.names())
		requireParent(t, caller, r.only("bulkhead.reject"))
		assert.NotContains(t, attributesOf(r.only("bulkhead.reject")), "watertight.retry_after_ms")
	})
	serve(h, get(ctx, "/items/first"))
	require.Equal(t, []string{"bulkhead.reject", "bulkhead.grant"}, r.names())
}

func TestNoSpanWithoutAPolicy(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - name: health
    match: [{path: /items/free}]
    exempt: true
  - name: others
    match: [{path: /others}]
    bulkhead: {maxConcurrent: 1}
`)
	h := r.server(nop)
	serve(h, get(t.Context(), "/items/free"))
	serve(h, get(t.Context(), "/items/7"))
	serve(h, get(t.Context(), "/nowhere"))
	assert.Empty(t, r.recorder.Started())
}

// A call that only a breaker watches has no permit: its spans stay under the
// caller's, and it gets the caller's own request.
func TestBreakerAloneHasNoGrant(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - name: items
    breaker: {}
`)
	ctx, _ := r.begin(t.Context(), "caller")
	req := get(ctx, "/items/7")
	serve(r.server(func(_ http.ResponseWriter, got *http.Request) { assert.Same(t, req, got) }), req)
	assert.Empty(t, r.recorder.Ended())
}

func TestHooksTakeAnyKindOfReason(t *testing.T) {
	// Nothing that is handed in can make a name or an error type unbounded.
	r := newRig(t, oneClientPermit)
	hooks := metrics.New(metrics.WithTracerProvider(r.provider))
	for _, reason := range []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining, policy.ReasonCanceled} {
		hooks.Reject(t.Context(), watertight.RejectEvent{Reason: reason, Err: errors.New("secret")})
	}
	var names, types []string
	for _, s := range r.recorder.Ended() {
		names = append(names, s.Name())
		types = append(types, attributesOf(s)["error.type"].(string))
		assert.NotContains(t, s.Status().Description, "secret")
	}
	assert.Equal(t, []string{"bulkhead.reject", "bulkhead.reject", "breaker.reject", "bulkhead.reject", "bulkhead.reject"}, names)
	assert.Equal(t, []string{"full", "wait_timeout", "open", "draining", "canceled"}, types)
}
