package watertight

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A Guard holds the compartments of one set of policies and decides which
// calls may pass. Make one with [New] and share it: between all routers,
// clients and goroutines of a process. All methods are safe for concurrent
// use. A Guard starts no goroutine but the workers of its pools; call
// [Guard.Close] when hooks shall let go of it.
type Guard struct {
	set    *policy.Set
	hooks  *hookSets // nil: none
	logger *slog.Logger
	sides  [2]side
	named  map[string]*compartment // by policy: what Do enters; client side
	pools  pools

	wraps    atomic.Int64 // handlers that middleware has wrapped; see mark.go
	draining atomic.Bool

	closed atomic.Bool
	detach []func()
}

// A side is what a Guard holds for the server or the client side, which never
// share a compartment.
type side struct {
	places    []place // by index of the policy; the zero place where a policy has no such side
	unmatched *compartment
	gate      gate
}

// A place is where the compartments of one policy are kept.
type place struct {
	fixed *compartment // the only one: per: policy, and exempt policies
	table *table       // one for each key
}

// sideIndex gives the place of a side in Guard.sides.
func sideIndex(s policy.Side) int {
	if s == policy.Client {
		return 1
	}
	return 0
}

// An Option configures a [Guard].
type Option interface{ apply(*options) }

type options struct {
	hooks  []Hooks
	logger *slog.Logger
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithHooks adds a set of hooks; see package metrics for the ready-made ones.
// Given more than once, all sets are called in the order given; only the
// Releases are called in the reverse order, as their Grants nest.
func WithHooks(h Hooks) Option {
	return optionFunc(func(o *options) { o.hooks = append(o.hooks, h) })
}

// WithLogger sets where the Guard reports what somebody should mend: a policy
// that is likely not meant, a hook that panicked, a response body that was never
// closed. The default, also for
// nil, is slog.Default() at the time of the report; the last one given wins.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(o *options) {
		if l != nil {
			o.logger = l
		}
	})
}

// New returns a Guard for the policies in set. A nil set limits nothing. It
// logs the set's warnings: what is legal there, but likely not meant.
func New(set *policy.Set, opts ...Option) *Guard {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	if set == nil {
		set = new(policy.Set)
	}
	g := &Guard{set: set, logger: o.logger, named: make(map[string]*compartment)}
	if len(o.hooks) > 0 {
		g.hooks = &hookSets{sets: o.hooks, report: g.report}
	}
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		sd := &g.sides[sideIndex(s)]
		sd.gate.init()
		sd.unmatched = &compartment{Compartment: Compartment{Policy: unmatchedName, Side: s, Per: policy.PerPolicy}}
		rules := set.Rules()
		sd.places = make([]place, len(rules))
		for i, r := range rules {
			if r.Side != policy.Both && r.Side != s {
				continue
			}
			if r.Exempt || r.PerOn(s) == policy.PerPolicy {
				sd.places[i].fixed = g.build(r, s, "")
				continue
			}
			d := set.Defaults()
			sd.places[i].table = newTable(d.MaxCompartments, d.Idle, func(key string) *compartment {
				return g.build(r, s, key)
			})
		}
	}
	g.nameCompartments()
	for _, w := range set.Warnings() {
		g.report(slog.LevelWarn, "watertight: "+w.Error())
	}
	if g.hooks != nil {
		g.detach = g.hooks.attach(g)
	}
	return g
}

// build makes the compartment of a policy for one key.
func (g *Guard) build(r *policy.Rule, s policy.Side, key string) *compartment {
	c := &compartment{
		Compartment: Compartment{Policy: r.Name, Side: s, Per: r.PerOn(s), Key: key},
		rule:        r,
	}
	if b := r.Bulkhead; b != nil {
		c.bulkhead = bulkhead.New(bulkhead.Config{Limit: b.MaxConcurrent, Backlog: b.MaxQueue, MaxWait: b.MaxWait})
	}
	if b := r.Breaker; b != nil {
		cfg := breaker.Config{
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
		// Of another policy's bulkhead nothing follows: the calls of one breaker
		// may come through several, and go past it.
		if r.Bulkhead != nil {
			cfg.OverdueLimit = r.Bulkhead.MaxConcurrent
		}
		if g.hooks != nil {
			cfg.OnTransition = func(t breaker.Transition) {
				g.hooks.transition(t.Context, TransitionEvent{Compartment: c.Compartment, Transition: t})
			}
		}
		c.breaker = breaker.New(cfg)
	}
	return c
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

// Close calls what the hooks' Attach returned, the first time only. It leaves
// calls alone: see [Guard.Drain] for those.
func (g *Guard) Close() {
	if g.closed.Swap(true) {
		return
	}
	for _, detach := range g.detach {
		detach()
	}
}

// Policies returns the set that the Guard was made with.
func (g *Guard) Policies() *policy.Set { return g.set }

// report logs. A logger that panics has nobody to be reported to, and is no
// reason to fail the call that it would have told of.
func (g *Guard) report(level slog.Level, msg string, args ...any) {
	defer func() { _ = recover() }()
	l := g.logger
	if l == nil {
		l = slog.Default()
	}
	l.Log(context.Background(), level, msg, args...)
}
