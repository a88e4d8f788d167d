package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

//go:embed server.yaml
var serverPolicies []byte

//go:embed client.yaml
var clientPolicies []byte

// serviceName is what the spans of the client's half appear under; those of a
// server that it starts are under watertight-server.
const serviceName = "watertight-client"

// A demo is a run of the demonstration.
type demo struct {
	cfg       config
	out       io.Writer
	telemetry *telemetry.Telemetry
	guard     *watertight.Guard // of the client
	http      *http.Transport
	server    server
	fault     *fault // nil: the target's upstreams are not ours to break
	flows     []*flow
	begun     time.Time
	phase     atomic.Int32
}

func newDemo(ctx context.Context, cfg config, out io.Writer) (_ *demo, err error) {
	d := &demo{cfg: cfg, out: &lines{out: out}}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	policies, err := policy.Parse("client.yaml", clientPolicies)
	if err != nil {
		return nil, err
	}
	d.telemetry, err = telemetry.New(ctx, telemetry.Config{Service: serviceName, OTLP: cfg.otlp})
	if err != nil {
		return nil, err
	}
	d.guard = watertight.New(policies, watertight.WithHooks(metrics.New(metrics.WithTracerProvider(d.telemetry.Provider()))))

	if cfg.target != nil {
		d.server = newTarget(strings.TrimSuffix(cfg.target.String(), "/"))
	} else if err = d.startServer(ctx); err != nil {
		return nil, err
	}
	d.plan()
	return d, nil
}

// startServer starts the example server and the two upstreams behind it.
func (d *demo) startServer(ctx context.Context) error {
	policies, err := policy.Parse("server.yaml", serverPolicies)
	if err != nil {
		return err
	}
	d.fault = &fault{}
	if d.fault.steady, err = startUpstream(); err != nil {
		return err
	}
	if d.fault.shaky, err = startUpstream(); err != nil {
		return err
	}
	s := &ownServer{tally: newTally()}
	s.app, err = app.Start(ctx, app.Config{
		Policies:  policies,
		Upstreams: map[string]string{"steady": d.fault.steady.url, "shaky": d.fault.shaky.url},
		Hooks:     s.tally.hooks(),
		OTLP:      d.cfg.otlp,
		Traces:    d.telemetry.Store(), // both halves of each trace, in one place
		Drain:     5 * time.Second,
	})
	if err != nil {
		return err
	}
	d.server = s
	return nil
}

// plan sets the flows up: some through http.Client, some through resty.
func (d *demo) plan() {
	d.http = http.DefaultTransport.(*http.Transport).Clone()
	d.http.MaxIdleConnsPerHost = 100
	// otelhttp beneath watertight, as package transport's documentation says.
	traced := otelhttp.NewTransport(d.http,
		otelhttp.WithTracerProvider(d.telemetry.Provider()),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(telemetry.Propagator()))
	base := d.server.url()
	client := &http.Client{Transport: transport.New(traced, d.guard)}
	rest := resty.New().SetBaseURL(base).SetTransport(traced).SetRetryCount(2)
	watertightresty.Configure(rest, d.guard)

	d.flows = []*flow{
		{name: "delay", path: "/delay/10", workers: 6, pause: 20 * time.Millisecond, fast: true, call: byHTTP(client, base)},
		{name: "stream", path: "/stream/4?every=10ms", workers: 20, pause: time.Second, burst: true, call: byHTTP(client, base)},
	}
	upstreams := d.cfg.upstreams
	if d.fault != nil {
		d.flows = append(d.flows,
			&flow{name: "steady", path: "/upstream/steady/", workers: 4, pause: 20 * time.Millisecond, fast: true, call: byResty(rest)},
			&flow{name: "shaky", path: "/upstream/shaky/", workers: 12, pause: 50 * time.Millisecond, call: byHTTP(client, base)})
	}
	for _, name := range upstreams {
		d.flows = append(d.flows, &flow{name: name, path: "/upstream/" + name + "/", workers: 6, pause: 50 * time.Millisecond, call: byResty(rest)})
	}
	for _, f := range d.flows {
		f.results = newResults()
	}
}

// lines lets several goroutines print, each a line at a time.
type lines struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// A fault is the pair of upstreams, and what becomes of one of them.
type fault struct {
	steady, shaky *upstream
}

// The run in fractions of its duration: well, slow, failing, well again.
const (
	turnsSlow    = 0.20
	turnsFailing = 0.40
	turnsHealthy = 0.60
)

// run sends the load.
func (d *demo) run(ctx context.Context) error {
	if err := d.server.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.duration)
	defer cancel()
	d.begun = time.Now()
	fmt.Fprintf(d.out, "%s against %s\n", d.cfg.duration, d.server.url())

	var wg sync.WaitGroup
	tracer := d.telemetry.Provider().Tracer("examples/client")
	for _, f := range d.flows {
		wg.Go(func() { f.drive(ctx, tracer, func() phase { return phase(d.phase.Load()) }) })
	}
	if d.fault != nil {
		wg.Go(func() { d.breakThings(ctx) })
	}
	wg.Go(func() { d.progress(ctx) })
	wg.Wait()
	if ctx.Err() == context.Canceled {
		return fmt.Errorf("interrupted after %s", time.Since(d.begun).Round(time.Millisecond))
	}
	return nil
}

// breakThings takes the shaky upstream through its moods.
func (d *demo) breakThings(ctx context.Context) {
	for _, step := range []struct {
		at    float64
		mood  mood
		phase phase
	}{
		{turnsSlow, slow, during},
		{turnsFailing, failing, during},
		{turnsHealthy, healthy, after},
	} {
		pause(ctx, time.Until(d.begun.Add(time.Duration(step.at*float64(d.cfg.duration)))))
		if ctx.Err() != nil {
			return
		}
		d.fault.shaky.set(step.mood)
		d.phase.Store(int32(step.phase))
		fmt.Fprintf(d.out, "%5.1fs  -- the shaky upstream turns %s --\n", time.Since(d.begun).Seconds(), step.mood)
	}
}

// progress prints a line each second.
func (d *demo) progress(ctx context.Context) {
	last := make([]int, len(d.flows))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%5.1fs ", time.Since(d.begun).Seconds())
		for i, f := range d.flows {
			n, _ := f.results.calls()
			fmt.Fprintf(&b, " %s %3d/s ", f.name, n-last[i])
			last[i] = n
		}
		if s, err := d.server.snapshot(ctx); err == nil {
			inside, queued := occupancy(s)
			fmt.Fprintf(&b, " inside %d, queued %d%s", inside, queued, openBreakers(s))
		}
		fmt.Fprintln(d.out, b.String())
	}
}

// occupancy counts what is inside and what queues on the server's routes.
func occupancy(s watertight.Snapshot) (inside int64, queued int) {
	for _, c := range s.Compartments {
		if c.Side == policy.Server.String() {
			inside += c.InFlight
			if c.Bulkhead != nil {
				queued += c.Bulkhead.Queued
			}
		}
	}
	return inside, queued
}

func openBreakers(s watertight.Snapshot) string {
	var b strings.Builder
	for _, c := range s.Compartments {
		if c.Breaker != nil && c.Breaker.State != "closed" {
			fmt.Fprintf(&b, ", %s %s", c.Key, c.Breaker.State)
		}
	}
	return b.String()
}

// close ends everything that was started, the server before its upstreams.
func (d *demo) close() {
	if d.http != nil {
		d.http.CloseIdleConnections()
	}
	if d.server != nil {
		d.server.close()
	}
	if d.fault != nil {
		for _, u := range []*upstream{d.fault.steady, d.fault.shaky} {
			if u != nil {
				u.close()
			}
		}
	}
	if d.guard != nil {
		d.guard.Close()
	}
	if d.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		// What the collector did not take is lost, and the demonstration's
		// verdict does not depend on it.
		_ = d.telemetry.Shutdown(ctx)
	}
}
