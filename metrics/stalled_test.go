package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
)

// What a backend does that has stopped to answer: it keeps whoever asks it until hang is
// closed. In a bubble no time passes meanwhile, unless somebody waits for that.

type hangingSpans struct{ hang chan struct{} }

func (e hangingSpans) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-e.hang
	return nil
}

func (e hangingSpans) Shutdown(context.Context) error { return nil }

type hangingMetrics struct {
	sdkmetric.Exporter
	hang  chan struct{}
	asked chan<- struct{}
}

func (e hangingMetrics) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(k)
}

func (e hangingMetrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (e hangingMetrics) Export(context.Context, *metricdata.ResourceMetrics) error {
	e.asked <- struct{}{}
	<-e.hang
	return nil
}

func (e hangingMetrics) ForceFlush(context.Context) error { return nil }
func (e hangingMetrics) Shutdown(context.Context) error   { return nil }

// hurried serves requests and checks that none had to wait, and that all were admitted.
func hurried(t *testing.T, g *watertight.Guard, requests int) {
	t.Helper()
	h := serverOf(g, nop)
	begun := time.Now()
	for range requests {
		require.Equal(t, http.StatusOK, serve(h, get(t.Context(), "/items/7")).StatusCode)
	}
	require.Zero(t, time.Since(begun), "somebody waited")
}

// Invariant 6: with the SDK's batches, nobody who ends a span waits for the backend,
// however many are queued for it.
func TestStalledSpanExporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(hangingSpans{hang},
			sdktrace.WithMaxQueueSize(8), sdktrace.WithMaxExportBatchSize(4)))
		g := newGuard(t, oneServerPermit, metrics.New(
			metrics.WithTracerProvider(p), metrics.WithLogger(slog.New(slog.DiscardHandler))))
		defer g.Close()
		hurried(t, g, 1000)
		close(hang)
		require.NoError(t, p.Shutdown(t.Context()))
	})
}

// The same for metrics, at whichever place those who collect them hang: in the export, or
// in a callback of somebody else, in the midst of a collection.
func TestStalledCollection(t *testing.T) {
	t.Run("in the export", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hang, asked := make(chan struct{}), make(chan struct{}, 10)
			p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
				sdkmetric.NewPeriodicReader(hangingMetrics{hang: hang, asked: asked}, sdkmetric.WithInterval(time.Second))))
			g := newGuard(t, oneServerPermit, metrics.New(metrics.WithMeterProvider(p), metrics.WithoutSpans()))
			<-asked
			hurried(t, g, 1000)
			close(hang)
			g.Close()
			require.NoError(t, p.Shutdown(t.Context()))
		})
	})
	t.Run("in a callback", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hang, asked := make(chan struct{}), make(chan struct{})
			reader := sdkmetric.NewManualReader()
			p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			_, err := p.Meter("program").Int64ObservableGauge("slow", metric.WithInt64Callback(
				func(context.Context, metric.Int64Observer) error {
					close(asked)
					<-hang
					return nil
				}))
			require.NoError(t, err)
			g := newGuard(t, oneServerPermit, metrics.New(metrics.WithMeterProvider(p), metrics.WithoutSpans()))
			var got metricdata.ResourceMetrics
			go func() { assert.NoError(t, reader.Collect(t.Context(), &got)) }()
			<-asked
			hurried(t, g, 1000)
			close(hang)
			synctest.Wait()
			g.Close()
		})
	})
}

// stuckProcessor keeps whoever ends a span, as an exporter does that was given to
// WithSyncer.
type stuckProcessor struct{ hang chan struct{} }

func (stuckProcessor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (p stuckProcessor) OnEnd(sdktrace.ReadOnlySpan)                   { <-p.hang }
func (stuckProcessor) Shutdown(context.Context) error                  { return nil }
func (stuckProcessor) ForceFlush(context.Context) error                { return nil }

// What is done on the goroutine of the call takes the call's time, but not its permit: the
// span of a grant ends when the permit is free.
func TestStuckSpanProcessorHoldsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		g := newGuard(t, oneServerPermit, metrics.New(
			metrics.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(stuckProcessor{stuck}))),
			metrics.WithLogger(slog.New(slog.DiscardHandler))))
		served := 0
		h := serverOf(g, func(http.ResponseWriter, *http.Request) { served++ })
		for n := range 10 {
			go serve(h, get(t.Context(), "/items/7"))
			synctest.Wait()
			require.Equal(t, n+1, served, "the only permit is held by a call that has ended")
		}
		close(stuck)
		synctest.Wait()
	})
}

// stuckLog keeps whoever writes to it.
type stuckLog struct {
	slog.Handler
	hang chan struct{}
}

func (l stuckLog) Enabled(context.Context, slog.Level) bool  { return true }
func (l stuckLog) Handle(context.Context, slog.Record) error { <-l.hang; return nil }
func (l stuckLog) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l stuckLog) WithGroup(string) slog.Handler             { return l }

// A log that hangs keeps the call that has something to say, and nobody else: the others
// are let in or turned away as ever.
func TestStuckLogKeepsOnlyWhoWritesToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		g := newGuard(t, `
version: 1
policies:
  - {name: fragile, side: server, match: [{path: "/items/{id}", method: [POST]}], bulkhead: {maxConcurrent: 10}, breaker: {minCalls: 2, openFor: 1h}}
  - {name: all, side: server, bulkhead: {maxConcurrent: 10}}
`, metrics.New(metrics.WithLogger(slog.New(stuckLog{hang: stuck}))))
		mux := http.NewServeMux()
		mux.HandleFunc("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		h := middleware.New(g)(mux)
		post := func() *http.Request {
			return httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/items/7", nil)
		}
		require.Equal(t, http.StatusInternalServerError, serve(h, post()).StatusCode)
		go serve(h, post()) // trips the breaker, and has to tell so
		synctest.Wait()
		go serve(h, post()) // refused, and has to tell so
		synctest.Wait()

		begun := time.Now()
		for range 100 {
			require.Equal(t, http.StatusServiceUnavailable, serve(h, post()).StatusCode)
		}
		hurried(t, g, 100)
		require.Zero(t, time.Since(begun))
		close(stuck)
		synctest.Wait()
		g.Close()
	})
}
