package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const breakerAlone = `
version: 1
policies:
  - name: upstream
    side: client
    breaker:
      minCalls: 2
      slowCall: 100ms
      openFor: 5s
      halfOpen: {calls: 2, maxWait: 3s}
`

// A scene is a client in front of an upstream whose mood can be changed, with
// its log.
type scene struct {
	*rig
	log *bytes.Buffer
	rt  http.RoundTripper

	takes time.Duration
	fails bool
}

func newScene(t *testing.T) *scene {
	s := &scene{rig: newRig(t, breakerAlone), log: &bytes.Buffer{}}
	s.guard = newGuard(t, breakerAlone, metrics.New(
		metrics.WithTracerProvider(s.provider),
		metrics.WithLogger(slog.New(slog.NewJSONHandler(s.log, nil)))))
	s.rt = transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
		time.Sleep(s.takes)
		if s.fails {
			return nil, errors.New("connection refused")
		}
		return answer(http.StatusNoContent, "")(req)
	}), s.guard)
	return s
}

// call makes one under a span of its own, which it returns.
func (s *scene) call() trace.Span {
	ctx, span := s.begin(s.t.Context(), "caller")
	defer span.End()
	_, _ = s.rt.RoundTrip(get(ctx, "http://up.internal/"))
	return span
}

// records returns what was logged, without the times.
func (s *scene) records() []map[string]any {
	var all []map[string]any
	for line := range strings.Lines(s.log.String()) {
		m := map[string]any{}
		require.NoError(s.t, json.Unmarshal([]byte(line), &m))
		delete(m, "time")
		all = append(all, m)
	}
	return all
}

func requireMoment(t *testing.T, at time.Time, s sdktrace.ReadOnlySpan) {
	t.Helper()
	require.Equal(t, at, s.StartTime())
	require.Zero(t, lasted(s))
}

func TestTripAndWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.call()
		s.fails = true
		tripper := s.call()
		trip := s.only("breaker.trip")
		requireParent(t, tripper, trip)
		requireMoment(t, time.Now(), trip)
		assert.Equal(t, sdktrace.Status{}, trip.Status())
		assert.Equal(t, attrs{
			"watertight.policy":                 "upstream",
			"watertight.side":                   "client",
			"watertight.key":                    "http://up.internal:80",
			"watertight.breaker.from":           "closed",
			"watertight.breaker.to":             "open",
			"watertight.breaker.cause":          "failure_rate",
			"watertight.breaker.failure_rate":   50.0,
			"watertight.breaker.slow_call_rate": 0.0,
			"watertight.breaker.calls":          int64(2),
			"watertight.breaker.open_for_ms":    5000.0,
		}, attributesOf(trip))

		time.Sleep(5 * time.Second)
		s.fails = false
		probe := s.call()
		halfOpen := s.only("breaker.half_open")
		requireParent(t, probe, halfOpen)
		requireMoment(t, time.Now(), halfOpen)
		assert.Equal(t, "open_elapsed", attributesOf(halfOpen)["watertight.breaker.cause"])
		assert.NotContains(t, attributesOf(halfOpen), "watertight.breaker.open_for_ms")

		last := s.call()
		closed := s.only("breaker.close")
		requireParent(t, last, closed)
		assert.Equal(t, attrs{
			"watertight.policy":                 "upstream",
			"watertight.side":                   "client",
			"watertight.key":                    "http://up.internal:80",
			"watertight.breaker.from":           "half_open",
			"watertight.breaker.to":             "closed",
			"watertight.breaker.cause":          "probes",
			"watertight.breaker.failure_rate":   0.0,
			"watertight.breaker.slow_call_rate": 0.0,
			"watertight.breaker.calls":          int64(2),
		}, attributesOf(closed))

		logged := func(level, msg, from, to, cause string, failed float64, in trace.Span) map[string]any {
			return map[string]any{
				"level": level, "msg": msg,
				"policy": "upstream", "side": "client", "key": "http://up.internal:80",
				"from": from, "to": to, "cause": cause,
				"failure_rate": failed, "slow_call_rate": 0.0, "calls": 2.0,
				"trace_id": in.SpanContext().TraceID().String(),
				"span_id":  in.SpanContext().SpanID().String(),
			}
		}
		tripped := logged("WARN", "watertight: breaker tripped", "closed", "open", "failure_rate", 50, tripper)
		tripped["open_for_ms"] = 5000.0
		assert.Equal(t, []map[string]any{
			tripped,
			logged("INFO", "watertight: breaker half-open", "open", "half_open", "open_elapsed", 50, probe),
			logged("INFO", "watertight: breaker closed", "half_open", "closed", "probes", 0, last),
		}, s.records())
	})
}

func TestTripBySlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.takes = 101 * time.Millisecond
		s.call()
		s.call()
		trip := attributesOf(s.only("breaker.trip"))
		assert.Equal(t, "slow_call_rate", trip["watertight.breaker.cause"])
		assert.Equal(t, 0.0, trip["watertight.breaker.failure_rate"])
		assert.Equal(t, 100.0, trip["watertight.breaker.slow_call_rate"])
		assert.Equal(t, "slow_call_rate", s.records()[0]["cause"])
	})
}

// Half-open was over three seconds in, but nobody called until another four had
// passed. The breaker has then been open again for these, and has one more to go.
func TestLateTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.fails = true
		s.call()
		s.call()
		time.Sleep(5 * time.Second)
		s.fails = false
		s.call() // one probe of two
		time.Sleep(7 * time.Second)
		late := s.call()

		trips := s.ended("breaker.trip")
		require.Len(t, trips, 2)
		requireParent(t, late, trips[1])
		requireMoment(t, time.Now(), trips[1])
		again := attributesOf(trips[1])
		assert.Equal(t, "half_open", again["watertight.breaker.from"])
		assert.Equal(t, "half_open_elapsed", again["watertight.breaker.cause"])
		assert.Equal(t, 4000.0, again["watertight.breaker.late_ms"])
		assert.Equal(t, 5000.0, again["watertight.breaker.open_for_ms"])
		// One probe is too few for a rate.
		assert.NotContains(t, again, "watertight.breaker.failure_rate")
		assert.NotContains(t, again, "watertight.breaker.slow_call_rate")
		assert.Equal(t, 1000.0, attributesOf(s.only("breaker.reject"))["watertight.retry_after_ms"])

		record := s.records()[2]
		assert.Equal(t, 4000.0, record["late_ms"])
		assert.NotContains(t, record, "failure_rate")
		assert.NotContains(t, record, "slow_call_rate")
		for _, punctual := range s.records()[:2] {
			assert.NotContains(t, punctual, "late_ms")
		}
	})
}

// A snapshot sees a change without being a call of anybody.
func TestTransitionWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.fails = true
		s.call()
		s.call()
		time.Sleep(5 * time.Second)
		s.fails = false
		s.call()
		time.Sleep(3 * time.Second)
		s.guard.Snapshot()
		trips := s.ended("breaker.trip")
		require.Len(t, trips, 2)
		assert.False(t, trips[1].Parent().IsValid())
		assert.NotContains(t, s.records()[2], "trace_id")
		assert.NotContains(t, s.records()[2], "span_id")
	})
}

func TestTransitionNames(t *testing.T) {
	for to, want := range map[breaker.State]struct{ span, level string }{
		breaker.Open:        {"breaker.trip", "WARN"},
		breaker.ForcedOpen:  {"breaker.trip", "WARN"},
		breaker.HalfOpen:    {"breaker.half_open", "INFO"},
		breaker.Closed:      {"breaker.close", "INFO"},
		breaker.Disabled:    {"breaker.close", "INFO"},
		breaker.MetricsOnly: {"breaker.close", "INFO"},
	} {
		t.Run(to.String(), func(t *testing.T) {
			s := newScene(t)
			hooks := metrics.New(
				metrics.WithTracerProvider(s.provider),
				metrics.WithLogger(slog.New(slog.NewJSONHandler(s.log, nil))))
			hooks.Transition(t.Context(), watertight.TransitionEvent{Transition: breaker.Transition{
				From: breaker.Closed, To: to, Cause: breaker.CauseForced, At: time.Now(),
			}})
			assert.Equal(t, to.String(), attributesOf(s.only(want.span))["watertight.breaker.to"])
			assert.Equal(t, want.level, s.records()[0]["level"])
		})
	}
}

// What a request carries may be a secret: logs show the keys of routes and hosts
// only, whatever other kinds there will be.
func TestLogShowsNoSecretKey(t *testing.T) {
	for per, shown := range map[policy.Per]bool{
		policy.PerDefault:  false,
		policy.PerPolicy:   false,
		policy.PerRoute:    true,
		policy.PerHost:     true,
		policy.PerHost + 1: false,
	} {
		t.Run(per.String(), func(t *testing.T) {
			var log bytes.Buffer
			hooks := metrics.New(metrics.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			hooks.Transition(t.Context(), watertight.TransitionEvent{
				Compartment: watertight.Compartment{Policy: "p", Per: per, Key: "the-key"},
				Transition:  breaker.Transition{From: breaker.Closed, To: breaker.Open, At: time.Now()},
			})
			require.Contains(t, log.String(), "policy=p")
			assert.Equal(t, shown, strings.Contains(log.String(), "the-key"))
		})
	}
}

// ctxHandler is a handler that takes something from the context.
type ctxHandler struct {
	slog.Handler
	seen *context.Context
}

func (h ctxHandler) Handle(ctx context.Context, r slog.Record) error {
	*h.seen = ctx
	return nil
}

func TestLogHasTheContextAndTheDefaultLogger(t *testing.T) {
	former := slog.Default()
	t.Cleanup(func() { slog.SetDefault(former) })
	hooks := metrics.New()
	var seen context.Context
	slog.SetDefault(slog.New(ctxHandler{slog.NewTextHandler(&bytes.Buffer{}, nil), &seen}))
	type key struct{}
	hooks.Transition(context.WithValue(t.Context(), key{}, "here"), watertight.TransitionEvent{
		Transition: breaker.Transition{From: breaker.Closed, To: breaker.Open, At: time.Now()},
	})
	require.NotNil(t, seen)
	assert.Equal(t, "here", seen.Value(key{}))
}

func TestLogLevel(t *testing.T) {
	var log bytes.Buffer
	hooks := metrics.New(metrics.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	for _, to := range []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed} {
		hooks.Transition(t.Context(), watertight.TransitionEvent{
			Transition: breaker.Transition{From: breaker.Closed, To: to, At: time.Now()},
		})
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	assert.Contains(t, log.String(), "breaker tripped")
}

func TestTracerThatPanicsDoesNotSilenceTheLog(t *testing.T) {
	s := newScene(t)
	faults := &faultyProvider{TracerProvider: s.provider}
	faults.inStart.Store(true)
	hooks := metrics.New(
		metrics.WithTracerProvider(faults),
		metrics.WithLogger(slog.New(slog.NewJSONHandler(s.log, nil))))
	assert.PanicsWithValue(t, "Start", func() {
		hooks.Transition(t.Context(), watertight.TransitionEvent{
			Transition: breaker.Transition{From: breaker.Closed, To: breaker.Open, At: time.Now()},
		})
	})
	assert.Len(t, s.records(), 1)
}
