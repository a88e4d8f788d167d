// Package telemetry gives the example programs their tracer provider: spans go
// to a collector over OTLP/HTTP, or to memory.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

// Config says where the spans of a program go.
type Config struct {
	// Service is the service.name that the spans carry.
	Service string
	// OTLP is the URL of a collector, such as http://127.0.0.1:4318. Without a
	// path it stands for /v1/traces. Empty: spans are kept in memory.
	OTLP string
	// Store receives the spans if OTLP is empty, so that the parts of one
	// process can share it. nil: a new one.
	Store *tracestore.Store
	// Logger hears when the collector cannot be reached, and when it can
	// again. nil: nobody does.
	Logger *slog.Logger
}

// Telemetry is a tracer provider and what belongs to it. Call Shutdown when no
// more spans come.
type Telemetry struct {
	provider *sdktrace.TracerProvider
	store    *tracestore.Store
}

// New starts what cfg asks for. It fails if the URL is wrong, not if nobody
// listens there: a program must not depend on its collector.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", cfg.Service))),
		sdktrace.WithRawSpanLimits(limits),
	}
	t := &Telemetry{}
	if cfg.OTLP == "" {
		t.store = cfg.Store
		if t.store == nil {
			t.store = NewStore()
		}
		opts = append(opts, sdktrace.WithSpanProcessor(t.store))
	} else {
		endpoint, err := ParseOTLP(cfg.OTLP)
		if err != nil {
			return nil, err
		}
		exp, err := otlptracehttp.New(ctx,
			otlptracehttp.WithEndpointURL(endpoint),
			otlptracehttp.WithTimeout(exportTimeout))
		if err != nil {
			return nil, fmt.Errorf("collector at %s: %w", endpoint, err)
		}
		opts = append(opts, sdktrace.WithBatcher(&reporting{SpanExporter: exp, endpoint: endpoint, log: cfg.Logger},
			sdktrace.WithMaxQueueSize(queueSize),
			sdktrace.WithMaxExportBatchSize(batchSize),
			sdktrace.WithBatchTimeout(batchDelay),
			sdktrace.WithExportTimeout(exportTimeout)))
	}
	t.provider = sdktrace.NewTracerProvider(opts...)
	return t, nil
}

// The queue is what a collector that is slow or away can cost in memory; beyond
// it spans are dropped, never waited for.
const (
	queueSize     = 16384
	batchSize     = 2048
	batchDelay    = time.Second
	exportTimeout = 5 * time.Second
)

// limits keep a span small whatever a caller sends: otelhttp records paths and
// user agents as they come.
var limits = sdktrace.SpanLimits{
	AttributeValueLengthLimit:   256,
	AttributeValueDepthLimit:    4,
	AttributeCountLimit:         64,
	EventCountLimit:             16,
	LinkCountLimit:              16,
	AttributePerEventCountLimit: 16,
	AttributePerLinkCountLimit:  16,
}

// NewStore returns a store in which the traces that watertight has a hand in
// are not pushed out by the rest.
func NewStore() *tracestore.Store {
	return tracestore.New(tracestore.Config{Notable: []string{
		"bulkhead.wait",
		"bulkhead.reject",
		"breaker.reject",
		"breaker.half_open",
		"breaker.close",
		"breaker.trip",
	}})
}

// ParseOTLP checks the URL of a collector and returns it in full.
func ParseOTLP(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("want a URL such as http://127.0.0.1:4318")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("the URL must have no user, query or fragment")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// Provider returns the tracer provider.
func (t *Telemetry) Provider() trace.TracerProvider { return t.provider }

// Store returns where the spans are kept; nil if they go to a collector.
func (t *Telemetry) Store() *tracestore.Store { return t.store }

// Shutdown sends what is queued, until ctx ends, and stops. What could not be
// sent is no error: it is logged.
func (t *Telemetry) Shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Propagator returns the W3C propagator, by which both example programs follow
// a trace across the wire.
func Propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}
