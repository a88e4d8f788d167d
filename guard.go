package watertight

import (
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/watertight-go/watertight/policy"
)

// A Guard holds the compartments of one set of policies and decides which
// calls may pass. Make one with [New] and share it: between all routers,
// clients and goroutines of a process. All methods are safe for concurrent
// use. A Guard starts no goroutine but the workers of its pools; call
// [Guard.Close] when hooks shall let go of it.
type Guard struct {
	current atomic.Pointer[generation]
	hooks   *hookSets // nil: none
	logs    *logs
	sides   [2]side
	pools   pools
	reloads reloads
	history history

	wraps    atomic.Int64 // handlers that middleware has wrapped; see mark.go
	draining atomic.Bool
	misnamed atomic.Bool // WithPolicy named a policy that there is not

	closed atomic.Bool
	detach []func()
}

// A side is what a Guard holds for the server or the client side, which never
// share a compartment.
type side struct {
	unmatched *compartment
	exempt    *compartment // of WithoutLimits
	gate      gate
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

// WithLogger sets where the Guard reports which policies came into force or could
// not, and what somebody should mend: a policy that is likely not meant, a hook that
// panicked, a response body that was never closed. The records are listed in
// docs/logs.md; package metrics adds those about calls and breakers. The default
// is slog.Default() at the time of the report; the last one given wins, and nil
// changes nothing.
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
	g := &Guard{logs: newLogs(o.logger)}
	if len(o.hooks) > 0 {
		g.hooks = &hookSets{sets: o.hooks, logs: g.logs}
		g.hooks.faults = slices.ContainsFunc(o.hooks, func(h Hooks) bool { return h.Fault != nil })
		g.logs.hooks = g.hooks
	}
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		sd := &g.sides[sideIndex(s)]
		sd.gate.init()
		sd.unmatched = &compartment{Compartment: Compartment{Policy: unmatchedName, Side: s, Per: policy.PerPolicy}}
		sd.exempt = &compartment{Compartment: Compartment{Policy: exemptName, Side: s, Per: policy.PerPolicy}}
	}
	g.install(set)
	g.warn(set)
	if g.hooks != nil {
		g.detach = g.hooks.attach(g)
	}
	return g
}

// Close calls what the hooks' Attach returned, and logs how many records were left
// out that nothing was said of yet; the first time only. It leaves calls alone: see
// [Guard.Drain] for those.
func (g *Guard) Close() {
	if g.closed.Swap(true) {
		return
	}
	for _, detach := range g.detach {
		detach()
	}
	g.logs.flush()
}

// Policies returns the set that is in force.
func (g *Guard) Policies() *policy.Set { return g.current.Load().set }
