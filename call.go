package watertight

import (
	"context"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A Call is one that a [Guard] admitted. It is a value that its owner may pass
// on, to another goroutine too, but not copy and use twice; its methods are not
// safe for concurrent use. The zero Call does nothing.
type Call struct {
	g    *Guard
	side *side

	ctx     context.Context // the caller's
	hookCtx context.Context // what the hooks get: ctx, or what Arrive made of it
	runCtx  context.Context // what the call runs under: hookCtx, or what Grant made of it
	derived bool            // runCtx is not ctx
	outer   *mark           // of the request, if it met this Guard before
	mark    *mark           // of this call, if MarkedContext made one

	bulkhead seat         // that granted the permit; empty: none asked
	breaker  seat         // that watches; empty: none asked
	counter  *compartment // whose inFlight counts the call, where no bulkhead does
	permit   bulkhead.Permit
	granted  grants // what the Grant hooks returned
	watch    breaker.Call
	attempt  *attempt // in the dry run of bulkhead; nil: not in one
	timedOut bool     // in that dry run, in its queue

	queued   time.Duration // from its arrival until the call proper began, if it queued; only with a breaker
	answered time.Duration // how long the call proper took until its answer began, if it has: see Answering
	status   int           // of an answer whose outcome SettleBody is to file; 0: none

	ended time.Duration // when the permit was given back, from start; 0: nobody has looked
	left  *compartment  // of a call that was not admitted because its caller left

	ticket   uint32          // among the faults of breaker, while the call may become overdue; 0: not there
	judged   breaker.Outcome // by Judge; 0: not
	gated    bool            // counted at the side's gate
	settled  bool
	released bool
}

// Context returns the context that the call must run under, and whether it is
// another than the one given to [Guard.Admit] because a hook added to it.
func (c *Call) Context() (ctx context.Context, derived bool) { return c.runCtx, c.derived }

// Left returns what a server answers a caller that left, for a Call that
// [Guard.Admit] returned with err, the context's own error: it may have closed
// only its sending half, or the deadline may be the server's own. The reason is
// [policy.ReasonCanceled]; it is no rejection, and is not counted as one.
func (c *Call) Left(err error) *RejectedError {
	r := &RejectedError{Reason: policy.ReasonCanceled, Err: err}
	if c.left != nil {
		r.Policy, r.Key, r.status = c.left.Policy, c.left.keyForCallers(), c.left.rejectStatus(policy.ReasonCanceled)
	}
	return r
}

// Watched reports whether a breaker waits for the call's outcome. If not,
// nobody needs to find it out.
func (c *Call) Watched() bool { return c.breaker.taken() && !c.settled }

// MarkedContext is Context for the server side: it adds the mark by which the
// Guard knows a request that it meets again, if it may; see [Guard.Wrapped].
func (c *Call) MarkedContext() (ctx context.Context, derived bool) {
	if c.g == nil || c.g.wraps.Load() <= 1 {
		return c.runCtx, c.derived
	}
	if c.mark == nil {
		in := [...]*compartment{forPermit: c.bulkhead.compartment, forOutcome: c.breaker.compartment}
		if !c.bulkhead.taken() && !c.breaker.taken() {
			if c.counter == nil {
				return c.runCtx, c.derived // in nothing that outer does not name
			}
			in[forPermit] = c.counter
		}
		c.mark = &mark{entered: in, gated: c.gated, outer: c.outer}
	}
	return context.WithValue(c.runCtx, markKey{c.g}, c.mark), true
}

// Release gives back what the call holds; the first time only. An outcome that
// was not filed by then is none.
func (c *Call) Release() { c.release(false) }

// Leak is Release for a response body that was dropped without being closed:
// it is counted and logged.
func (c *Call) Leak() {
	if c.released {
		return
	}
	by := c.bulkhead.compartment
	if by == nil {
		by = c.counter
	}
	if by != nil {
		by.leaked.Add(1) // before, so that whoever sees the permit back sees why
	}
	c.release(true)
	if by != nil {
		c.g.logs.leaked(c.runCtx, by)
	}
}

func (c *Call) release(leaked bool) {
	if c.released || c.g == nil {
		return
	}
	c.released = true
	if c.mark != nil {
		c.mark.released.Store(true)
	}
	defer c.depart()
	c.giveBack()
	c.tellTimedOut()
	if h := c.g.hooks; h != nil && !c.granted.none() {
		c.ended = time.Since(start)
		h.release(&c.granted, c.bulkhead.Compartment, c.ended, leaked)
	}
}

// giveBack returns what others can use, the permit and a probe. Doing so again
// does nothing.
func (c *Call) giveBack() {
	c.permit.Release()
	c.permit = bulkhead.Permit{}
	c.endDryRun()
	if c.counter != nil {
		c.counter.inFlight.Add(-1)
		c.counter = nil
	}
	if c.breaker.taken() && !c.settled {
		c.settled = true
		c.safe()
		// Not Cancel: a change of state that is due has been seen by this call.
		c.watch.Done(c.hookCtx, breaker.Ignored)
	}
}

// depart is the last that a call does: then the tables may drop its compartments,
// and Drain, for which the call's hooks are part of it, may return.
func (c *Call) depart() {
	if c.bulkhead.taken() {
		c.bulkhead.unpin(c.ended)
	}
	if c.breaker.taken() && c.breaker.compartment != c.bulkhead.compartment {
		c.breaker.unpin(c.ended)
	}
	if c.gated {
		c.side.gate.leave()
	}
}
