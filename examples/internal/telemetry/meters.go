package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Meters is a meter provider whose metrics Prometheus can scrape. Nothing runs between
// two scrapes; call Shutdown when there are no more.
//
// A program of one's own does the same with prometheus.New() alone, which registers
// with Prometheus's default registry, and serves promhttp.Handler(); docs/observe.md
// has it in full.
type Meters struct {
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
	log      *slog.Logger
}

// NewMeters returns the meters of a service. What goes wrong with a scrape is logged. nil:
// nobody hears of it.
func NewMeters(service string, log *slog.Logger) (*Meters, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// A registry of its own: several servers may run in one process.
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("exporter for Prometheus: %w", err)
	}
	return &Meters{
		provider: sdkmetric.NewMeterProvider(
			sdkmetric.WithReader(exporter),
			// The compartments are bounded already. By default the SDK would add the
			// series of all but the first 2000 up, and six of watertight.breaker.state
			// for each host get there with 334 hosts.
			sdkmetric.WithCardinalityLimit(0),
			sdkmetric.WithResource(resource.NewSchemaless(attribute.String("service.name", service)))),
		registry: registry,
		log:      log,
	}, nil
}

// Provider returns the meter provider.
func (m *Meters) Provider() metric.MeterProvider { return m.provider }

// Handler returns what Prometheus scrapes. It reads everything anew for each request.
func (m *Meters) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
		// Scrapes overlap only if somebody does not read theirs.
		MaxRequestsInFlight: 4,
	})
}

// Shutdown stops. Handler serves nothing of the provider afterwards.
func (m *Meters) Shutdown(ctx context.Context) error { return m.provider.Shutdown(ctx) }
