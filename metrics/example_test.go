package metrics_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A request that is admitted, and another that arrives meanwhile and finds no
// permit.
func ExampleNew() {
	// In a program an exporter stands here, and otel.SetTracerProvider makes
	// the option superfluous.
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{
		{Name: "reports", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}},
	}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(policies, watertight.WithHooks(metrics.New(metrics.WithTracerProvider(provider))))

	var server http.Handler
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "1" {
			server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/reports/2", nil))
		}
	})
	server = middleware.New(wt)(mux)
	server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/reports/1", nil))

	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), s.Status().Code)
		for _, a := range s.Attributes() {
			fmt.Printf("  %s=%s\n", a.Key, a.Value.String())
		}
	}
	// Output:
	// bulkhead.reject Error
	//   watertight.policy=reports
	//   watertight.side=server
	//   watertight.key=GET /reports/{id}
	//   watertight.reason=full
	//   error.type=full
	//   watertight.limit=1
	//   watertight.in_flight=1
	//   watertight.queued=0
	//   watertight.retry_after_ms=1000
	// bulkhead.grant Unset
	//   watertight.policy=reports
	//   watertight.side=server
	//   watertight.key=GET /reports/{id}
	//   watertight.limit=1
	//   watertight.in_flight=1
	//   watertight.waited_ms=0
}

// The spans of one Guard apart from those of the rest of the program.
func ExampleWithTracerProvider() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	hooks := metrics.New(metrics.WithTracerProvider(provider))

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{
		{Name: "hosts", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}},
	}})
	if err != nil {
		panic(err)
	}
	base := baseFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	})
	client := &http.Client{Transport: transport.New(base, watertight.New(policies, watertight.WithHooks(hooks)))}
	resp, err := client.Get("http://payments.internal/")
	if err != nil {
		panic(err)
	}
	resp.Body.Close()

	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, "by", s.InstrumentationScope.Name)
	}
	// Output: bulkhead.grant by github.com/watertight-go/watertight/metrics
}

// The log of an upstream that refuses connections.
func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "retry_after_ms" { // never the same
				return slog.Attr{}
			}
			return a
		},
	}))
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{
		{Name: "payments", Breaker: &policy.Breaker{MinCalls: 2}},
	}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(policies, watertight.WithHooks(metrics.New(metrics.WithLogger(logger))))

	refused := baseFunc(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("connection refused")
	})
	client := &http.Client{Transport: transport.New(refused, wt)}
	for range 3 {
		_, err := client.Get("https://payments.internal/")
		fmt.Println("refused by the breaker:", errors.Is(err, breaker.ErrOpen))
	}
	// Output:
	// refused by the breaker: false
	// level=WARN msg="watertight: breaker tripped" policy=payments side=client key=https://payments.internal:443 from=closed to=open cause=failure_rate failure_rate=100 slow_call_rate=0 calls=2 open_for_ms=30000
	// refused by the breaker: false
	// level=WARN msg="watertight: call refused" policy=payments side=client key=https://payments.internal:443 reason=open state=open
	// refused by the breaker: true
}

// The caller's trace goes on, although nothing but the Guard reads its headers.
func ExampleWithPropagators() {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	hooks := metrics.New(
		metrics.WithTracerProvider(provider),
		metrics.WithPropagators(propagation.TraceContext{}))
	policies, err := policy.New(policy.Config{Policies: []policy.Policy{
		{Name: "all", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}},
	}})
	if err != nil {
		panic(err)
	}
	server := middleware.New(watertight.New(policies, watertight.WithHooks(hooks)))(http.NotFoundHandler())

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	server.ServeHTTP(httptest.NewRecorder(), r)

	grant := spans.Ended()[0]
	fmt.Println(grant.Name(), "in", grant.SpanContext().TraceID(), "under", grant.Parent().SpanID())
	// Output: bulkhead.grant in 0af7651916cd43dd8448eb211c80319c under b7ad6b7169203331
}
