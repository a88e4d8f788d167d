package metrics

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// Names of metrics.
const (
	permitsMetric       = "watertight.bulkhead.permits"
	limitMetric         = "watertight.bulkhead.limit"
	pendingMetric       = "watertight.bulkhead.pending_requests"
	waitTimeMetric      = "watertight.bulkhead.wait_time"
	useTimeMetric       = "watertight.bulkhead.use_time"
	callsMetric         = "watertight.calls"
	observedMetric      = "watertight.observed_calls"
	leakedMetric        = "watertight.leaked"
	breakerStateMetric  = "watertight.breaker.state"
	failureRateMetric   = "watertight.breaker.failure_rate"
	slowCallRateMetric  = "watertight.breaker.slow_call_rate"
	openRemainingMetric = "watertight.breaker.open_remaining"
	tripsMetric         = "watertight.breaker.trips"
	transitionsMetric   = "watertight.breaker.transitions"
	workersMetric       = "watertight.pool.workers"
	maxWorkersMetric    = "watertight.pool.limit"
	poolPendingMetric   = "watertight.pool.pending_tasks"
	reloadsMetric       = "watertight.policy.reloads"
	reloadFailingMetric = "watertight.policy.reload_failing"
	infoMetric          = "watertight.policy.info"
	loadTimeMetric      = "watertight.policy.load_timestamp"
	compartmentsMetric  = "watertight.compartments"
	evictedMetric       = "watertight.evicted_compartments"
)

// seconds are the bounds of the histograms: waits and uses last from well below a
// millisecond to minutes.
var seconds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// instruments are those of one MeterProvider.
//
// What the Guard counts anyway is read when somebody collects, from its snapshot:
// the calls pay nothing for it, all figures of a collection are of one moment, and the
// series of a compartment that is gone are gone from the next collection. Only what
// no snapshot holds is recorded as it happens.
type instruments struct {
	meter metric.Meter

	permits, limit, pending          metric.Int64ObservableUpDownCounter
	workers, maxWorkers, poolPending metric.Int64ObservableUpDownCounter
	breakerState, compartments       metric.Int64ObservableUpDownCounter
	calls, wouldBe, leaked, reloads  metric.Int64ObservableCounter
	trips, evicted                   metric.Int64ObservableCounter
	reloadFailing, info              metric.Int64ObservableGauge
	failureRate, slowCallRate        metric.Float64ObservableGauge
	openRemaining, loadTime          metric.Float64ObservableGauge
	waitTime, useTime                metric.Float64Histogram
	transitions                      metric.Int64Counter
	observed                         []metric.Observable // all that are read from a snapshot
	byPolicy                         places
}

// newInstruments makes the instruments of a provider. With an error some of them do
// nothing; they can all be used.
func newInstruments(p metric.MeterProvider) (*instruments, error) {
	in := &instruments{meter: p.Meter(ScopeName, metric.WithInstrumentationVersion(Version))}
	m := maker{in: in}
	in.permits = upDown(&m, permitsMetric, "{permit}", "Permits of the bulkhead, by whether they are in use.")
	in.limit = upDown(&m, limitMetric, "{permit}", "The most permits that can be in use.")
	in.pending = upDown(&m, pendingMetric, "{request}", "Calls that wait for a permit.")
	in.workers = upDown(&m, workersMetric, "{worker}", "Workers of the pool, by whether they have a task.")
	in.maxWorkers = upDown(&m, maxWorkersMetric, "{worker}", "The most workers that the pool can have.")
	in.poolPending = upDown(&m, poolPendingMetric, "{task}", "Tasks that wait for a worker.")
	in.calls = counter(&m, callsMetric, "{call}", "Calls decided, by what became of them.")
	in.wouldBe = counter(&m, observedMetric, "{call}", "Calls let in by policies that only observe, and that would have been turned away.")
	in.leaked = counter(&m, leakedMetric, "{call}", "Response bodies that were never closed, and whose permits the garbage collector had to find.")
	in.reloads = counter(&m, reloadsMetric, "{reload}", "Attempts to put other policies in force, by whether they are.")
	in.breakerState = upDown(&m, breakerStateMetric, "{breaker}", "Breakers, by the state that they are in.")
	in.trips = counter(&m, tripsMetric, "{trip}", "Times that the breaker opened.")
	in.compartments = upDown(&m, compartmentsMetric, "{compartment}", "Compartments that there are, of policies that divide their calls.")
	in.evicted = counter(&m, evictedMetric, "{compartment}", "Compartments that went because they were idle, or to make room.")
	in.reloadFailing = gauge(&m, reloadFailingMetric, "{reload}", "1 while the latest policies are not in force because something is wrong with them.")
	in.info = gauge(&m, infoMetric, "{policies}", "1 for the version of the policies in force.")
	in.loadTime = seconds64(&m, loadTimeMetric, "When the policies in force came into force, in seconds since 1970.")
	in.openRemaining = seconds64(&m, openRemainingMetric, "Time until the open breaker lets probes through. Absent while it is not open.")
	in.failureRate = rate(&m, failureRateMetric, "Failed calls in the breaker's window. Absent while it holds fewer than minCalls.")
	in.slowCallRate = rate(&m, slowCallRateMetric, "Slow calls in the breaker's window. Absent while it holds fewer than minCalls.")

	in.waitTime = histogram(&m, waitTimeMetric, "Time that calls waited for a permit, of those that had to.")
	in.useTime = histogram(&m, useTimeMetric, "Time from the grant of a permit to its release.")
	var err error
	in.transitions, err = in.meter.Int64Counter(transitionsMetric, metric.WithUnit("{transition}"), metric.WithDescription("Changes of breakers' states."))
	m.errs = append(m.errs, err)
	return in, errors.Join(m.errs...)
}

// A maker keeps the errors of many.
type maker struct {
	in   *instruments
	errs []error
}

func observable[T metric.Observable](m *maker, o T, err error) T {
	m.errs = append(m.errs, err)
	m.in.observed = append(m.in.observed, o)
	return o
}

func upDown(m *maker, name, unit, text string) metric.Int64ObservableUpDownCounter {
	o, err := m.in.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	return observable(m, o, err)
}

func counter(m *maker, name, unit, text string) metric.Int64ObservableCounter {
	o, err := m.in.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	return observable(m, o, err)
}

func gauge(m *maker, name, unit, text string) metric.Int64ObservableGauge {
	o, err := m.in.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	return observable(m, o, err)
}

func rate(m *maker, name, text string) metric.Float64ObservableGauge {
	o, err := m.in.meter.Float64ObservableGauge(name, metric.WithUnit("1"), metric.WithDescription(text))
	return observable(m, o, err)
}

func seconds64(m *maker, name, text string) metric.Float64ObservableGauge {
	o, err := m.in.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(text))
	return observable(m, o, err)
}

func histogram(m *maker, name, text string) metric.Float64Histogram {
	h, err := m.in.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(seconds...))
	m.errs = append(m.errs, err)
	return h
}

// attach has the metrics of g read from now on, until the function that it returns is
// called. Several Guards with the same hooks share the instruments.
func (t *telemetry) attach(g *watertight.Guard) (detach func()) {
	p := t.meters
	if p == nil {
		p = otel.GetMeterProvider()
	}
	t.once.Do(func() {
		in, err := newInstruments(p)
		if err != nil {
			otel.Handle(err)
		}
		t.instruments.Store(in)
	})
	in := t.instruments.Load()
	if in == nil {
		return nil // the provider panicked, which was reported where the first Guard was made
	}
	reg, err := in.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		in.observe(o, g.Snapshot())
		return nil
	}, in.observed...)
	if err != nil {
		otel.Handle(err)
		return nil
	}
	return func() {
		if err := reg.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}

func (in *instruments) observe(o metric.Observer, s watertight.Snapshot) {
	tables := make(map[table]int64)
	present := make(map[attribute.Distinct]bool)
	for i := range s.Compartments {
		c := &s.Compartments[i]
		if c.Gone {
			continue
		}
		at := newLabels(c)
		present[at.id()] = true
		in.observeNow(o, c, at)
		in.observeCounts(o, c, at)
		if divides(c) {
			tables[tableOf(c)]++
		}
	}
	for i := range s.Compartments {
		c := &s.Compartments[i]
		if !c.Gone {
			continue
		}
		at := newLabels(c)
		in.observeNow(o, c, at)
		// Counts that several compartments share would fall when one of them leaves, and
		// whoever reads a counter that falls takes all that is left of it for new.
		if !at.shared && !present[at.id()] {
			in.observeCounts(o, c, at)
		}
	}
	evicted := make(map[table]uint64)
	for i := range s.Dropped {
		c := &s.Dropped[i]
		evicted[tableOf(c)] = c.Evicted
		if c.Per == policy.PerHeader.String() { // others have series of their own, which end
			in.observeCounts(o, c, newLabels(c))
		}
	}
	for t, n := range tables {
		o.ObserveInt64(in.compartments, n, t.labels())
		o.ObserveInt64(in.evicted, int64(evicted[t]), t.labels())
	}
	o.ObserveInt64(in.reloads, int64(s.Policies.Reloads), metric.WithAttributes(resultKey.String("ok")))
	o.ObserveInt64(in.reloads, int64(s.Policies.Failed), metric.WithAttributes(resultKey.String("failed")))
	o.ObserveInt64(in.reloadFailing, oneIf(s.Policies.Error != ""))
	o.ObserveInt64(in.info, 1, metric.WithAttributes(versionKey.String(s.Policies.Version)))
	o.ObserveFloat64(in.loadTime, float64(s.Policies.Since.UnixMilli())/1000)
}

// observeCounts observes what only grows.
func (in *instruments) observeCounts(o metric.Observer, c *watertight.CompartmentSnapshot, at labels) {
	for reason, n := range c.Rejected {
		o.ObserveInt64(in.calls, int64(n), at.with(resultKey.String(reason)))
	}
	for reason, n := range c.Observed {
		o.ObserveInt64(in.wouldBe, int64(n), at.with(resultKey.String(reason)))
	}
	o.ObserveInt64(in.calls, int64(c.Granted), at.with(resultKey.String(grantedResult)))
	o.ObserveInt64(in.calls, int64(c.Left), at.with(resultKey.String(policy.ReasonCanceled.String())))
	if c.Side == policy.Client.String() && c.Pool == nil { // nobody else has a response body to forget
		o.ObserveInt64(in.leaked, int64(c.Leaked), at.with())
	}
	if c.Breaker != nil || c.Trips > 0 {
		o.ObserveInt64(in.trips, int64(c.Trips), at.with())
	}
}

// observeNow observes what goes up and down.
func (in *instruments) observeNow(o metric.Observer, c *watertight.CompartmentSnapshot, at labels) {
	if b := c.Bulkhead; b != nil {
		o.ObserveInt64(in.permits, int64(b.InFlight), at.with(stateKey.String("used")))
		o.ObserveInt64(in.permits, int64(max(0, b.Limit-b.InFlight)), at.with(stateKey.String("idle")))
		o.ObserveInt64(in.limit, int64(b.Limit), at.with())
		o.ObserveInt64(in.pending, int64(b.Queued), at.with())
	}
	if p := c.Pool; p != nil {
		o.ObserveInt64(in.workers, int64(p.Active), at.with(stateKey.String("used")))
		o.ObserveInt64(in.workers, int64(p.Idle), at.with(stateKey.String("idle")))
		o.ObserveInt64(in.maxWorkers, int64(p.Max), at.with())
		o.ObserveInt64(in.poolPending, int64(p.Queued), at.with())
	}
	if b := c.Breaker; b != nil {
		for _, s := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen, breaker.Disabled, breaker.MetricsOnly, breaker.ForcedOpen} {
			name := s.String()
			o.ObserveInt64(in.breakerState, oneIf(b.State == name), at.with(stateKey.String(name)))
		}
		if at.shared {
			return // a rate of several breakers would say nothing
		}
		if b.State == breaker.Open.String() {
			o.ObserveFloat64(in.openRemaining, float64(b.OpenRemainingMs)/1000, at.with())
		}
		if b.FailureRate >= 0 {
			o.ObserveFloat64(in.failureRate, b.FailureRate/100, at.with())
		}
		if b.SlowCallRate >= 0 {
			o.ObserveFloat64(in.slowCallRate, b.SlowCallRate/100, at.with())
		}
	}
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
