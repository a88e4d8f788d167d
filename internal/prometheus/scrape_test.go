package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientprometheus "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A scraped is a Guard whose metrics come out of OpenTelemetry's exporter.
type scraped struct {
	*watertight.Guard
	t       *testing.T
	handler http.Handler
}

func newScraped(t *testing.T, policies string, opts ...sdkmetric.Option) *scraped {
	t.Helper()
	registry := clientprometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(append(opts, sdkmetric.WithReader(exporter))...)
	g := watertight.New(parse(t, policies),
		watertight.WithLogger(slog.New(slog.DiscardHandler)),
		watertight.WithHooks(metrics.New(metrics.WithMeterProvider(provider), metrics.WithoutSpans(), metrics.WithLogger(slog.New(slog.DiscardHandler)))))
	t.Cleanup(g.Close)
	return &scraped{Guard: g, t: t, handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
}

func parse(t *testing.T, policies string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(policies))
	require.NoError(t, err)
	return set
}

// text returns what Prometheus would get.
func (s *scraped) text() string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

var scope = regexp.MustCompile(`otel_scope_[a-z_]+="[^"]*",?`)

// series returns the series by name, without the scope's labels.
func (s *scraped) series() map[string]float64 {
	s.t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(s.text()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		require.NoError(s.t, err, line)
		name := strings.ReplaceAll(scope.ReplaceAllString(line[:at], ""), "watertight_", "")
		_, twice := all[name]
		require.False(s.t, twice, "%s is there twice", name)
		all[name] = value
	}
	return all
}

// admit lets a call in, and a release of it is not the caller's to forget.
func (s *scraped) admit(req policy.Request) *watertight.Call {
	s.t.Helper()
	c, err := s.Admit(s.t.Context(), &req)
	require.NoError(s.t, err)
	return &c
}

func toHost(name string) policy.Request {
	return policy.Request{Side: policy.Client, Scheme: "http", Host: name}
}

const everything = `
version: 1
defaults: {maxCompartments: 3}
policies:
  - name: tenants
    side: server
    per: header:X-Key
    match: [{path: "/tenants/{id}"}]
    bulkhead: {maxConcurrent: 5}
    breaker: {minCalls: 1}
  - name: observed
    side: server
    mode: observe
    match: [{path: /observed}]
    bulkhead: {maxConcurrent: 1}
  - name: routes
    side: server
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1h}
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 2}
    breaker: {minCalls: 2, slowCall: 1s}
`

// metricsOfEverything has every metric in it that there is.
func metricsOfEverything(t *testing.T, opts ...sdkmetric.Option) *scraped {
	t.Helper()
	s := newScraped(t, everything, opts...)
	for i, key := range []string{"s3cret-1", "s3cret-2", "s3cret-3", "s3cret-4"} {
		c := s.admit(policy.Request{Side: policy.Server, EscapedPath: "/tenants/1", Header: http.Header{"X-Key": {key}}})
		c.SettleStatus(200 + 300*(i%2))
		c.Release()
	}
	for range 2 {
		defer s.admit(policy.Request{Side: policy.Server, EscapedPath: "/observed"}).Release()
	}
	route := policy.Request{Side: policy.Server, EscapedPath: "/a/1", Route: "/a/{id}", RouteKnown: true}
	first := s.admit(route)
	second := make(chan *watertight.Call)
	go func() {
		c, err := s.Admit(t.Context(), &route)
		assert.NoError(t, err)
		second <- &c
	}()
	require.Eventually(t, func() bool {
		return s.series()[`bulkhead_pending_requests{key="/a/{id}",policy="routes",side="server"}`] == 1
	}, patience, poll)
	_, err := s.Admit(t.Context(), &route)
	require.ErrorIs(t, err, bulkhead.ErrFull)
	first.Release()
	(<-second).Release()
	for _, status := range []int{200, 200, 500, 500} {
		c := s.admit(toHost("a"))
		c.SettleStatus(status)
		c.Release()
	}
	pool, err := s.Pool("jobs", bulkhead.PoolConfig{Core: 1, Max: 2, Backlog: 1})
	require.NoError(t, err)
	require.NoError(t, pool.Do(t.Context(), func(context.Context) error { return nil }))
	c := s.admit(toHost("b"))
	c.SettleStatus(500)
	c.Release()
	c = s.admit(toHost("b"))
	c.SettleStatus(500) // opens it
	c.Release()
	s.ReloadFailed(errors.New("bad"))
	return s
}

func TestMetricsAreWellMade(t *testing.T) {
	s := metricsOfEverything(t)
	text := s.text()
	out, status := promtool(t, text, "check", "metrics")
	assert.Zero(t, status)
	assert.Empty(t, out)
	assert.NotContains(t, text, "s3cret", "keys that come from a header may be secrets")

	got := s.series()
	for name, want := range map[string]float64{
		`bulkhead_limit{policy="tenants",side="server"}`:                             15, // three tenants
		`bulkhead_wait_time_seconds_count{policy="routes",side="server"}`:            1,
		`bulkhead_use_time_seconds_count{policy="hosts",side="client"}`:              6,
		`calls_total{key="/a/{id}",policy="routes",result="full",side="server"}`:     1,
		`calls_total{policy="tenants",result="granted",side="server"}`:               4, // the evicted one's too
		`breaker_trips_total{policy="tenants",side="server"}`:                        2,
		`breaker_state{key="http://b:80",policy="hosts",side="client",state="open"}`: 1,
		`breaker_failure_rate_ratio{key="http://a:80",policy="hosts",side="client"}`: 0.5,
		`evicted_compartments_total{policy="tenants",side="server"}`:                 1,
		`policy_reload_failing{}`: 1,
	} {
		assert.Contains(t, got, name)
		assert.Equal(t, want, got[name], name)
	}
}

// The bounds of the histograms tell waits from a millisecond to half a minute apart.
func TestBucketsSuitWaits(t *testing.T) {
	text := metricsOfEverything(t).text()
	for _, metric := range []string{"watertight_bulkhead_wait_time_seconds", "watertight_bulkhead_use_time_seconds"} {
		var bounds []float64
		for _, m := range regexp.MustCompile(metric+`_bucket\{[^}]*policy="routes"[^}]*le="([^"]+)"\}`).FindAllStringSubmatch(text, -1) {
			bound, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			bounds = append(bounds, bound)
		}
		require.True(t, slices.IsSorted(bounds), "%v", bounds)
		for i, wait := range []float64{0.001, 0.01, 0.1, 1, 10, 30} {
			assert.Contains(t, bounds, wait, "%s, %d", metric, i)
		}
		for i := 1; i < len(bounds)-1; i++ { // the last is infinite
			assert.LessOrEqual(t, bounds[i]/bounds[i-1], 3.0, "%s: %v to %v is too wide to tell much", metric, bounds[i-1], bounds[i])
		}
	}
}

// However a compartment goes, so do its series.
func TestSeriesGoWithTheirCompartment(t *testing.T) {
	const file = "version: 1\ndefaults: {maxCompartments: 2, idle: %s}\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}, breaker: {}}]\n"
	keys := func(s *scraped) (found []string) {
		for name := range s.series() {
			if m := regexp.MustCompile(`\{key="http://(.+):80"`).FindStringSubmatch(name); m != nil && !slices.Contains(found, m[1]) {
				found = append(found, m[1])
			}
		}
		slices.Sort(found)
		return found
	}
	t.Run("evicted", func(t *testing.T) {
		s := newScraped(t, fmt.Sprintf(file, "1h"))
		for _, host := range []string{"a", "b", "c"} {
			s.admit(toHost(host)).Release()
		}
		assert.Equal(t, []string{"b", "c"}, keys(s))
	})
	t.Run("idle", func(t *testing.T) {
		s := newScraped(t, fmt.Sprintf(file, "1ns"))
		for _, host := range []string{"a", "b"} {
			s.admit(toHost(host)).Release()
		}
		assert.Equal(t, []string{"b"}, keys(s))
	})
	t.Run("reloaded away", func(t *testing.T) {
		s := newScraped(t, fmt.Sprintf(file, "1h"))
		s.admit(toHost("a")).Release()
		inside := s.admit(toHost("b"))
		s.Reload(parse(t, "version: 1\npolicies: []\n"))
		assert.Equal(t, []string{"a", "b"}, keys(s), "a call is still inside, and a policy goes as a whole")
		inside.Release()
		assert.Empty(t, keys(s))
	})
	t.Run("closed", func(t *testing.T) {
		s := newScraped(t, fmt.Sprintf(file, "1h"))
		s.admit(toHost("a")).Release()
		s.Close()
		assert.Empty(t, keys(s))
	})
}

// Calls come and go, keys are evicted and return, policies are swapped: what a counter
// shows falls only when it begins anew, and then it counts what came since.
func TestCountersCountUp(t *testing.T) {
	s := newScraped(t, everything)
	files := []string{everything, strings.Replace(everything, "header:X-Key", "header:X-Other", 1), strings.Replace(everything, "name: hosts", "name: others", 1)}
	began := map[string]int{} // how often
	before := map[string]float64{}
	for i := range 200 {
		key := fmt.Sprint("k", i%7)
		s.admit(policy.Request{Side: policy.Server, EscapedPath: "/tenants/1", Header: http.Header{"X-Key": {key}, "X-Other": {key}}}).Release()
		s.admit(toHost(key)).Release()
		if i%50 == 49 {
			s.Reload(parse(t, files[(i/50)%len(files)]))
		}
		got := s.series()
		for name, value := range got {
			if !strings.Contains(name, "_total{") || value >= before[name] {
				continue
			}
			began[name]++
			assert.LessOrEqual(t, value, 1.0, "%s fell from %v: more than came since", name, before[name])
		}
		before = got
	}
	assert.LessOrEqual(t, began[`calls_total{policy="tenants",result="granted",side="server"}`], 4, "only with the reloads")
}

// More compartments than the SDK keeps apart by default, where that is taken back.
func TestManyCompartments(t *testing.T) {
	s := newScraped(t, "version: 1\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}, breaker: {}}]\n", sdkmetric.WithCardinalityLimit(0))
	for i := range 400 {
		s.admit(toHost(fmt.Sprint("h", i))).Release()
	}
	n := 0
	for name := range s.series() {
		assert.NotContains(t, name, "otel_metric_overflow")
		if strings.HasPrefix(name, "breaker_state{") && strings.Contains(name, `state="closed"`) {
			n++
		}
	}
	assert.Equal(t, 400, n)
}

// A body that nobody closes is counted where the permit was.
func TestLeakedBodyIsCounted(t *testing.T) {
	s := newScraped(t, "version: 1\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}}]\n")
	client := &http.Client{Transport: transport.New(forgetful{}, s.Guard)}
	func() {
		resp, err := client.Get("http://a/") //nolint:bodyclose // that is the fault
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}()
	const leaked = `leaked_total{key="http://a:80",policy="p",side="client"}`
	require.Contains(t, s.series(), leaked)
	require.Eventually(t, func() bool {
		runtime.GC()
		return s.series()[leaked] == 1
	}, patience, poll)
}

// forgetful answers with a body that has to be closed.
type forgetful struct{}

func (forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body")), ContentLength: -1, Request: r}, nil
}
