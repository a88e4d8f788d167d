package watertight

import (
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// What follows is done for policies that only observe. A call that one of them would
// have turned away goes on, but not as far as the other is concerned, if that one only
// observes as well: it would not have come there, or not gone on from there.

// observeOpen notes that the call's breaker would have refused it. It has no outcome
// then.
func (c *Call) observeOpen() {
	c.settled = true
	c.breaker.observe(policy.ReasonOpen)
	c.tellObserved(c.breaker.compartment, policy.ReasonOpen, breaker.ErrOpen, refusal{
		state:     c.watch.State(),
		remaining: c.watch.Remaining(),
	})
}

// beginDryRun takes the call, which has its permit, to where the bulkhead would have
// had it wait, or refused it.
func (c *Call) beginDryRun() {
	if c.breaker.taken() && !c.Watched() {
		return // the breaker would have refused it
	}
	d := c.bulkhead.dryRun
	a, state := d.begin()
	if state != attemptRefused {
		c.attempt = a
		return
	}
	if c.Watched() && c.breaker.observes() {
		c.SettleIgnored()
	}
	c.tellObserved(c.bulkhead.compartment, policy.ReasonFull, bulkhead.ErrFull, d.look())
}

// endDryRun notes that the call has ended. Doing so again does nothing.
func (c *Call) endDryRun() {
	if c.attempt != nil {
		c.timedOut = c.bulkhead.dryRun.end(c.attempt) == attemptTimedOut
		c.attempt = nil
	}
}

// tellTimedOut tells of a call that has ended, and would not have begun.
func (c *Call) tellTimedOut() {
	if c.timedOut {
		c.tellObserved(c.bulkhead.compartment, policy.ReasonWaitTimeout, bulkhead.ErrWaitTimeout, c.bulkhead.dryRun.look())
	}
}

func (c *Call) tellObserved(by *compartment, reason policy.Reason, err error, r refusal) {
	if h := c.g.hooks; h != nil {
		h.observe(c.hookCtx, by.eventOf(by.refuse(reason, err, r), r))
	}
}
