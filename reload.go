package watertight

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// reloads is what a Guard knows of the sets that came after its first.
type reloads struct {
	// turn is held while a set is put in force or a side is closed, hooks included:
	// one after the other. It comes before mu.
	turn   sync.Mutex
	closed [2]bool // by side: drained, so new bulkheads are born closed; guarded by turn

	mu     sync.Mutex // guards the fields below; no hook is called under it
	gone   []place    // of policies that are no more, while calls are in them
	status PolicyStatus
}

// A PolicyStatus says which policies are in force, and how it went when others
// were to be. Its JSON form is stable: fields are added, never renamed.
type PolicyStatus struct {
	Version string    `json:"version"`         // of the file in force, a digest of what it holds; "" for policies made in code
	Since   time.Time `json:"since"`           // when it came into force
	Reloads uint64    `json:"reloads"`         // sets that replaced another
	Failed  uint64    `json:"failed"`          // times that [Guard.ReloadFailed] was called
	Error   string    `json:"error,omitempty"` // of the latest reload, if it failed; those in force stayed

	// FailingSince is when the first of the reloads failed that have done so in a row.
	// Zero if the latest did not.
	FailingSince time.Time `json:"failingSince,omitzero"`
}

// Reload puts a set of policies in force in place of the one that is, without a seam.
// It is for use by [Guard.Follow], and for programs that get their policies from
// elsewhere. A nil set limits nothing.
//
// A policy is the same as before if it has the same name. Of one that stays:
//
//   - the limit of each bulkhead is changed in place. Permits that are out stay valid
//     and count; after a shrink nobody is admitted until enough have come back.
//     Whoever waits keeps the place and the max wait that it had. So in flight is
//     never above the higher of the two limits, and never grows while it is above
//     the new one;
//   - each breaker keeps its state, and its window as far as the new one can hold it:
//     see [breaker.Breaker.Configure];
//   - counts go on.
//
// A policy that is gone, or that divides its calls in another way than before (per, or
// exempt beside per), takes no more calls: those that are in end as they would have,
// waiters get their turn, and its compartments are in the [Snapshot] until they have.
// A bulkhead or breaker that a policy has lost lets everybody in who waits.
//
// Each call is judged by one set, from beginning to end, but meets the limits of the
// moment. Reload returns when no call that begins later can be judged by the old
// set. It must not be called by a hook.
func (g *Guard) Reload(set *policy.Set) {
	if set == nil {
		set = new(policy.Set)
	}
	g.reloads.turn.Lock()
	defer g.reloads.turn.Unlock()
	old := g.current.Load()
	g.install(set)
	g.reloads.note(func(s *PolicyStatus) { s.Reloads, s.Error, s.FailingSince = s.Reloads+1, "", time.Time{} })
	if g.logs.reloaded(set.Version(), len(set.Rules())) {
		g.warn(set)
	}
	if g.hooks != nil {
		for _, e := range limitChanges(old, g.current.Load()) {
			g.hooks.limitChange(context.Background(), e)
		}
		g.hooks.reload(ReloadEvent{Version: set.Version()})
	}
}

// ReloadFailed notes that policies could not be loaded: those in force stay. The error
// is logged, and in the [Snapshot] until a Reload. It must not be called by a hook.
func (g *Guard) ReloadFailed(err error) {
	g.reloads.turn.Lock()
	defer g.reloads.turn.Unlock()
	g.reloads.note(func(s *PolicyStatus) {
		s.Failed, s.Error = s.Failed+1, err.Error()
		if s.FailingSince.IsZero() {
			s.FailingSince = time.Now()
		}
	})
	g.logs.reloadFailed(g.Policies().Version(), err)
	if g.hooks != nil {
		g.hooks.reload(ReloadEvent{Version: g.Policies().Version(), Err: err})
	}
}

// Follow puts in force what becomes of a policy file, until ctx is done: see
// [policy.Watcher.Run], whose rules hold here. A file that is bad or missing changes
// nothing, and is told of as by [Guard.ReloadFailed].
//
//	w, err := policy.Watch("watertight.yaml")
//	...
//	wt := watertight.New(w.Set())
//	go wt.Follow(ctx, w)
func (g *Guard) Follow(ctx context.Context, w *policy.Watcher) {
	w.Run(ctx, func(set *policy.Set, err error) {
		if err != nil {
			g.ReloadFailed(err)
		} else {
			g.Reload(set)
		}
	})
}

// install puts a set in force. Only one does at a time.
//
// What the old and the new generation share is changed before the new one is: so a
// call that is judged by the new set finds its limits there. A call that is judged
// by the old one may find those of the new; that is why a limits never loses what it
// once had.
func (g *Guard) install(set *policy.Set) {
	old := g.current.Load()
	if old == nil {
		old = &generation{set: new(policy.Set)}
	}
	next, gone := g.succeed(old, set)
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		if g.reloads.closed[sideIndex(s)] {
			next.close(s)
		}
	}
	g.reloads.mu.Lock()
	defer g.reloads.mu.Unlock()
	// With what goes, so that nobody who looks finds a place in both or in neither.
	g.current.Store(next)
	g.reloads.gone = append(g.reloads.gone, gone...)
	g.reloads.forgetGoneLocked()
	g.reloads.status.Version, g.reloads.status.Since = set.Version(), time.Now()
}

func (r *reloads) note(change func(*PolicyStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// warn logs what is allowed in a set but hardly meant.
func (g *Guard) warn(set *policy.Set) {
	for _, w := range set.Warnings() {
		g.logs.write(context.Background(), slog.LevelWarn, policyMessage, slog.String("warning", w.Error()))
	}
}

// forgetGoneLocked lets go of the places that no call is in any more. A call that was
// judged by an earlier set may still be on its way into one: it holds what it needs,
// and is missing from the snapshot.
func (r *reloads) forgetGoneLocked() {
	kept := r.gone[:0]
	for _, p := range r.gone {
		for _, c := range p.all() {
			if c.busy() {
				kept = append(kept, p)
				break
			}
		}
	}
	clear(r.gone[len(kept):])
	r.gone = kept
}

// look returns what is in force, the status of the same moment, and the compartments of
// the policies that are gone.
func (g *Guard) look() (*generation, PolicyStatus, []*compartment) {
	r := &g.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetGoneLocked()
	var gone []*compartment
	for _, p := range r.gone {
		gone = append(gone, p.all()...)
	}
	return g.current.Load(), r.status, gone
}

// busy reports whether a call is inside, or waits to be.
func (c *compartment) busy() bool {
	if c.inFlight.Load() > 0 {
		return true
	}
	l := c.limits.Load()
	if l == nil || l.bulkhead == nil {
		return false
	}
	s := l.bulkhead.Snapshot()
	return s.InFlight > 0 || s.Queued > 0
}

// close refuses whoever queues on that side, and whoever will.
func (g *generation) close(s policy.Side) {
	for _, p := range g.places[sideIndex(s)] {
		p.close()
	}
	if s == policy.Client {
		for _, c := range g.named {
			c.close()
		}
	}
}

// closeSide closes every bulkhead of a side, those of sets to come included.
func (g *Guard) closeSide(s policy.Side) {
	g.reloads.turn.Lock()
	defer g.reloads.turn.Unlock()
	g.reloads.closed[sideIndex(s)] = true
	gen, _, gone := g.look()
	gen.close(s)
	for _, c := range gone {
		if c.Side == s {
			c.close()
		}
	}
}
