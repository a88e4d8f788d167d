package watertight

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A Pool is a [bulkhead.Pool] that a [Guard] knows of: it shows in the Guard's
// [Snapshot] and hooks, and so in spans, and [Guard.Drain] waits for its tasks.
// Its compartment has the pool's name for a policy, stands on the client side and
// has an empty key. Make one with [Guard.Pool]. All methods, and [Submit], may be
// called by many goroutines at once.
//
// What [bulkhead.Pool] says of tasks and of those who wait for them holds here
// too, with these additions:
//
//   - who is refused gets a *[RejectedError], which wraps what the bulkhead.Pool
//     says;
//   - a task runs under the context that the Grant hooks return, which follows
//     the submitter's;
//   - hooks hear of the Grant and the Release on the goroutine of the task,
//     Release at the end of the task, just before its worker is free;
//   - a task that the pool discards, or answers by its fallback, counts as
//     rejected with [policy.ReasonFull].
//
// A task costs two allocations more than it does there.
type Pool struct {
	g *Guard
	c *compartment // c.pool is not nil
}

// Pool makes a pool with a name and registers it for as long as the Guard lives.
// Ask for each pool once, where the Guard is made, and share it. On a Guard that
// is draining, the new pool is closed. The only way to end idle workers of the
// core is [Guard.Drain].
//
// It is an error if the name is empty, or is that of a policy or another pool.
// Pool panics if cfg is none that [bulkhead.NewPool] takes.
func (g *Guard) Pool(name string, cfg bulkhead.PoolConfig) (*Pool, error) {
	c := &compartment{
		Compartment: Compartment{Policy: name, Side: policy.Client, Per: policy.PerPolicy},
		pool:        bulkhead.NewPool(cfg),
	}
	if name == "" {
		return nil, fmt.Errorf("watertight: a pool needs a name")
	}
	taken := name == unmatchedName || name == exemptName || slices.ContainsFunc(g.Policies().Rules(), func(r *policy.Rule) bool { return r.Name == name })
	if taken {
		return nil, fmt.Errorf("watertight: pool name %q is taken by a policy; choose another", name)
	}
	c.meet() // whoever made it wants to see it, idle or not
	if !g.pools.add(c) {
		return nil, fmt.Errorf("watertight: there is a pool %q already; make it once and share it", name)
	}
	return &Pool{g: g, c: c}, nil
}

// Do has the pool run fn, waits for it and returns its error, untouched, as
// [bulkhead.Pool.Do] does: it returns ctx.Err() itself when ctx ends, and fn, if it
// runs by then, goes on and counts until it ends. If the pool refused, the error
// is a *[RejectedError]. Do panics if fn is nil.
func (p *Pool) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		panic("watertight: Do of a nil function")
	}
	t := p.newTask(ctx)
	err := p.c.pool.DoInfo(ctx, &t.info, func(context.Context) error {
		run, grants := t.begin()
		defer t.end(grants)
		return fn(run)
	})
	if t.leave() {
		return t.turnedAway(ctx, err)
	}
	return err
}

// Submit hands fn to p and returns its future, as [bulkhead.Submit] does. If the
// pool refused, the error is a *[RejectedError]; if ctx is done, or ends while the
// call waits for room, ctx.Err() itself. A task that is discarded gets a future as
// it does there. Submit panics if fn is nil.
func Submit[T any](p *Pool, ctx context.Context, fn func(ctx context.Context) (T, error)) (*bulkhead.Future[T], error) {
	if fn == nil {
		panic("watertight: Submit of a nil function")
	}
	t := p.newTask(ctx)
	f, err := bulkhead.SubmitInfo(p.c.pool, ctx, &t.info, func(context.Context) (T, error) {
		run, grants := t.begin()
		defer t.end(grants)
		return fn(run)
	})
	if err != nil {
		return nil, t.turnedAway(ctx, err)
	}
	t.follow(ctx, f.Done(), func() error { _, err := f.Wait(ctx); return err })
	return f, nil
}

// Configure changes the pool, live, as [bulkhead.Pool.Configure] does, and panics
// where that does.
func (p *Pool) Configure(cfg bulkhead.PoolConfig) { p.c.pool.Configure(cfg) }

// Snapshot returns the figures of the pool as they are now.
func (p *Pool) Snapshot() bulkhead.PoolSnapshot { return p.c.pool.Snapshot() }

// pools are the pools of a Guard, in the order in which they were made.
type pools struct {
	mu     sync.Mutex // guards the fields below
	all    []*compartment
	closed bool // new ones are born closed
}

// add reports whether the name is free.
func (ps *pools) add(c *compartment) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if slices.ContainsFunc(ps.all, func(other *compartment) bool { return other.Policy == c.Policy }) {
		return false
	}
	ps.all = append(ps.all, c)
	if ps.closed {
		c.pool.Close()
	}
	return true
}

func (ps *pools) list() []*compartment {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Clone(ps.all)
}

// drain closes all pools, those to come included, and waits for their tasks.
func (ps *pools) drain(ctx context.Context) error {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	all := ps.list()
	for _, c := range all {
		c.pool.Close()
	}
	for _, c := range all {
		if err := c.pool.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}
