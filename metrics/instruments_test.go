package metrics_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// meters is a Guard whose metrics can be read.
type meters struct {
	t      testing.TB
	reader *sdkmetric.ManualReader
	guard  *watertight.Guard
}

func newMeters(t testing.TB, policies string) *meters {
	m := &meters{t: t, reader: sdkmetric.NewManualReader()}
	m.guard = newGuard(t, policies, metrics.New(
		metrics.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))),
		metrics.WithoutSpans(),
		metrics.WithLogger(slog.New(slog.DiscardHandler))))
	return m
}

// read returns every series as NAME{ATTRIBUTE=VALUE,...}, with its value; of a
// histogram the count.
func (m *meters) read() map[string]float64 {
	m.t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(m.t, m.reader.Collect(m.t.Context(), &got))
	series := map[string]float64{}
	add := func(name string, set attribute.Set, value float64) {
		var text []string
		for _, kv := range set.ToSlice() {
			text = append(text, strings.TrimPrefix(string(kv.Key), "watertight.")+"="+kv.Value.String())
		}
		series[strings.TrimPrefix(name, "watertight.")+"{"+strings.Join(text, ",")+"}"] = value
	}
	for _, scope := range got.ScopeMetrics {
		require.Equal(m.t, metrics.ScopeName, scope.Scope.Name)
		for _, one := range scope.Metrics {
			require.NotEmpty(m.t, one.Description, one.Name)
			switch data := one.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(one.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(one.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(one.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(one.Name, p.Attributes, float64(p.Count))
					add(one.Name+".sum", p.Attributes, p.Sum)
				}
			default:
				require.Fail(m.t, "a metric of another kind", "%s is %T", one.Name, data)
			}
		}
	}
	return series
}

// Every figure of a compartment, in the middle of an incident.
func TestMetricsOfACompartment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters(t, `
version: 1
policies:
  - name: items
    side: server
    bulkhead: {maxConcurrent: 3, maxQueue: 1, maxWait: 1s}
    breaker: {minCalls: 2, openFor: 10s, slowCall: 100ms}
`)
		request := &policy.Request{Side: policy.Server, EscapedPath: "/items/1", Route: "/items/{id}", RouteKnown: true}
		admit := func() watertight.Call {
			c, err := m.guard.Admit(t.Context(), request)
			require.NoError(t, err)
			return c
		}
		a, b, c := admit(), admit(), admit()
		waited := make(chan watertight.Call)
		go func() { waited <- admit() }()
		synctest.Wait()
		_, err := m.guard.Admit(t.Context(), request)
		require.ErrorIs(t, err, bulkhead.ErrFull)

		const at = "{key=/items/{id},policy=items,side=server"
		got := m.read()
		assert.Equal(t, 3.0, got["bulkhead.permits"+at+",state=used}"])
		assert.Equal(t, 0.0, got["bulkhead.permits"+at+",state=idle}"])
		assert.Equal(t, 3.0, got["bulkhead.limit"+at+"}"])
		assert.Equal(t, 1.0, got["bulkhead.pending_requests"+at+"}"])
		assert.Equal(t, 1.0, got["breaker.state"+at+",state=closed}"])
		assert.Equal(t, 0.0, got["breaker.state"+at+",state=open}"])
		assert.NotContains(t, got, "breaker.failure_rate"+at+"}", "too few calls for a rate")
		assert.NotContains(t, got, "breaker.open_remaining"+at+"}")
		assert.Equal(t, 0.0, got["breaker.trips"+at+"}"])
		assert.NotContains(t, got, "leaked"+at+"}", "a server has no response body to forget")

		time.Sleep(20 * time.Millisecond)
		a.SettleStatus(200)
		a.Release()
		d := <-waited
		time.Sleep(100 * time.Millisecond)
		b.SettleStatus(500) // failed and slow
		b.Release()
		_, err = m.guard.Admit(t.Context(), request)
		require.Error(t, err)
		c.Release()
		d.Release()

		got = m.read()
		assert.Equal(t, 4.0, got["calls{key=/items/{id},policy=items,result=granted,side=server}"])
		assert.Equal(t, 1.0, got["calls{key=/items/{id},policy=items,result=full,side=server}"])
		assert.Equal(t, 1.0, got["calls{key=/items/{id},policy=items,result=open,side=server}"])
		assert.Equal(t, 0.0, got["calls{key=/items/{id},policy=items,result=wait_timeout,side=server}"])
		assert.Equal(t, 0.0, got["calls{key=/items/{id},policy=items,result=canceled,side=server}"])
		assert.Equal(t, 0.5, got["breaker.failure_rate"+at+"}"])
		assert.Equal(t, 0.5, got["breaker.slow_call_rate"+at+"}"])
		assert.Equal(t, 1.0, got["breaker.state"+at+",state=open}"])
		assert.Equal(t, 1.0, got["breaker.trips"+at+"}"])
		assert.Equal(t, 10.0, got["breaker.open_remaining"+at+"}"])
		assert.Equal(t, 3.0, got["bulkhead.permits"+at+",state=idle}"])
		assert.Equal(t, 1.0, got["breaker.transitions{breaker.cause=failure_rate,breaker.to=open,policy=items,side=server}"])
		assert.Equal(t, 1.0, got["bulkhead.wait_time{policy=items,side=server}"])
		assert.InDelta(t, 0.02, got["bulkhead.wait_time.sum{policy=items,side=server}"], 1e-9)
		assert.Equal(t, 4.0, got["bulkhead.use_time{policy=items,side=server}"])
		assert.InDelta(t, 0.02+0.12+0.12+0.1, got["bulkhead.use_time.sum{policy=items,side=server}"], 1e-9)
	})
}

// A key that may be a secret is in no metric; the tenants are added up.
func TestMetricsDoNotTellTenants(t *testing.T) {
	m := newMeters(t, "version: 1\npolicies: [{name: p, side: server, per: header:X-Key, bulkhead: {maxConcurrent: 5}, breaker: {minCalls: 1}}]\n")
	for _, tenant := range []string{"s3cret", "t0ken", "t0ken"} {
		c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Server, Header: map[string][]string{"X-Key": {tenant}}})
		require.NoError(t, err)
		c.SettleStatus(200)
		defer c.Release()
	}
	got := m.read()
	for series := range got {
		assert.NotContains(t, series, "s3cret")
		assert.NotContains(t, series, "t0ken")
		assert.NotContains(t, series, "rate{", "of several breakers")
	}
	assert.Equal(t, 10.0, got["bulkhead.limit{policy=p,side=server}"])
	assert.Equal(t, 3.0, got["bulkhead.permits{policy=p,side=server,state=used}"])
	assert.Equal(t, 3.0, got["calls{policy=p,result=granted,side=server}"])
	assert.Equal(t, 2.0, got["breaker.state{policy=p,side=server,state=closed}"])
}

// Whoever watches sees that tenants share a compartment, though not which.
func TestMetricsTellTenantsThatOverflow(t *testing.T) {
	m := newMeters(t, "version: 1\ndefaults: {maxCompartments: 1}\npolicies: [{name: p, side: server, per: header:X-Key, bulkhead: {maxConcurrent: 5}}]\n")
	for _, tenant := range []string{"a", "b", "c"} {
		c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Server, Header: map[string][]string{"X-Key": {tenant}}})
		require.NoError(t, err)
		defer c.Release()
	}
	got := m.read()
	assert.Equal(t, 1.0, got["calls{policy=p,result=granted,side=server}"])
	assert.Equal(t, 2.0, got["calls{key=(overflow),policy=p,result=granted,side=server}"])
	assert.Equal(t, 5.0, got["bulkhead.limit{key=(overflow),policy=p,side=server}"])
}

// The series of a compartment go with it.
func TestMetricsVanishWithTheirCompartment(t *testing.T) {
	m := newMeters(t, "version: 1\ndefaults: {maxCompartments: 1}\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}}]\n")
	limits := func() (of []string) {
		for series := range m.read() {
			if strings.HasPrefix(series, "bulkhead.limit{") {
				of = append(of, series)
			}
		}
		return of
	}
	for _, host := range []string{"a", "b"} {
		c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Client, Scheme: "http", Host: host})
		require.NoError(t, err)
		c.Release()
		assert.Equal(t, []string{"bulkhead.limit{key=http://" + host + ":80,policy=p,side=client}"}, limits())
	}
	m.guard.Close()
	assert.Empty(t, limits(), "and all of them with the Guard")
}

func TestMetricsOfReloads(t *testing.T) {
	m := newMeters(t, "version: 1\npolicies: []\n")
	m.guard.Reload(nil)
	m.guard.ReloadFailed(errors.New("bad"))
	m.guard.ReloadFailed(errors.New("bad"))
	got := m.read()
	assert.Equal(t, 1.0, got["policy.reloads{result=ok}"])
	assert.Equal(t, 2.0, got["policy.reloads{result=failed}"])
	assert.Equal(t, 1.0, got["policy.reload_failing{}"])
	m.guard.Reload(nil)
	assert.Equal(t, 0.0, m.read()["policy.reload_failing{}"])
}

func TestMetricsOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters(t, "version: 1\npolicies: []\n")
		pool, err := m.guard.Pool("works", bulkhead.PoolConfig{Core: 1, Max: 2, Backlog: 1})
		require.NoError(t, err)
		let := make(chan struct{})
		for range 3 {
			_, err := watertight.Submit(pool, t.Context(), func(context.Context) (int, error) { <-let; return 0, nil })
			require.NoError(t, err)
			synctest.Wait()
		}
		got := m.read()
		assert.Equal(t, 2.0, got["pool.workers{policy=works,side=client,state=used}"])
		assert.Equal(t, 0.0, got["pool.workers{policy=works,side=client,state=idle}"])
		assert.Equal(t, 2.0, got["pool.limit{policy=works,side=client}"])
		assert.Equal(t, 1.0, got["pool.pending_tasks{policy=works,side=client}"])
		close(let)
		require.NoError(t, m.guard.Drain(t.Context()))
		assert.Equal(t, 3.0, m.read()["calls{policy=works,result=granted,side=client}"])
	})
}

// Two Guards with the same hooks share the instruments, and are read side by side.
func TestMetricsOfTwoGuards(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	hooks := metrics.New(metrics.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	m := &meters{t: t, reader: reader}
	one := newGuard(t, "version: 1\npolicies: [{name: one, per: policy, bulkhead: {maxConcurrent: 1}}]\n", hooks)
	two := newGuard(t, "version: 1\npolicies: [{name: two, per: policy, bulkhead: {maxConcurrent: 2}}]\n", hooks)
	for _, g := range []*watertight.Guard{one, two} {
		c, err := g.Admit(t.Context(), &policy.Request{Side: policy.Client, Host: "a"})
		require.NoError(t, err)
		defer c.Release()
	}
	names := func() []string {
		return slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
			for series := range m.read() {
				if strings.HasPrefix(series, "bulkhead.limit{") && !yield(series, true) {
					return
				}
			}
		})))
	}
	assert.Equal(t, []string{"bulkhead.limit{policy=one,side=client}", "bulkhead.limit{policy=two,side=client}"}, names())
	one.Close()
	assert.Equal(t, []string{"bulkhead.limit{policy=two,side=client}"}, names())
}

func TestWithoutMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	g := newGuard(t, "version: 1\npolicies: [{name: p, per: policy, bulkhead: {maxConcurrent: 1}}]\n", metrics.New(
		metrics.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))), metrics.WithoutMetrics()))
	c, err := g.Admit(t.Context(), &policy.Request{Side: policy.Client, Host: "a"})
	require.NoError(t, err)
	c.Release()
	assert.Empty(t, (&meters{t: t, reader: reader}).read())
}

// Counters that several compartments share do not fall when one of them is dropped: what
// reads them would take that for a restart, and the rest for calls that were made since.
func TestSharedCountersDoNotFall(t *testing.T) {
	m := newMeters(t, "version: 1\ndefaults: {maxCompartments: 2}\npolicies: [{name: p, side: server, per: header:X-Key, bulkhead: {maxConcurrent: 5}}]\n")
	const granted = "calls{policy=p,result=granted,side=server}"
	for i, key := range []string{"a", "b", "c", "d", "a"} {
		c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Server, EscapedPath: "/", Header: http.Header{"X-Key": {key}}})
		require.NoError(t, err)
		c.Release()
		assert.Equal(t, float64(i+1), m.read()[granted])
	}
}

// What a policy that is gone had counted is told until its last call has left, but not on
// top of what others count under the same labels.
func TestCountersDoNotFallAsPoliciesGo(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after string // the policy
	}{
		{"the same again", "per: policy", "per: policy"},
		{"one compartment, then many that share their labels", "per: policy", "per: header:X-Key"},
		{"many that share their labels, then one compartment", "per: header:X-Key", "per: policy"},
		{"another header", "per: header:X-Key", "per: header:X-Other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := func(per string) string {
				return "version: 1\npolicies: [{name: p, side: server, " + per + ", bulkhead: {maxConcurrent: 9}}]\n"
			}
			m := newMeters(t, file(tt.before))
			admit := func(key string) *watertight.Call {
				c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Server, EscapedPath: "/", Header: http.Header{"X-Key": {key}, "X-Other": {key}}})
				require.NoError(t, err)
				return &c
			}
			const granted, used = "calls{policy=p,result=granted,side=server}", "bulkhead.permits{policy=p,side=server,state=used}"
			admit("a").Release()
			admit("b").Release()
			inside := admit("a")
			assert.Equal(t, 3.0, m.read()[granted])

			m.guard.Reload(nil)
			if got := m.read(); strings.Contains(tt.before, "header") {
				assert.NotContains(t, got, granted, "what is left of them would be less")
			} else {
				assert.Equal(t, 3.0, got[granted])
			}
			set, err := policy.Parse("test.yaml", []byte(file(tt.after)))
			require.NoError(t, err)
			m.guard.Reload(set)
			admit("c").Release()
			got := m.read()
			assert.Equal(t, 1.0, got[granted])
			assert.Equal(t, 1.0, got[used], "it is still inside")
			inside.Release()
			m.guard.Reload(set)
			got = m.read()
			assert.Equal(t, 1.0, got[granted])
			assert.Equal(t, 0.0, got[used])
		})
	}
}

// Whether the table of a policy's keys is about to be full, and how fast keys come and go.
func TestMetricsOfTheTable(t *testing.T) {
	m := newMeters(t, "version: 1\ndefaults: {maxCompartments: 2}\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}}, {name: one, per: policy, side: server, bulkhead: {maxConcurrent: 1}}]\n")
	for i, host := range []string{"a", "b", "c", "d"} {
		c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Client, Scheme: "http", Host: host})
		require.NoError(t, err)
		c.Release()
		got := m.read()
		assert.Equal(t, float64(min(i+1, 2)), got["compartments{policy=p,side=client}"])
		assert.Equal(t, float64(max(i-1, 0)), got["evicted_compartments{policy=p,side=client}"])
	}
	c, err := m.guard.Admit(t.Context(), &policy.Request{Side: policy.Server, EscapedPath: "/"})
	require.NoError(t, err)
	c.Release()
	assert.NotContains(t, m.read(), "compartments{policy=one,side=server}", "it does not divide its calls")
}

func TestMetricsOfThePoliciesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const file = "version: 1\npolicies: []\n"
		m := newMeters(t, file)
		set, err := policy.Parse("test.yaml", []byte(file))
		require.NoError(t, err)
		assert.Equal(t, 1.0, m.read()["policy.info{policy.version="+set.Version()+"}"])
		assert.Equal(t, float64(time.Now().UnixMilli())/1000, m.read()["policy.load_timestamp{}"])
		time.Sleep(time.Hour)
		m.guard.Reload(nil)
		got := m.read()
		assert.Equal(t, 1.0, got["policy.info{policy.version=}"])
		assert.NotContains(t, got, "policy.info{policy.version="+set.Version()+"}")
		assert.Equal(t, float64(time.Now().UnixMilli())/1000, got["policy.load_timestamp{}"])
	})
}
