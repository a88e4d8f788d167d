package metrics_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
)

const observing = `
version: 1
policies:
  - name: trial
    side: server
    per: policy
    mode: observe
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}
    breaker: {minCalls: 2, openFor: 5s}
`

// What would have been refused has the span of a refusal, but is no error.
func TestObservedRejectSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, observing)
		ctx, caller := r.begin(t.Context(), "caller")
		depth, inner := 0, http.Handler(nil)
		h := r.server(func(w http.ResponseWriter, req *http.Request) {
			if depth++; depth < 3 {
				serve(inner, get(ctx, "/items/7")) // one inside the other: granted, queued, full
			} else {
				time.Sleep(2 * time.Second)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		inner = h
		serve(h, get(ctx, "/items/7"))

		var rejects []attrs
		for _, s := range r.recorder.Ended() {
			if s.Name() == "bulkhead.reject" {
				requireParent(t, caller, s)
				assert.Equal(t, sdktrace.Status{}, s.Status())
				rejects = append(rejects, attributesOf(s))
			}
		}
		reject := func(reason string, queued int64) attrs {
			return attrs{
				"watertight.policy": "trial", "watertight.side": "server", "watertight.key": "", "watertight.reason": reason, "watertight.mode": "observe",
				"watertight.limit": int64(1), "watertight.in_flight": int64(1), "watertight.queued": queued, "watertight.retry_after_ms": 1000.0,
			}
		}
		assert.Equal(t, []attrs{reject("full", 1), reject("wait_timeout", 0)}, rejects)
		assert.Equal(t, "observe", attributesOf(r.only("breaker.trip"))["watertight.mode"])

		depth = 3
		serve(h, get(ctx, "/items/7"))
		open := r.only("breaker.reject")
		assert.Equal(t, sdktrace.Status{}, open.Status())
		assert.Equal(t, "observe", attributesOf(open)["watertight.mode"])
		assert.NotContains(t, attributesOf(open), "error.type")
	})
}

func TestObservedTripsAreLoggedAsSuch(t *testing.T) {
	var log bytes.Buffer
	g := newGuard(t, observing, metrics.New(metrics.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
	h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	for range 2 {
		serve(h, get(t.Context(), "/"))
	}
	assert.Contains(t, log.String(), "breaker tripped")
	assert.Contains(t, log.String(), "mode=observe")
}

func TestMetricOfObservedCalls(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	g := newGuard(t, observing, metrics.New(metrics.WithMeterProvider(provider)))
	h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	for range 5 {
		serve(h, get(t.Context(), "/"))
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "watertight.observed_calls" {
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					result, _ := p.Attributes.Value("watertight.result")
					counts[result.AsString()] = p.Value
				}
			}
		}
	}
	assert.Equal(t, map[string]int64{"full": 0, "wait_timeout": 0, "open": 3}, counts)
}
