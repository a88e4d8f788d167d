package agreement_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight"
)

// Each source is read into books of its own.

func ofSnapshot(s watertight.Snapshot) *books {
	b := newBooks()
	for _, c := range append(s.Compartments, s.Dropped...) {
		b.add(int(c.Granted), c.Policy, c.Side, "granted")
		for reason, n := range c.Rejected {
			b.add(int(n), c.Policy, c.Side, "rejected", reason)
		}
		for reason, n := range c.Observed {
			b.add(int(n), c.Policy, c.Side, "observed", reason)
		}
		b.add(int(c.Left), c.Policy, c.Side, "left")
		b.add(int(c.Leaked), c.Policy, c.Side, "leaked")
		b.add(int(c.Evicted), c.Policy, c.Side, "evicted")
		b.add(int(c.Trips), c.Policy, c.Side, "tripped")
		for _, w := range c.Waits {
			b.add(int(w.Count), c.Policy, c.Side, "waited")
		}
	}
	for _, t := range s.Transitions {
		b.add(1, t.Policy, t.Side, "transition", t.To, t.Cause)
	}
	b.add(int(s.Policies.Reloads), "policies", "all", "reload", "ok")
	b.add(int(s.Policies.Failed), "policies", "all", "reload", "failed")
	return b
}

func ofSpans(t *testing.T, spans []sdktrace.ReadOnlySpan) *books {
	b := newBooks()
	for _, s := range spans {
		attrs := map[string]string{}
		for _, kv := range s.Attributes() {
			attrs[strings.TrimPrefix(string(kv.Key), "watertight.")] = kv.Value.String()
		}
		name, side := attrs["policy"], attrs["side"]
		refusal := "rejected"
		if attrs["mode"] == "observe" {
			refusal = "observed"
		}
		switch s.Name() {
		case "bulkhead.grant":
			b.add(1, name, side, "granted")
			if attrs["leaked"] == "true" {
				b.add(1, name, side, "leaked")
			}
		case "bulkhead.wait":
			b.add(1, name, side, "waited", attrs["result"])
		case "bulkhead.reject":
			assert.NotEqual(t, "open", attrs["reason"])
			b.add(1, name, side, refusal, attrs["reason"])
		case "breaker.reject":
			assert.Equal(t, "open", attrs["reason"])
			b.add(1, name, side, refusal, attrs["reason"])
		case "breaker.trip", "breaker.half_open", "breaker.close":
			assert.Equal(t, map[string]string{"open": "breaker.trip", "half_open": "breaker.half_open", "closed": "breaker.close"}[attrs["breaker.to"]], s.Name())
			b.add(1, name, side, "transition", attrs["breaker.to"], attrs["breaker.cause"])
		default:
			assert.Fail(t, "a span of another name", s.Name())
		}
	}
	return b
}

// ofSeries adds what one series of a metric says; of a histogram that is how many values
// it has.
func (b *books) ofSeries(metric string, labels map[string]string, value float64) {
	n, name, side, result := int(value), labels["policy"], labels["side"], labels["result"]
	switch metric {
	case "calls":
		switch result {
		case "granted":
			b.add(n, name, side, "granted")
		case "canceled":
			b.add(n, name, side, "left")
		default:
			b.add(n, name, side, "rejected", result)
		}
	case "observed_calls":
		b.add(n, name, side, "observed", result)
	case "leaked":
		b.add(n, name, side, "leaked")
	case "evicted_compartments":
		b.add(n, name, side, "evicted")
	case "breaker.trips":
		b.add(n, name, side, "tripped")
	case "breaker.transitions":
		b.add(n, name, side, "transition", labels["breaker.to"], labels["breaker.cause"])
	case "bulkhead.wait_time":
		b.add(n, name, side, "waited")
	case "bulkhead.use_time":
		b.add(n, name, side, "used")
	case "policy.reloads":
		b.add(n, "policies", "all", "reload", result)
	}
}

func ofReader(t *testing.T, r *sdkmetric.ManualReader) *books {
	b := newBooks()
	var got metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &got))
	labelsOf := func(set attribute.Set) map[string]string {
		labels := map[string]string{}
		for _, kv := range set.ToSlice() {
			labels[strings.TrimPrefix(string(kv.Key), "watertight.")] = kv.Value.String()
		}
		return labels
	}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			name := strings.TrimPrefix(m.Name, "watertight.")
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					b.ofSeries(name, labelsOf(p.Attributes), float64(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					b.ofSeries(name, labelsOf(p.Attributes), float64(p.Count))
				}
			}
		}
	}
	return b
}

var (
	seriesText = regexp.MustCompile(`^watertight_([a-z_]+)\{(.*)\} ([0-9.e+]+)$`)
	labelText  = regexp.MustCompile(`([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"`)
)

// prometheusNames are what the metrics are called there.
var prometheusNames = map[string]string{
	"calls_total":                      "calls",
	"observed_calls_total":             "observed_calls",
	"leaked_total":                     "leaked",
	"evicted_compartments_total":       "evicted_compartments",
	"breaker_trips_total":              "breaker.trips",
	"breaker_transitions_total":        "breaker.transitions",
	"bulkhead_wait_time_seconds_count": "bulkhead.wait_time",
	"bulkhead_use_time_seconds_count":  "bulkhead.use_time",
	"policy_reloads_total":             "policy.reloads",
}

func ofPrometheus(t *testing.T, registry *prometheus.Registry) *books {
	b := newBooks()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	seen := map[string]bool{}
	for line := range strings.Lines(w.Body.String()) {
		series := seriesText.FindStringSubmatch(strings.TrimSpace(line))
		if series == nil {
			continue
		}
		labels := map[string]string{}
		for _, l := range labelText.FindAllStringSubmatch(series[2], -1) {
			name := strings.TrimPrefix(l[1], "watertight_")
			labels[strings.Replace(name, "breaker_", "breaker.", 1)] = l[2]
		}
		value, err := strconv.ParseFloat(series[3], 64)
		require.NoError(t, err, line)
		if name, ok := prometheusNames[series[1]]; ok {
			seen[series[1]] = true
			b.ofSeries(name, labels, value)
		}
	}
	assert.Len(t, seen, len(prometheusNames), "each metric is there")
	return b
}

// A logBook keeps records.
type logBook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *logBook) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// records tells for each text of a record what it counts, and for each of those that
// tell what was left out.
var records = map[string]string{
	"watertight: call refused":                                         "rejected",
	"watertight: more calls refused":                                   "rejected",
	"watertight: call would have been refused":                         "observed",
	"watertight: more calls would have been refused":                   "observed",
	"watertight: breaker tripped":                                      "transition open",
	"watertight: breaker tripped more often":                           "transition open",
	"watertight: breaker half-open":                                    "transition half_open",
	"watertight: breaker half-open more often":                         "transition half_open",
	"watertight: breaker closed":                                       "transition closed",
	"watertight: breaker closed more often":                            "transition closed",
	"watertight: limit changed":                                        "limit",
	"watertight: limit changed more often":                             "limit",
	"watertight: compartment dropped":                                  "evicted",
	"watertight: more compartments dropped":                            "evicted",
	"watertight: too many keys, new ones share a compartment":          "overflow began",
	"watertight: new keys have compartments of their own again":        "overflow ended",
	"watertight: too many keys more often":                             "overflow began",
	"watertight: new keys had compartments of their own more often":    "overflow ended",
	"watertight: policies reloaded":                                    "reload ok",
	"watertight: policies reloaded more often":                         "reload ok",
	"watertight: more new policies are not in force":                   "reload failed",
	"watertight: the new policies are not in force, those before stay": "reload failed",
	"watertight: more response bodies were dropped without Close":      "leaked",

	"watertight: a response body was dropped without Close; its permit was held until the garbage collector found it": "leaked",
}

// of reads the log. A record counts once, and one that tells of others as often as they
// were; the traces are those that records name.
func (b *logBook) read(t *testing.T) (counted *books, traces map[string]bool, lines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counted, traces = newBooks(), map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(b.out.Bytes())); dec.More(); lines++ {
		var r struct {
			Msg, Level, Policy, Side, Key, Reason string
			LeftOut                               int    `json:"left_out"`
			TraceID                               string `json:"trace_id"`
		}
		require.NoError(t, dec.Decode(&r))
		what, ok := records[r.Msg]
		require.True(t, ok, r.Msg)
		words := strings.Fields(what)
		if words[0] == "reload" {
			r.Policy, r.Side = "policies", "all"
		}
		if words[0] == "rejected" || words[0] == "observed" {
			words = append(words, r.Reason)
		}
		if r.Policy == "tenants" {
			require.Empty(t, r.Key)
		}
		if r.TraceID != "" {
			traces[r.TraceID] = true
		}
		counted.add(max(1, r.LeftOut), append([]string{r.Policy, r.Side}, words...)...)
	}
	return counted, traces, lines
}

// A watcher follows the events of the live page to their end.
type watcher struct {
	state map[string]json.RawMessage
	rows  map[string]json.RawMessage // by id
	order []string
	trans []json.RawMessage
	ended chan error
}

// watch begins to follow. It is back when the first event has come.
func watch(t *testing.T, url string) *watcher {
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	w := &watcher{ended: make(chan error, 1)}
	begun := make(chan struct{})
	go func() {
		defer resp.Body.Close()
		w.ended <- w.follow(bufio.NewReader(resp.Body), sync.OnceFunc(func() { close(begun) }))
	}()
	<-begun
	return w
}

func (w *watcher) follow(r *bufio.Reader, begun func()) error {
	defer begun()
	name := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		field, data, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case field == "event":
			name = data
		case field == "data" && name == "closed":
			return nil
		case field == "data":
			if err := w.apply(name, []byte(data)); err != nil {
				return err
			}
			begun()
		}
	}
}

func (w *watcher) apply(name string, data []byte) error {
	var change map[string]json.RawMessage
	if err := json.Unmarshal(data, &change); err != nil {
		return err
	}
	var rows, appended []json.RawMessage
	var order []string
	var forgotten int
	for field, into := range map[string]any{"compartments": &rows, "transitions": &appended, "order": &order, "forgotten": &forgotten} {
		if text, ok := change[field]; ok {
			if err := json.Unmarshal(text, into); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
			delete(change, field)
		}
	}
	if name == "snapshot" {
		w.state, w.rows, w.order, w.trans = map[string]json.RawMessage{}, map[string]json.RawMessage{}, nil, nil
	}
	for field, text := range change {
		w.state[field] = text
	}
	for _, row := range rows {
		var id struct{ ID string }
		if err := json.Unmarshal(row, &id); err != nil {
			return err
		}
		w.rows[id.ID] = row
		if name == "snapshot" {
			w.order = append(w.order, id.ID)
		}
	}
	if order != nil {
		w.order = order
	}
	w.trans = append(w.trans[forgotten:], appended...)
	return nil
}

// snapshot returns what the page shows.
func (w *watcher) snapshot(t *testing.T) watertight.Snapshot {
	rows := []json.RawMessage{}
	for _, id := range w.order {
		rows = append(rows, w.rows[id])
	}
	all := map[string]any{"compartments": rows, "transitions": w.trans}
	for field, text := range w.state {
		all[field] = cmp.Or(string(text), "null")
		all[field] = json.RawMessage(all[field].(string))
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	return decode(t, text)
}

func decode(t *testing.T, text []byte) (s watertight.Snapshot) {
	require.NoError(t, json.Unmarshal(text, &s))
	return s
}
