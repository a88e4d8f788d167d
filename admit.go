package watertight

import (
	"context"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// Admit asks the policies whether the call that req describes may begin, and
// waits for a permit as long as they say. It returns
//
//   - a [Call] and nil: go on. [Call.SettleStatus] or [Call.SettleFailure]
//     must follow when the outcome is known, and [Call.Release] when the call
//     no longer takes room; Release alone files no outcome;
//   - a *[RejectedError]: a policy refused;
//   - ctx.Err() itself: the caller left before it was admitted. A context that
//     is done loses even if a permit is free. [Call.Left] of the Call is what a
//     server answers.
//
// What no policy limits is let through even if ctx is done. What ctx says by
// [WithoutLimits] or [WithPolicy] comes before what the policies match. ctx must not
// be nil, nor req, which is only read, and not kept.
func (g *Guard) Admit(ctx context.Context, req *policy.Request) (c Call, err error) {
	sd := &g.sides[sideIndex(req.Side)]
	var outer *mark
	if req.Side == policy.Server && g.wraps.Load() > 1 {
		outer = g.markOf(ctx)
	}

	o := overrideOf(ctx, req.Side)
	if o.unlimited {
		return g.passExempt(ctx, sd.exempt, outer), nil
	}
	gen := g.current.Load()
	var d policy.Decision
	if o.policy == "" {
		d = gen.set.Match(req)
	} else {
		d = g.decide(ctx, gen.set, req, o)
	}
	if d.Exempt != nil {
		return g.passExempt(ctx, gen.place(d.Exempt, req.Side).fixed, outer), nil
	}
	if d.Bulkhead == nil && d.Breaker == nil || req.RouteKnown && req.Route == "" {
		return g.passUnlimited(ctx, req, sd, outer)
	}

	c.g, c.side, c.ctx, c.hookCtx, c.runCtx, c.outer = g, sd, ctx, ctx, ctx, outer
	changes := c.enter(gen, req, &d)
	if !c.bulkhead.taken() && !c.breaker.taken() {
		// Everything that would decide has let this request in before.
		if h := g.hooks; h != nil {
			h.tableChanges(ctx, changes)
		}
		return c, nil
	}
	admitted := false
	// In a defer, for a hook that ends the goroutine and a context that panics. c is
	// the result, and must stay what it is until this has given back what it holds.
	defer func() {
		if !admitted {
			defer func() {
				c.depart()
				c = Call{left: c.left}
			}()
			c.giveBack()
		}
	}()
	if err = c.admit(req, changes); err != nil {
		return c, err
	}
	admitted = true
	return c, nil
}

// passExempt lets an exempt call through, drained or not.
func (g *Guard) passExempt(ctx context.Context, c *compartment, outer *mark) Call {
	call := Call{g: g, ctx: ctx, hookCtx: ctx, runCtx: ctx, outer: outer}
	if !outer.has(forPermit, c) {
		c.meet()
		c.granted.Add(1)
		c.inFlight.Add(1)
		call.counter = c
	}
	return call
}

// passUnlimited lets a call through that no policy or no route matches, unless
// the Guard is draining.
func (g *Guard) passUnlimited(ctx context.Context, req *policy.Request, sd *side, outer *mark) (Call, error) {
	c := sd.unmatched
	if outer != nil {
		// Admitted further out; what limits nothing need not count it again.
		return Call{g: g, ctx: ctx, hookCtx: ctx, runCtx: ctx, outer: outer}, nil
	}
	c.meet()
	call := Call{g: g, side: sd, ctx: ctx, hookCtx: ctx, runCtx: ctx}
	if !sd.gate.enter() {
		if h := g.hooks; h != nil {
			call.hookCtx, _ = h.arrive(ctx, req)
		}
		return Call{}, call.reject(c, policy.ReasonDraining, bulkhead.ErrClosed, refusal{})
	}
	call.gated = true
	c.granted.Add(1)
	c.inFlight.Add(1)
	call.counter = c
	return call, nil
}

// enter finds the compartments of the decision that the request is not in
// already, and pins them. It returns what the tables did for that.
func (c *Call) enter(gen *generation, req *policy.Request, d *policy.Decision) (changes []tableChange) {
	if c.outer != nil && !req.RouteKnown {
		c.outer.trust(req, d)
	}
	var buf [128]byte
	if d.Breaker != nil {
		c.breaker, changes = gen.enter(buf[:0], req, d.Breaker, d.BreakerPattern)
	}
	if d.Bulkhead != nil {
		if d.Bulkhead == d.Breaker {
			c.bulkhead = c.breaker
		} else {
			var more []tableChange
			c.bulkhead, more = gen.enter(buf[:0], req, d.Bulkhead, d.BulkheadPattern)
			changes = append(changes, more...)
		}
	}
	if c.outer != nil {
		c.dropEntered()
	}
	return changes
}

// enter returns the compartment of a rule for req, pinned.
func (g *generation) enter(buf []byte, req *policy.Request, r *policy.Rule, pattern string) (_ seat, changes []tableChange) {
	p := g.place(r, req.Side)
	c := p.fixed
	if c != nil {
		c.meet()
	} else {
		c, changes = p.table.acquire(r.AppendKey(buf, req, pattern))
	}
	return seat{c, c.limits.Load()}, changes
}

// unpin ends the pin of one call, which has held nothing since at, counted from start;
// 0: since now.
func (c *compartment) unpin(at time.Duration) {
	if c.table != nil {
		c.table.release(c, at)
	}
}

// A refusal is what a bulkhead or a breaker looked like when it refused.
type refusal struct {
	limit, inFlight, queued int
	state                   breaker.State
	remaining               time.Duration
}

// admit takes the call through its breaker and its bulkhead. On an error the
// call may still hold some of what it took. It tells what became of tables first.
func (c *Call) admit(req *policy.Request, changes []tableChange) error {
	decides := c.bulkhead.compartment
	if decides == nil {
		decides = c.breaker.compartment
	}
	gone := c.ctx.Err()
	if h := c.g.hooks; h != nil {
		if gone == nil {
			c.hookCtx, c.derived = h.arrive(c.ctx, req)
			c.runCtx = c.hookCtx
		}
		h.tableChanges(c.hookCtx, changes)
	}
	if gone != nil {
		c.leave(decides)
		return gone
	}
	// A request that is inside already, in another compartment, is not a new
	// one: draining lets it finish.
	if !c.outer.inside() {
		if !c.side.gate.enter() {
			return c.reject(decides, policy.ReasonDraining, bulkhead.ErrClosed, refusal{})
		}
		c.gated = true
	}

	if c.breaker.taken() {
		if err := c.ask(); err != nil {
			return err
		}
	}
	if c.bulkhead.taken() {
		if err := c.acquire(); err != nil {
			return err
		}
	} else {
		decides.inFlight.Add(1)
		c.counter = decides
	}
	c.exposed()
	decides.granted.Add(1)
	return nil
}

// ask asks the breaker. One that only observes may say no, and the call goes on.
func (c *Call) ask() (err error) {
	if c.watch, err = c.breaker.breaker.Allow(c.hookCtx); err == nil {
		return nil
	}
	if !c.breaker.observes() {
		return c.rejectOpen()
	}
	c.observeOpen()
	return nil
}

// take takes a permit, and reports whether it stopped the call's time for that.
//
// A call must not become overdue while it is only in the queue. But to stop its
// time costs as much as to ask the breaker, so one that finds a permit free goes
// without.
func (c *Call) take(info *bulkhead.Info) (paused bool, err error) {
	b := c.bulkhead
	if c.Watched() && c.breaker.breakerRule.SlowCall > 0 && b.bulkheadRule.MaxQueue > 0 {
		if c.ctx.Err() == nil {
			if c.permit, err = b.bulkhead.TryAcquireInfo(info); err == nil {
				return false, nil
			}
		}
		c.watch = c.watch.Pause(c.hookCtx)
		paused = true
	}
	c.permit, err = b.bulkhead.AcquireInfo(c.ctx, info)
	return paused, err
}

// acquire gets the permit.
func (c *Call) acquire() error {
	b := c.bulkhead
	var info bulkhead.Info
	paused, err := c.take(&info)
	waited := info.Position > 0
	if waited {
		b.noteWait(info.Waited)
		b.pressure.note(info.Arrived, info.Arrived.Add(info.Waited))
	}
	if waited && c.g.hooks != nil {
		c.g.hooks.wait(c.hookCtx, WaitEvent{
			Compartment: b.Compartment,
			Arrived:     info.Arrived,
			Waited:      info.Waited,
			Position:    info.Position,
			Result:      waitResult(err),
		})
	}
	if err != nil {
		reason, refused := reasonOf(err)
		if !refused {
			c.leave(b.compartment)
			return err
		}
		if reason == policy.ReasonFull {
			now := time.Now()
			b.pressure.note(now, now)
		}
		return c.reject(b.compartment, reason, err, refusal{limit: info.Limit, inFlight: info.InFlight, queued: info.Queued})
	}
	if b.dryRun != nil {
		c.beginDryRun()
	}
	if c.Watched() && (paused || waited) {
		if err := c.restart(waited); err != nil {
			return err
		}
	}
	if h := c.g.hooks; h != nil {
		var derived bool
		c.runCtx, derived, c.granted = h.grant(c.hookCtx, GrantEvent{
			Compartment: b.Compartment,
			Limit:       b.shownLimit(info.Limit),
			InFlight:    info.InFlight,
			Waited:      info.Waited,
		})
		c.derived = c.derived || derived
	}
	return nil
}

// restart lets the breaker count the call's time from now on. If the call
// queued, what the breaker said before may no longer be worth anything: it may
// have opened meanwhile. Then it is asked once more; if its word still holds,
// asking would cost a half-open probe its place.
//
// The watch is restarted first, and only then asked whether it is stale. The
// other way round, a probe could be given up for its age between the two, and
// the call go on as one that the breaker does not know of.
func (c *Call) restart(queued bool) error {
	arrived := c.watch.Start()
	c.watch = c.watch.Restart(c.hookCtx)
	if !queued {
		return nil
	}
	if c.watch.Stale() {
		if err := c.ask(); err != nil || !c.Watched() {
			return err
		}
	}
	c.queued = c.watch.Start().Sub(arrived)
	return nil
}

func waitResult(err error) string {
	if err == nil {
		return "granted"
	}
	reason, _ := reasonOf(err)
	return reason.String()
}

// leave counts a caller that left before it was admitted.
func (c *Call) leave(by *compartment) {
	by.left.Add(1)
	c.left = by
}

func (c *Call) rejectOpen() error {
	return c.reject(c.breaker.compartment, policy.ReasonOpen, breaker.ErrOpen, refusal{
		state:     c.watch.State(),
		remaining: c.watch.Remaining(),
	})
}

// reject counts and tells of a refusal by the compartment by, and returns it. A
// permit or a probe is given back before hooks are called, who may take their
// time.
func (c *Call) reject(by *compartment, reason policy.Reason, err error, r refusal) error {
	c.giveBack()
	by.reject(reason)
	rejected := by.refuse(reason, err, r)
	if h := c.g.hooks; h != nil {
		h.reject(c.hookCtx, by.eventOf(rejected, r))
	}
	return rejected
}

// refuse returns what a caller gets whom the compartment refuses.
func (c *compartment) refuse(reason policy.Reason, err error, r refusal) *RejectedError {
	retryAfter := c.retryAfter()
	if r.remaining > 0 {
		retryAfter = r.remaining
	}
	return &RejectedError{
		Policy:     c.Policy,
		Key:        c.keyForCallers(),
		Reason:     reason,
		RetryAfter: retryAfter,
		Err:        err,
		status:     c.rejectStatus(reason),
	}
}

// eventOf returns what hooks hear of a refusal.
func (c *compartment) eventOf(rejected *RejectedError, r refusal) RejectEvent {
	if l := c.limits.Load(); r.limit == 0 && l != nil && l.bulkhead != nil {
		s := l.bulkhead.Snapshot()
		r.limit, r.inFlight, r.queued = l.shownLimit(s.Limit), s.InFlight, s.Queued
	}
	return RejectEvent{
		Compartment: c.Compartment,
		Reason:      rejected.Reason,
		Breaker:     r.state,
		Limit:       r.limit,
		InFlight:    r.inFlight,
		Queued:      r.queued,
		RetryAfter:  rejected.RetryAfter,
		Err:         rejected,
	}
}
