package metrics_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

// A link is what a span's link says, besides where it leads.
type link struct {
	to      trace.SpanContext
	outcome string
	took    float64 // in milliseconds
}

func linksOf(s sdktrace.ReadOnlySpan) []link {
	var links []link
	for _, l := range s.Links() {
		m := map[string]any{}
		for _, kv := range l.Attributes {
			m[string(kv.Key)] = kv.Value.AsInterface()
		}
		links = append(links, link{l.SpanContext, m["watertight.link.outcome"].(string), m["watertight.link.took_ms"].(float64)})
	}
	return links
}

// A call that only a breaker watches has no span of its own: its caller's is linked, or
// is the parent of the trip, if the call tripped the breaker itself.
func TestTripLinksToTheCallsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.takes, s.fails = 200*time.Millisecond, true
		first := s.call()
		s.takes = 20 * time.Millisecond
		second := s.call()
		trip := s.only("breaker.trip")
		requireParent(t, second, trip)
		assert.Equal(t, []link{{first.SpanContext(), "failed_slow", 200}}, linksOf(trip))

		time.Sleep(5 * time.Second)
		s.takes = 0
		probe := s.call()
		s.call()
		assert.Empty(t, linksOf(s.only("breaker.half_open")))
		assert.Equal(t, []link{{probe.SpanContext(), "failed", 0}}, linksOf(s.ended("breaker.trip")[1]))

		time.Sleep(5 * time.Second)
		s.fails = false
		s.call()
		s.call()
		assert.Empty(t, linksOf(s.only("breaker.close")))
		s.takes = 150 * time.Millisecond
		slow := s.call()
		s.call()
		assert.Equal(t, []link{{slow.SpanContext(), "slow", 150}}, linksOf(s.ended("breaker.trip")[2]))
	})
}

// One caller may have called often. Its span is linked once.
func TestTripLinksToACallerOnce(t *testing.T) {
	r := newRig(t, "version: 1\npolicies: [{name: up, side: client, breaker: {minCalls: 3}}]\n")
	call := func(ctx context.Context) {
		_ = r.guard.Do(ctx, "up", func(context.Context) error { return errors.New("no") })
	}
	ctx, often := r.begin(t.Context(), "caller")
	call(ctx)
	call(ctx)
	call(t.Context()) // the trip is a root
	links := linksOf(r.only("breaker.trip"))
	require.Len(t, links, 1)
	assert.Equal(t, often.SpanContext(), links[0].to)
}

const grantedAndWatched = `
version: 1
policies:
  - {name: up, bulkhead: {maxConcurrent: 10}, breaker: {minCalls: 2, slowCall: 1s, openFor: 5s}}
`

// A call with a permit is known by that: what it did hangs under it.
func TestTripLinksToPermits(t *testing.T) {
	fail := errors.New("no")
	for name, two := range map[string]func(t *testing.T, r *rig, ctx context.Context){
		"server": func(t *testing.T, r *rig, ctx context.Context) {
			h := r.server(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
			serve(h, get(ctx, "/items/7"))
			serve(h, get(ctx, "/items/8"))
		},
		"server, panicking": func(t *testing.T, r *rig, ctx context.Context) {
			h := r.server(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			for range 2 {
				assert.PanicsWithValue(t, http.ErrAbortHandler, func() { serve(h, get(ctx, "/items/7")) })
			}
		},
		"client": func(t *testing.T, r *rig, ctx context.Context) {
			rt := transport.New(answer(http.StatusBadGateway, ""), r.guard)
			for range 2 {
				resp, err := rt.RoundTrip(get(ctx, "http://up.internal/"))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
		},
		"Do": func(t *testing.T, r *rig, ctx context.Context) {
			for range 2 {
				assert.Equal(t, fail, r.guard.Do(ctx, "up", func(context.Context) error { return fail }))
			}
		},
		"Do, in a pool": func(t *testing.T, r *rig, ctx context.Context) {
			p, err := r.guard.Pool("workers", bulkhead.PoolConfig{Max: 1, Backlog: 2})
			require.NoError(t, err)
			for range 2 {
				assert.Equal(t, fail, p.Do(ctx, func(ctx context.Context) error {
					return r.guard.Do(ctx, "up", func(context.Context) error { return fail })
				}))
			}
			require.NoError(t, r.guard.Drain(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, grantedAndWatched)
			ctx, caller := r.begin(t.Context(), "caller")
			two(t, r, ctx)
			trip := r.only("breaker.trip")
			var permits []trace.SpanContext
			for _, s := range r.ended("bulkhead.grant") {
				if attributesOf(s)["watertight.policy"] == "up" {
					permits = append(permits, s.SpanContext())
				}
			}
			require.Len(t, permits, 2)
			links := linksOf(trip)
			require.Len(t, links, 2)
			for i := range links {
				assert.Equal(t, permits[i], links[i].to)
				assert.Equal(t, "failed", links[i].outcome)
			}
			assert.Equal(t, caller.SpanContext().TraceID(), trip.SpanContext().TraceID())
		})
	}
}

// An upstream that hangs trips the breaker while the calls are still there, and whoever
// looks into them sees what they wait for.
func TestTripLinksToCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, grantedAndWatched)
		rt := transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Hour)
			return nil, errors.New("connection reset")
		}), r.guard)
		for range 2 {
			go func() { _, _ = rt.RoundTrip(get(t.Context(), "http://up.internal/")) }()
		}
		time.Sleep(1500 * time.Millisecond)
		_, err := rt.RoundTrip(get(t.Context(), "http://up.internal/"))
		require.Error(t, err)
		links := linksOf(r.only("breaker.trip"))
		time.Sleep(time.Hour)
		grants := r.ended("bulkhead.grant")
		require.Len(t, grants, 2)
		var want, got []trace.SpanContext
		for i, g := range grants {
			want, got = append(want, g.SpanContext()), append(got, links[i].to)
			assert.Equal(t, "overdue", links[i].outcome)
			assert.Equal(t, 1500.0, links[i].took)
		}
		assert.ElementsMatch(t, want, got)
	})
}

// Where few traces are sampled, a trip by calls that hang still finds one of those.
func TestTripLinksToTheFewInFlightThatAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
version: 1
policies:
  - {name: up, side: client, per: policy, breaker: {minCalls: 10, slowCall: 1s}}
`, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
		hang := func(ctx context.Context) {
			go func() {
				_ = r.guard.Do(ctx, "up", func(context.Context) error { time.Sleep(time.Hour); return nil })
			}()
			synctest.Wait()
		}
		for range 20 {
			hang(unsampledCaller(t.Context()))
		}
		ctx, caller := r.begin(t.Context(), "caller")
		hang(ctx)
		time.Sleep(2 * time.Second)
		require.Error(t, r.guard.Do(t.Context(), "up", func(context.Context) error { return nil }))
		links := linksOf(r.only("breaker.trip"))
		require.Len(t, links, 1)
		assert.Equal(t, caller.SpanContext(), links[0].to)
		time.Sleep(time.Hour)
	})
}

// There are links to spans that somebody can look at, and to no others.
func TestNoLinksToWhatIsNotSampled(t *testing.T) {
	fail := func(g interface {
		Do(context.Context, string, func(context.Context) error) error
	}, ctx context.Context) {
		_ = g.Do(ctx, "up", func(context.Context) error { return errors.New("no") })
	}
	t.Run("some", func(t *testing.T) {
		r := newRig(t, grantedAndWatched, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
		fail(r.guard, unsampledCaller(t.Context()))
		ctx, _ := r.begin(t.Context(), "caller")
		fail(r.guard, ctx)
		links := linksOf(r.only("breaker.trip"))
		require.Len(t, links, 1)
		assert.Equal(t, r.only("bulkhead.grant").SpanContext(), links[0].to)
	})
	t.Run("recorded only", func(t *testing.T) {
		r := newRig(t, grantedAndWatched, sdktrace.WithSampler(recordOnly{}))
		fail(r.guard, t.Context())
		fail(r.guard, t.Context())
		assert.Empty(t, linksOf(r.only("breaker.trip")))
	})
	t.Run("none", func(t *testing.T) {
		g := newGuard(t, grantedAndWatched, metrics.New(metrics.WithTracerProvider(noop.NewTracerProvider()), metrics.WithLogger(slog.New(slog.DiscardHandler))))
		fail(g, t.Context())
		fail(g, t.Context())
		assert.Equal(t, "open", g.Snapshot().Compartments[0].Breaker.State)
	})
}

// recordOnly records all spans and samples none.
type recordOnly struct{}

func (recordOnly) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
}
func (recordOnly) Description() string { return "recordOnly" }

// Two sets with a provider each link to the spans of their own.
func TestEachProviderHasItsOwnLinks(t *testing.T) {
	one, two := newRig(t, grantedAndWatched), newRig(t, grantedAndWatched)
	hooks := func(r *rig) (h []metrics.Option) {
		return []metrics.Option{metrics.WithTracerProvider(r.provider), metrics.WithLogger(slog.New(slog.DiscardHandler))}
	}
	g := newGuard(t, grantedAndWatched, metrics.New(hooks(one)...), metrics.New(hooks(two)...))
	for range 2 {
		_ = g.Do(t.Context(), "up", func(context.Context) error { return errors.New("no") })
	}
	for _, r := range []*rig{one, two} {
		links := linksOf(r.only("breaker.trip"))
		require.Len(t, links, 2)
		for i, s := range r.ended("bulkhead.grant") {
			assert.Equal(t, s.SpanContext(), links[i].to)
		}
	}
}

// Many calls fail at many breakers at once. Each link leads to a call of its own
// compartment that did what the link says; there are at most 8, and not one twice.
func TestLinksHammer(t *testing.T) { synctest.Test(t, hammerLinks) }

func hammerLinks(t *testing.T) {
	r := newRig(t, `
version: 1
policies:
  - {name: up, side: client, bulkhead: {maxConcurrent: 8}, breaker: {minCalls: 4, window: {calls: 20}, slowCall: 2ms, openFor: 1ms, halfOpen: {calls: 3, probeTimeout: 5ms}}}
`)
	hosts := []string{"a.internal", "b.internal", "c.internal"}
	var mu sync.Mutex
	failed := map[trace.SpanID]bool{}
	rt := transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
		switch rand.IntN(4) {
		case 0:
			mu.Lock()
			failed[trace.SpanFromContext(req.Context()).SpanContext().SpanID()] = true
			mu.Unlock()
			return nil, errors.New("connection refused")
		case 1:
			time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		}
		return answer(http.StatusNoContent, "")(req)
	}), r.guard)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 300 {
				if _, err := rt.RoundTrip(get(context.Background(), "http://"+hosts[rand.IntN(len(hosts))]+"/")); errors.Is(err, breaker.ErrOpen) {
					time.Sleep(time.Millisecond) // or the breakers would stay open to the end
				}
			}
		})
	}
	callers.Wait()

	spans := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	for _, s := range r.recorder.Ended() {
		spans[s.SpanContext().SpanID()] = s
	}
	linked := 0
	for _, trip := range r.ended("breaker.trip") {
		links := linksOf(trip)
		assert.LessOrEqual(t, len(links), 8)
		seen := map[trace.SpanID]bool{}
		for _, l := range links {
			linked++
			id := l.to.SpanID()
			require.Contains(t, spans, id)
			assert.False(t, seen[id], "linked twice")
			seen[id] = true
			assert.Equal(t, "bulkhead.grant", spans[id].Name())
			assert.Equal(t, attributesOf(trip)["watertight.key"], attributesOf(spans[id])["watertight.key"])
			if l.outcome == "failed" || l.outcome == "failed_slow" {
				assert.True(t, failed[id], "it did not fail")
			}
			if l.outcome != "failed" {
				assert.Greater(t, l.took, 2.0)
			}
		}
	}
	assert.Positive(t, linked)
}

// A request that fails on a server that only observes is linked, too.
func TestObservedTripLinks(t *testing.T) {
	r := newRig(t, observing)
	h := middleware.New(r.guard)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	serve(h, get(t.Context(), "/"))
	serve(h, get(t.Context(), "/"))
	links := linksOf(r.only("breaker.trip"))
	require.Len(t, links, 2)
	for i, s := range r.ended("bulkhead.grant")[:2] {
		assert.Equal(t, s.SpanContext(), links[i].to)
	}
}
