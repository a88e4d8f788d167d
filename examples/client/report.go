package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
)

// report prints what happened and reports whether all promises held.
func (d *demo) report(ctx context.Context) bool {
	final, err := d.settle(ctx)
	if err != nil {
		fmt.Fprintln(d.out, "\nthe server does not tell its state:", err)
		return false
	}
	d.callers()
	d.compartments(final)
	d.transitions()
	d.traces(ctx)
	return d.verdict(final)
}

// settle waits, for a moment only, until the server has noticed that the last
// answers were read.
func (d *demo) settle(ctx context.Context) (watertight.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		s, err := d.server.snapshot(ctx)
		if err != nil || idle(s) && idle(d.guard.Snapshot()) || ctx.Err() != nil {
			return s, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func idle(s watertight.Snapshot) bool {
	for _, c := range s.Compartments {
		if c.InFlight != 0 || c.Bulkhead != nil && c.Bulkhead.Queued != 0 {
			return false
		}
	}
	return true
}

func (d *demo) callers() {
	fmt.Fprintln(d.out, "\nWhat the callers saw (P99 from call to end of answer, by phase of the shaky upstream)")
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  flow\tpath\tcalls\tP99 before\tduring the fault\tafter\tanswers")
	for _, f := range d.flows {
		all, _ := f.results.calls()
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%s\t%s\t%s\n", f.name, f.path, all,
			ms(f.results.p(before, 0.99)), ms(f.results.p(during, 0.99)), ms(f.results.p(after, 0.99)), f.results.answers())
	}
	w.Flush()
	for _, f := range d.flows {
		if text := f.results.firstError(); text != "" {
			fmt.Fprintf(d.out, "  %s, for one: %s\n", f.name, text)
		}
	}
}

func (d *demo) compartments(s watertight.Snapshot) {
	fmt.Fprintln(d.out, "\nWhat the compartments did (P50 and P99 are the time inside, from grant to release)")
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  side\tpolicy\troute or upstream\tcalls\tgranted\twaited\tfull\twait_timeout\topen\tleft\tpeak/limit\tP50\tP99")
	for _, c := range s.Compartments {
		d.compartment(w, c, d.server.tallied())
	}
	for _, c := range d.guard.Snapshot().Compartments {
		d.compartment(w, c, nil)
	}
	w.Flush()
}

func (d *demo) compartment(w *tabwriter.Writer, c watertight.CompartmentSnapshot, t *tally) {
	calls := c.Granted + c.Left
	for _, n := range c.Rejected {
		calls += n
	}
	waited, p50, p99 := "-", "-", "-"
	if t != nil {
		n, q50, q99 := t.of(c)
		waited, p50, p99 = fmt.Sprint(n), ms(q50), ms(q99)
	}
	peak := "-"
	if c.Bulkhead != nil {
		peak = fmt.Sprintf("%d/%d", c.Bulkhead.Peak, c.Bulkhead.Limit)
	}
	fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", c.Side, c.Policy, d.nick(c.Key), calls, c.Granted, waited,
		c.Rejected["full"], c.Rejected["wait_timeout"], c.Rejected["open"], c.Left, peak, p50, p99)
}

// nick adds the name under which the demonstration knows a host.
func (d *demo) nick(key string) string {
	if d.fault != nil {
		switch key {
		case d.fault.steady.url:
			return key + " (steady)"
		case d.fault.shaky.url:
			return key + " (shaky)"
		}
	}
	return key
}

func (d *demo) transitions() {
	t := d.server.tallied()
	if t == nil {
		return
	}
	fmt.Fprintln(d.out, "\nWhat the breakers did")
	for _, e := range t.breakers() {
		fmt.Fprintf(d.out, "  %6.2fs  %s  %s -> %s  (%s%s)\n", e.At.Sub(d.begun).Seconds(), d.nick(e.Key), e.From, e.To, e.Cause, rates(e))
	}
}

func rates(e watertight.TransitionEvent) string {
	if e.FailureRate < 0 {
		return ""
	}
	return fmt.Sprintf("; %d calls, %.0f%% failed, %.0f%% slow", e.Calls, e.FailureRate, e.SlowCallRate)
}

// traces prints one trace each of a call that waited, that was turned away,
// and that tripped a breaker.
func (d *demo) traces(ctx context.Context) {
	if d.cfg.otlp != "" {
		fmt.Fprintf(d.out, "\nThe traces are in the collector, under the services %s and watertight-server.\n", serviceName)
		return
	}
	for _, t := range []struct {
		about, span string
		with        attribute.KeyValue
	}{
		{"A call that waited", "bulkhead.wait", attribute.String("watertight.result", "granted")},
		{"A call that was turned away", "bulkhead.reject", attribute.String("watertight.reason", "full")},
		{"The call that tripped the breaker", "breaker.trip", attribute.String("watertight.breaker.from", "closed")},
	} {
		text, err := d.server.trace(ctx, t.span, t.with)
		if err != nil {
			text = err.Error() + "\n"
		}
		if text != "" {
			fmt.Fprintf(d.out, "\n%s\n%s", t.about, indent(text))
		}
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

// verdict prints each promise with what became of it.
func (d *demo) verdict(final watertight.Snapshot) bool {
	fmt.Fprintln(d.out, "\nWhat was promised")
	held := true
	promise := func(ok bool, format string, args ...any) {
		mark := "ok    "
		if !ok {
			mark, held = "BROKEN", false
		}
		fmt.Fprintf(d.out, "  %s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	for _, f := range d.flows {
		if !f.fast {
			continue
		}
		all, ok := f.results.calls()
		promise(all > 0 && all == ok, "%s: all of %d calls were answered 200: %d were", f.path, all, ok)
		if d.fault != nil {
			b, u := f.results.p(before, 0.99), f.results.p(during, 0.99)
			promise(u > 0 && (u <= 3*b || u < 50*time.Millisecond),
				"%s stayed fast: P99 %s during the fault, %s before; within 3 times of that, or under 50ms", f.path, ms(u), ms(b))
		}
	}
	if t := d.server.tallied(); t != nil {
		tripped, recovered := false, false
		for _, e := range t.breakers() {
			if e.Key == d.fault.shaky.url {
				tripped = tripped || e.From == breaker.Closed && e.To == breaker.Open
				recovered = e.To == breaker.Closed // the last one counts
			}
		}
		promise(tripped, "the shaky upstream tripped its breaker")
		promise(recovered, "and recovered")
	}
	promise(idle(final) && idle(d.guard.Snapshot()), "nothing is in flight at the end")
	return held
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
