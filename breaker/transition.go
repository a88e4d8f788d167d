package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrIllegalTransition is returned, wrapped, by [Breaker.Transition].
var ErrIllegalTransition = errors.New("breaker: illegal transition")

// A Transition is one change of a breaker's state, as [Config].OnTransition sees
// it. A state that is set while the breaker is already in it is no change.
type Transition struct {
	Context context.Context // of the call that saw the change; context.Background if none did
	From    State
	To      State
	Cause   Cause

	// The figures of the period that ended, at its end. The rates are in
	// percent, and -1 if fewer than the minimum of calls were in.
	FailureRate  float64
	SlowCallRate float64
	Calls        int

	// What the overdue rule counted, while the breaker was closed: the calls in
	// flight that were overdue, and those that had responded within SlowCall. In
	// half-open, the probes that were overdue; if the breaker opened for them,
	// the figures above have them as slow calls.
	Overdue   int
	Responded int

	OpenFor time.Duration // how long the breaker now stays open, if To is Open
	Attempt int           // openings since the breaker was last closed, with this one
	At      time.Time     // when the change was due, which may be before anyone saw it
}

// Reset closes the breaker, with an empty window. Calls in flight will count for
// nothing.
func (b *Breaker) Reset() {
	ctx := context.Background()
	now := b.look(ctx, b.now())
	b.moveLocked(ctx, Closed, CauseReset, now, 0)
	b.unlock()
}

// Transition puts the breaker into the state to, by hand. Calls in flight will
// count for nothing, even if that is the state it is in: Closed then starts with
// an empty window, HalfOpen with all its probes, Open with a whole open period.
//
// With to == Open, openFor is how long to stay open, and the attempt keeps its
// number; 0 makes it the next attempt, with the period that the configuration
// gives that. For any other state openFor is not used.
//
// What has not been open has nothing to probe: Closed and MetricsOnly do not lead to
// HalfOpen. Nor does MetricsOnly, which never trips, lead to Open; ForcedOpen is what
// refuses from there. These are errors that wrap [ErrIllegalTransition], and nothing
// changes. Transition panics if to is not a state or openFor is negative.
func (b *Breaker) Transition(to State, openFor time.Duration) error {
	check(to.valid(), "state to change to", to)
	check(openFor >= 0, "time to stay open", openFor)
	ctx := context.Background()
	now := b.look(ctx, b.now())
	from := b.state
	illegal := to == HalfOpen && (from == Closed || from == MetricsOnly) || to == Open && from == MetricsOnly
	if !illegal {
		b.askedUntil = 0 // a hand knows better than the callee
		b.moveLocked(ctx, to, CauseForced, now, openFor)
	}
	b.unlock()
	if illegal {
		return fmt.Errorf("%w: %v to %v", ErrIllegalTransition, from, to)
	}
	return nil
}

// moveLocked changes the state at the instant at, and queues the change for the
// listener. openFor is that of enterLocked.
func (b *Breaker) moveLocked(ctx context.Context, to State, cause Cause, at, openFor time.Duration) {
	from := b.state
	if from == to || b.listener == nil {
		b.enterLocked(to, at, openFor)
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	f := b.figuresLocked(at) // before the new period forgets them
	b.enterLocked(to, at, openFor)
	t := Transition{
		Context: ctx, From: from, To: to, Cause: cause,
		FailureRate: f.failureRate, SlowCallRate: f.slowRate, Calls: f.calls,
		Overdue: f.overdue, Responded: f.responded,
		Attempt: b.attempt,
		// Wall clocks are adjusted and machines sleep, so this counts back from
		// the present rather than forward from origin.
		At: time.Now().Add(at - b.last),
	}
	if to == Open {
		t.OpenFor = time.Duration(b.until.Load()) - at
	}
	b.listener.queueLocked(t)
}

// enterLocked begins a new period, in the state to. If that is Open, openFor is
// its length; 0 makes it the next attempt, whose length is what the callee has asked
// for, or else comes from the configuration.
func (b *Breaker) enterLocked(to State, at, openFor time.Duration) {
	b.state, b.since = to, at
	until := forever
	switch to {
	case Open: // what it was judged by stays in view
		if openFor == 0 {
			b.attempt++
			openFor = b.nextOpenForLocked(at)
		}
		until = after(at, openFor)
	case HalfOpen:
		b.half = &halfOpen{permits: int(b.rules().permits), enough: b.rules().minProbes()}
		until = at // every call has to look at the probes
	case ForcedOpen:
		b.attempt++ // an opening, though without an end
		b.forgetLocked()
	default:
		b.attempt = 0
		b.forgetLocked()
		if to != Disabled {
			until = b.stepDue(at, at)
		}
	}
	b.askedUntil = 0
	b.enterGateLocked(at, until)
}

func (b *Breaker) forgetLocked() {
	b.half = nil
	b.window.reset()
	b.overdue = overdue{}
}

// enterGateLocked sets the gate for a new period.
func (b *Breaker) enterGateLocked(from, until time.Duration) {
	b.first = b.slot.Load() + 1
	b.setLocked(b.first, from, until)
}

// nextOpenForLocked returns the length of an open period that begins at an instant.
func (b *Breaker) nextOpenForLocked(at time.Duration) time.Duration {
	if asked := min(b.askedUntil-at, b.rules().maxRetryAfter); asked > 0 {
		return asked
	}
	return b.rules().drawFor(b.attempt)
}
