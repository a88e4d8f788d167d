package watertight

import (
	"sync/atomic"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A generation is what a Guard makes of one set of policies. It does not change;
// [Guard.Reload] puts another in its place. What a policy's calls are counted in
// outlives it: the next generation takes over the places of the policies that stay.
type generation struct {
	set    *policy.Set
	places [2][]place              // by side and by index of the policy; the zero place where a policy has no such side
	named  map[string]*compartment // by policy: what Do enters; client side
}

// A place is where the compartments of one policy are kept, on one side.
type place struct {
	fixed *compartment // the only one: per: policy, and exempt policies
	table *table       // one for each key
}

func (p place) empty() bool { return p.fixed == nil && p.table == nil }

// all returns the compartments of the place.
func (p place) all() []*compartment {
	switch {
	case p.fixed != nil:
		return []*compartment{p.fixed}
	case p.table != nil:
		return p.table.all()
	}
	return nil
}

func (p place) close() {
	if p.table != nil {
		p.table.close()
	} else if p.fixed != nil {
		p.fixed.close()
	}
}

func (g *generation) place(r *policy.Rule, s policy.Side) *place {
	return &g.places[sideIndex(s)][r.Index]
}

// succeed makes the generation of a set that follows old, which has been in force.
// It changes what both of them hold, and returns what old holds alone.
func (g *Guard) succeed(old *generation, set *policy.Set) (next *generation, gone []place) {
	next = &generation{set: set, named: make(map[string]*compartment)}
	before := old.byName()
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		i := sideIndex(s)
		next.places[i] = make([]place, len(set.Rules()))
		for _, r := range set.Rules() {
			if r.Side != policy.Both && r.Side != s {
				continue
			}
			next.places[i][r.Index] = g.settleIn(before[i][r.Name], r, s, set.Defaults())
		}
	}
	g.nameCompartments(next, old)

	settled := map[place]bool{} // those that stay, and those that are in gone: Do may have one of places
	for _, p := range next.all() {
		settled[p] = true
	}
	for _, p := range old.all() {
		if !settled[p] {
			settled[p] = true
			gone = append(gone, p)
		}
	}
	return next, gone
}

// byName returns the places by side and name of the policy. In a ServiceComb file a name
// may be that of a policy on each side, so the one that is on the other side counts for
// nothing.
func (g *generation) byName() (by [2]map[string]place) {
	for i := range g.places {
		by[i] = make(map[string]place)
		for j, r := range g.set.Rules() {
			if p := g.places[i][j]; !p.empty() {
				by[i][r.Name] = p
			}
		}
	}
	return by
}

// all returns the places that are not empty, those of named included.
func (g *generation) all() []place {
	var all []place
	for i := range g.places {
		for _, p := range g.places[i] {
			if !p.empty() {
				all = append(all, p)
			}
		}
	}
	for _, c := range g.named {
		all = append(all, place{fixed: c})
	}
	return all
}

// settleIn returns the place of a rule: the one that it had before, if it divides its
// calls as it did, or else a new one.
func (g *Guard) settleIn(p place, r *policy.Rule, s policy.Side, d policy.Defaults) place {
	if r.Exempt || r.PerOn(s) == policy.PerPolicy {
		if p.fixed == nil {
			return place{fixed: g.build(nil, r, s, "")}
		}
		g.change(p.fixed, r)
		return p
	}
	if p.table == nil || !p.table.divides(r) {
		t := newTable(r, s, d.MaxCompartments, d.Idle, g.build)
		t.told = g.hooks.watchTables()
		return place{table: t}
	}
	for _, c := range p.table.change(r, d.MaxCompartments, d.Idle) {
		g.change(c, r)
	}
	p.table.relist()
	return p
}

// nameCompartments finds or makes the compartments that Do enters. A policy that has
// a compartment for each host has one more for them; the key is no host's.
func (g *Guard) nameCompartments(next, old *generation) {
	for i, r := range next.set.Rules() {
		switch p := next.places[sideIndex(policy.Client)][i]; {
		case p.fixed != nil:
			next.named[r.Name] = p.fixed
		case p.table != nil:
			c := old.named[r.Name]
			if c == nil {
				c = g.build(nil, r, policy.Client, "")
				c.Per = policy.PerPolicy
			} else {
				g.change(c, r)
			}
			next.named[r.Name] = c
		}
	}
}

// A limits is what a policy makes of one compartment. It does not change; a
// reload puts another in its place.
//
// Where a reload takes the bulkhead or the breaker from a policy, something stays in
// its place, with the settings that it had, for the calls that were matched before: the
// same bulkhead with as many permits as it can have, so that whoever is in counts if
// a later reload brings it back; a breaker that lets every call in.
type limits struct {
	rule         *policy.Rule
	bulkhead     *bulkhead.Bulkhead       // nil: there never was one
	bulkheadRule *policy.BulkheadSettings // of bulkhead
	breaker      *breaker.Breaker         // nil: there never was one
	breakerRule  *policy.BreakerSettings  // of breaker
	last         *lastTransition          // of breaker
	faults       *faults                  // of breaker; nil: no hook asks, or it never trips
	dryRun       *dryRun                  // of the bulkhead, while the policy only observes; else nil
}

// observes reports whether the policy turns nothing away, but counts what it would have.
func (l *limits) observes() bool { return l.rule.Mode == policy.Observe }

// shownLimit returns the limit to show for one that the bulkhead has: the policy's,
// whether it is in force or not.
func (l *limits) shownLimit(limit int) int {
	if l.dryRun != nil {
		return l.rule.Bulkhead.MaxConcurrent
	}
	return limit
}

// A seat is a compartment that a call has entered, with the limits that it met. The
// zero seat is none.
type seat struct {
	*compartment
	*limits
}

func (s seat) taken() bool { return s.compartment != nil }

// build makes the compartment of a policy for one key, as if it had been there when
// the policy was another one, if was is not nil.
func (g *Guard) build(was, r *policy.Rule, s policy.Side, key string) *compartment {
	per := r.PerOn(s)
	if r.Exempt {
		per = policy.PerPolicy // there is one for all that it matches
	}
	c := &compartment{Compartment: Compartment{Policy: r.Name, Side: s, Per: per, Key: key}}
	if was != nil {
		g.change(c, was)
	}
	g.change(c, r)
	return c
}

// change makes r the rule of a compartment.
func (g *Guard) change(c *compartment, r *policy.Rule) {
	var l limits
	if old := c.limits.Load(); old != nil {
		l = *old
	}
	l.changeBulkhead(r.Bulkhead, r.Mode)
	l.changeDryRun(r, c)
	l.changeBreaker(r.Breaker, r.Bulkhead, g, c)
	l.rule = r
	c.limits.Store(&l)
}

func (l *limits) changeBulkhead(to *policy.BulkheadSettings, mode policy.Mode) {
	switch {
	case to != nil:
		cfg := bulkhead.Config{Limit: to.MaxConcurrent, Backlog: to.MaxQueue, MaxWait: to.MaxWait}
		if mode == policy.Observe {
			// It counts who is inside, and stops nobody; it is closed like any other.
			cfg = bulkhead.Config{Limit: bulkhead.MaxLimit}
		}
		if l.bulkhead == nil {
			l.bulkhead = bulkhead.New(cfg)
		} else {
			l.bulkhead.Configure(cfg)
		}
		l.bulkheadRule = to
	case l.bulkhead != nil:
		l.bulkhead.Resize(bulkhead.MaxLimit)
	}
}

func (l *limits) changeDryRun(r *policy.Rule, c *compartment) {
	if r.Bulkhead == nil || r.Mode != policy.Observe {
		l.dryRun = nil
		return
	}
	if l.dryRun == nil {
		l.dryRun = newDryRun(c)
	}
	l.dryRun.configure(r.Bulkhead)
}

// changeBreaker changes the breaker. Of another policy's bulkhead nothing follows for
// it: the calls of one breaker may come through several, and go past it.
func (l *limits) changeBreaker(to *policy.BreakerSettings, beside *policy.BulkheadSettings, g *Guard, c *compartment) {
	switch {
	case to != nil:
		cfg := breakerConfig(to)
		if beside != nil {
			cfg.OverdueLimit = beside.MaxConcurrent
		}
		if l.breaker == nil || l.rule.Breaker == nil || l.breakerRule.Force != to.Force {
			l.last, l.faults = new(lastTransition), nil
			if to.Force == policy.ForceNone && g.hooks.wantFaults() {
				l.faults = &faults{slowCall: to.SlowCall, probeTimeout: to.HalfOpen.ProbeTimeout}
			}
			cfg.OnTransition = g.listener(c, l.last, l.faults)
			l.breaker = breaker.New(cfg)
		} else {
			l.faults.configure(to, func() { l.breaker.Configure(cfg) })
		}
		l.breakerRule = to
	case l.breaker != nil:
		l.breaker = breaker.New(breaker.Config{InitialState: breaker.Disabled})
		l.last, l.faults = nil, nil
	}
}

func breakerConfig(b *policy.BreakerSettings) breaker.Config {
	return breaker.Config{
		FailureRate:  b.FailureRate,
		SlowCall:     b.SlowCall,
		SlowCallRate: b.SlowCallRate,
		Window:       breaker.Window{Calls: b.Window.Calls, Time: b.Window.Time},
		MinCalls:     b.MinCalls,
		OpenFor:      breaker.Growing(b.OpenFor, b.Backoff.Max, b.Backoff.Multiplier),
		Jitter:       b.Backoff.Jitter,

		InitialState:  initialState(b.Force),
		MaxRetryAfter: b.Backoff.RetryAfter,
		HalfOpen: breaker.HalfOpenConfig{
			Calls:        b.HalfOpen.Calls,
			ProbeTimeout: b.HalfOpen.ProbeTimeout,
			MaxWait:      b.HalfOpen.MaxWait,
		},
	}
}

// initialState is that of a breaker that is held in it, and else the default.
func initialState(f policy.Force) breaker.State {
	switch f {
	case policy.ForceOpen:
		return breaker.ForcedOpen
	case policy.ForceClosed:
		return breaker.Disabled
	}
	return 0
}

// A lastTransition is the latest transition of one breaker; nil: there was none yet.
type lastTransition = atomic.Pointer[TransitionSnapshot]

// listener returns what hears of the transitions of a breaker of c. A breaker that has
// been replaced may tell of one late; so what is noted is its own.
func (g *Guard) listener(c *compartment, last *lastTransition, f *faults) func(breaker.Transition) {
	return func(t breaker.Transition) {
		last.Store(g.history.add(c.Compartment, t))
		if t.To == breaker.Open || t.To == breaker.ForcedOpen {
			c.trips.Add(1)
		}
		if g.hooks != nil {
			g.hooks.tellTransition(c, t, f)
		}
	}
}
