package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
)

// faultyMeters has instruments that panic whenever something is recorded; with noMeter
// it has not even these.
type faultyMeters struct {
	noop.MeterProvider
	noMeter bool
}

func (p faultyMeters) Meter(string, ...metric.MeterOption) metric.Meter {
	if p.noMeter {
		panic("Meter")
	}
	return faultyMeter{}
}

type faultyMeter struct{ noop.Meter }

func (faultyMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return faultyHistogram{}, nil
}

func (faultyMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return faultyCounter{}, nil
}

type faultyHistogram struct{ noop.Float64Histogram }

func (faultyHistogram) Record(context.Context, float64, ...metric.RecordOption) { panic("Record") }

func (faultyHistogram) Enabled(context.Context) bool { return true }

type faultyCounter struct{ noop.Int64Counter }

func (faultyCounter) Add(context.Context, int64, ...metric.AddOption) { panic("Add") }

// Metrics that fail take no span with them: each is there, and has ended.
func TestFaultyMetersLeaveTheSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "version: 1\npolicies: []\n")
		g := newGuard(t, `
version: 1
policies:
  - name: all
    side: server
    bulkhead: {maxConcurrent: 1, maxWait: 1s}
    breaker: {minCalls: 2, openFor: 1h}
`, metrics.New(
			metrics.WithTracerProvider(r.provider),
			metrics.WithMeterProvider(faultyMeters{}),
			metrics.WithLogger(slog.New(slog.DiscardHandler))))
		release := make(chan struct{})
		h := serverOf(g, func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusInternalServerError)
		})
		for range 2 {
			go serve(h, get(t.Context(), "/items/7"))
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		assert.Len(t, r.ended("bulkhead.wait"), 1)
		assert.Len(t, r.ended("bulkhead.grant"), 2)
		assert.Len(t, r.ended("breaker.trip"), 1)
	})
}

// A MeterProvider that panics is reported as what it is, and keeps no Guard from
// anything.
func TestMetersThatPanicAreReportedAsSuch(t *testing.T) {
	hooks := metrics.New(metrics.WithMeterProvider(faultyMeters{noMeter: true}), metrics.WithoutSpans())
	var log strings.Builder
	for range 2 {
		g := watertight.New(nil, watertight.WithHooks(hooks), watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		g.Close()
	}
	assert.Contains(t, log.String(), "panic=Meter")
	assert.NotContains(t, log.String(), "nil pointer")
}
