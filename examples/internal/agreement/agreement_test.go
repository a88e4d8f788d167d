package agreement_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
	"github.com/watertight-go/watertight/metrics"
)

// Everything that tells of an incident tells the same, exactly, and what its callers and
// handlers have counted. Where the sources differ by design, it is said here how.
func TestAllSourcesAgree(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	reader := sdkmetric.NewManualReader()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	var log logBook
	wt := watertight.New(parse(t, 4),
		watertight.WithLogger(log.logger()),
		watertight.WithHooks(metrics.New(
			metrics.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
			metrics.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithReader(exporter))),
			metrics.WithLogger(log.logger()))))
	page := httptest.NewServer(dashboard.Handler(wt, dashboard.WithInterval(1)))
	defer page.Close()
	defer page.CloseClientConnections() // also when the watcher is still there
	watching := watch(t, page.URL+"/events")

	in := newIncident(t, wt)
	in.run()
	// A leak is told on a goroutine of its own, the log at last.
	in.until("all leaks are told", func() bool {
		var told int
		for _, s := range spans.Ended() {
			if s.Name() == "bulkhead.grant" && ofSpans(t, []sdktrace.ReadOnlySpan{s}).lines["drops client leaked"] > 0 {
				told++
			}
		}
		return told == 5 && log.has("dropped without Close")
	})
	want := in.books
	for _, line := range []string{
		"storm server granted", "storm server rejected full", "payments client granted", "payments client rejected full",
		"broken server rejected open", "broken client rejected open", "hasty server rejected wait_timeout",
		"orderly server rejected draining", "(unmatched) server rejected draining", "patient client left", "works client left",
	} {
		require.NotZero(t, want.lines[line], line)
	}

	calls := []string{"granted", "rejected", "observed", "left", "leaked"}
	snapshot := func(s watertight.Snapshot, from string) {
		got := ofSnapshot(s)
		assert.Equal(t, want.of(append(calls, "evicted", "transition", "reload")...), got.of(append(calls, "evicted", "transition", "reload")...), from)
		assert.Equal(t, merged(want.of("waited")), got.of("waited"), from)
		assert.Equal(t, trips(want), got.of("tripped"), from)
	}
	snapshot(wt.Snapshot(), "the snapshot")
	snapshot(get(t, page.URL+"/snapshot.json"), "the page's JSON")

	// No span tells of a call that left before it was admitted, but by its wait; of what
	// has no permit: calls that only a breaker watches, or that nothing limits; nor of
	// reloads and tables, which are no calls.
	got := ofSpans(t, spans.Ended())
	withPermit := func(lines map[string]int) map[string]int {
		maps.DeleteFunc(lines, func(line string, _ int) bool {
			for _, without := range []string{"fragile server", "shadow server", "health server", "(unmatched) server"} {
				if line == without+" granted" {
					return true
				}
			}
			return false
		})
		return lines
	}
	assert.Equal(t, withPermit(want.of("granted", "rejected", "observed", "leaked", "waited", "transition")),
		got.of("granted", "rejected", "observed", "leaked", "waited", "transition"), "spans")
	assert.Equal(t, map[string]int{"orderly server waited canceled": 6, "patient client waited canceled": 4, "works client waited canceled": 2},
		only(got.of("waited"), "canceled"), "all who left were in a queue")

	// Metrics have all calls, and how long permits were in use.
	metric := func(got *books, from string) {
		kinds := append(calls, "evicted", "transition", "reload")
		assert.Equal(t, want.of(kinds...), got.of(kinds...), from)
		assert.Equal(t, merged(want.of("waited")), got.of("waited"), from)
		assert.Equal(t, trips(want), got.of("tripped"), from)
		used := map[string]int{}
		for line, n := range withPermit(want.of("granted")) {
			used[strings.Replace(line, "granted", "used", 1)] = n
		}
		assert.Equal(t, used, got.of("used"), from)
	}
	metric(ofReader(t, reader), "metrics")
	metric(ofPrometheus(t, registry), "Prometheus")

	// The log leaves out what is no news, by design: grants, waits and who left. What it
	// left out because there was too much of it is told at the latest when the Guard
	// closes.
	wt.Close()
	written, traces, lines := log.read(t)
	kinds := []string{"rejected", "observed", "leaked", "reload", "evicted", "limit", "overflow"}
	assert.Equal(t, want.of(kinds...), written.of(kinds...), "the log")
	transitions := map[string]int{}
	for line, n := range want.of("transition") {
		transitions[strings.Join(strings.Fields(line)[:4], " ")] += n
	}
	assert.Equal(t, transitions, written.of("transition"), "the log")
	assert.Less(t, lines, 100, "a storm is not a storm in the log")
	recorded := map[string]bool{}
	for _, s := range spans.Ended() {
		recorded[s.SpanContext().TraceID().String()] = true
	}
	for trace := range traces {
		assert.Contains(t, recorded, trace)
	}

	// Whoever has watched from the beginning sees the end.
	require.NoError(t, <-watching.ended)
	snapshot(watching.snapshot(t), "the page's events")
}

// trips returns how often breakers opened, by what the books say of their transitions.
func trips(b *books) map[string]int {
	tripped := map[string]int{}
	for line, n := range b.of("transition") {
		if w := strings.Fields(line); w[3] == "open" {
			tripped[w[0]+" "+w[1]+" tripped"] += n
		}
	}
	return tripped
}

func only(lines map[string]int, word string) map[string]int {
	maps.DeleteFunc(lines, func(line string, _ int) bool { return !strings.HasSuffix(line, " "+word) })
	return lines
}

func get(t *testing.T, url string) watertight.Snapshot {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return decode(t, text)
}

func (b *logBook) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.out.String(), text)
}

// docs/logs.md has each text, so that whoever sees one finds what it means.
func TestDocsHaveEachRecord(t *testing.T) {
	text, err := os.ReadFile("../../../docs/logs.md")
	require.NoError(t, err)
	for record := range records {
		record, _, _ = strings.Cut(strings.TrimPrefix(record, "watertight: "), ";")
		assert.Contains(t, string(text), "`"+record)
	}
}
