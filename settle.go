package watertight

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// SettleStatus files the outcome of a call that was answered with an HTTP
// status: a failure if the policy's failureStatus names it, else a success,
// and slow, in either case, if the call took longer than slowCall. On the
// server side a caller that left weighs more, see [Call.SettleFailure]. Only
// the first Settle counts.
func (c *Call) SettleStatus(status int) {
	if !c.breaker.taken() || c.settled {
		return
	}
	c.settle(c.outcomeOf(status), c.breaker.Side == policy.Server)
}

func (c *Call) outcomeOf(status int) breaker.Outcome {
	if c.judged != 0 {
		return c.judged
	}
	if c.breaker.breakerRule.IsFailure(status) {
		return breaker.Failure
	}
	return breaker.Success
}

// SettleFailure files the outcome of a call that was not answered: a transport
// error, or a handler that panicked. The caller's own doing is told apart from
// a failure:
//
//   - a caller that cancelled is no outcome at all if the call had lasted less
//     than slowCall, else the call was slow, but did not fail;
//   - a caller whose deadline passed saw a failure if the call itself, the
//     queue excluded, had at least half of the time from arrival to deadline.
//     Otherwise it is no outcome.
//
// Only the first Settle counts.
func (c *Call) SettleFailure() {
	if !c.breaker.taken() || c.settled {
		return
	}
	if c.judged == breaker.Success {
		c.settle(breaker.Success, false)
		return
	}
	c.settle(cmp.Or(c.judged, breaker.Failure), true)
}

// Judge says what the call's outcome is, in place of what its policy would make of
// a status or of a missing answer; 0, or anything else that is no outcome, leaves it
// to the policy. It files nothing: a Settle must follow, and weighs a failure as
// ever against what the caller itself did. With settle: body, a body that breaks off
// is still a failure, unless the call is judged to be ignored.
func (c *Call) Judge(o breaker.Outcome) {
	switch o {
	case breaker.Success, breaker.Failure, breaker.Ignored:
		c.judged = o
	default:
		c.judged = 0
	}
}

// SettleIgnored files that the call has no outcome: what became of it says nothing
// about what the breaker watches. A half-open breaker gets its probe back. Only the
// first Settle counts.
func (c *Call) SettleIgnored() {
	if !c.breaker.taken() || c.settled {
		return
	}
	c.settle(breaker.Ignored, false)
}

// Answering tells the breaker that the answer of a server's call is on its way, with
// that status. How long the rest takes is up to the client, and to what is streamed:
// from now on the call is neither overdue, nor slow if it is not yet. Its outcome is
// still to be settled, but for a half-open probe, for which others wait: that is
// settled by the status now. It does nothing after the call was settled.
func (c *Call) Answering(status int) {
	if !c.breaker.taken() || c.settled {
		return
	}
	if c.breaker.breakerRule.SlowCall > 0 {
		c.answered = max(1, time.Since(c.watch.Start()))
	}
	if c.watch.State() == breaker.HalfOpen {
		c.SettleStatus(status)
		return
	}
	c.safe()
	c.watch = c.watch.Responded(c.hookCtx)
}

// Responded is SettleStatus for a client's call whose response has a body, unless
// the policy's breaker has settle: body. In that case nothing is filed yet, and
// [Call.SettleBody] must follow; until then the breaker does not take the call for
// overdue.
func (c *Call) Responded(status int) {
	if !c.breaker.taken() || c.settled {
		return
	}
	if c.breaker.breakerRule.Settle != policy.SettleBody {
		c.SettleStatus(status)
		return
	}
	c.status = status
	c.safe()
	c.watch = c.watch.Responded(c.hookCtx)
}

// SettleBody files the outcome of a call that [Call.Responded] left open, when its
// response body has ended; else it does nothing. err says how:
//
//   - io.EOF: it was read to its end. What counts is the status.
//   - nil: it was closed or abandoned before. What counts is the status, or the
//     caller's end as in [Call.SettleFailure] if its context has ended.
//   - any other error: it broke off. That is a failure, with the same exceptions
//     as in SettleFailure.
//
// The call was slow if it took longer than slowCall up to now. Only the first
// Settle counts.
func (c *Call) SettleBody(err error) {
	if !c.breaker.taken() || c.settled || c.status == 0 {
		return
	}
	o := c.outcomeOf(c.status)
	if err != nil && err != io.EOF && o != breaker.Ignored {
		o = breaker.Failure
	}
	c.settle(o, err != io.EOF)
}

// RetryAfter tells the breaker for how long the upstream asks to be left alone. If
// its policy has openFor.retryAfter, and the breaker trips before that time is over,
// it stays open until then, but no longer than the policy says. It does nothing
// after the call was settled, or if wait is not positive.
func (c *Call) RetryAfter(wait time.Duration) {
	if c.breaker.taken() && !c.settled {
		c.watch.RetryAfter(wait)
	}
}

func (c *Call) settle(o breaker.Outcome, weigh bool) {
	c.settled = true
	c.safe()
	if o == breaker.Ignored {
		c.watch.Done(c.hookCtx, o)
		return
	}
	if !weigh {
		c.done(o, time.Time{})
		return
	}
	if now, err := c.callerErr(); err != nil {
		c.settleFor(err, now)
	} else {
		c.done(o, now)
	}
}

// done files the outcome of a call that lasted until now, by the clock if that is
// zero; of one that has answered before, until then.
func (c *Call) done(o breaker.Outcome, now time.Time) {
	if c.breaker.faults != nil && (o == breaker.Failure || c.breaker.breakerRule.SlowCall > 0) {
		start := c.watch.Start()
		if now.IsZero() {
			now = start.Add(time.Since(start)) // without the time of day, which takes as long again
		}
		defer c.file(o, now) // also if a hook ends the goroutine
		c.blame(o, cmp.Or(c.answered, now.Sub(start)), now)
		return
	}
	c.file(o, now)
}

// file is done without a word to anybody but the breaker.
func (c *Call) file(o breaker.Outcome, now time.Time) {
	switch {
	case c.answered > 0:
		c.watch.DoneIn(c.hookCtx, o, c.answered)
	case now.IsZero():
		c.watch.Done(c.hookCtx, o)
	default:
		c.watch.DoneAt(c.hookCtx, o, now)
	}
}

// callerErr returns why the caller's context has ended, nil if it has not, and the
// time if it had to read the clock. A deadline is over when the clock says so:
// http.Client.Timeout ends the call beneath by a timer of its own, which may be
// ahead of the context's.
func (c *Call) callerErr() (now time.Time, err error) {
	if err := c.ctx.Err(); err != nil {
		return time.Now(), err
	}
	if d, ok := c.ctx.Deadline(); ok {
		if now = time.Now(); !now.Before(d) {
			return now, context.DeadlineExceeded
		}
	}
	return now, nil
}

// settleFor files a call whose caller's context has ended by now.
func (c *Call) settleFor(err error, now time.Time) {
	took := now.Sub(c.watch.Start())
	if errors.Is(err, context.DeadlineExceeded) {
		ran := took
		if deadline, ok := c.ctx.Deadline(); ok {
			ran -= now.Sub(deadline)
		}
		o := breaker.Failure
		if ran < c.queued { // less than half of both together
			o = breaker.Ignored
		}
		c.done(o, now)
		return
	}
	if c.answered > 0 {
		took = c.answered
	}
	switch slowCall := c.breaker.breakerRule.SlowCall; {
	case slowCall <= 0 || took < slowCall:
		c.done(breaker.Ignored, now)
	case took == slowCall:
		// Slow begins above slowCall for the breaker, at slowCall for a caller who
		// ran out of patience.
		defer c.watch.DoneIn(c.hookCtx, breaker.Success, slowCall+1)
		if c.breaker.faults != nil {
			c.blame(breaker.Success, slowCall+1, now)
		}
	default:
		c.done(breaker.Success, now)
	}
}
