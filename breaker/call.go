package breaker

import (
	"context"
	"time"
)

// A Call is one call that a [Breaker] let in, or refused. It is a value and needs
// no memory of its own. It may be handed to another goroutine.
//
// A Call that was let in must be ended once, by Done, DoneIn or Cancel. Ending a
// probe again does nothing; ending any other call again files it again, since a
// value cannot remember. One that is never ended does no harm while the breaker
// is closed; a probe that is never ended is given up after
// [HalfOpenConfig].ProbeTimeout.
//
// A Call that was refused, like the zero Call, has nothing to end: it is Stale,
// and Restart, Done, DoneIn and Cancel do nothing.
type Call struct {
	b         *Breaker // nil if refused
	period    uint64   // in which it was let in
	probe     uint64   // its number if it is a probe, else 0
	start     time.Duration
	remaining time.Duration
	state     State
}

// Restart returns c with its time beginning now: what it spent since Allow, such
// as queueing for something else, is neither part of its duration nor of
// [HalfOpenConfig].ProbeTimeout. Use the result in place of c.
//
// A probe that had already been given up stays so, which Stale tells.
func (c Call) Restart() Call {
	if c.b == nil {
		return c
	}
	b := c.b
	if c.probe == 0 {
		c.start = b.now()
		return c
	}
	now := b.lock(context.Background(), b.now())
	if c.period == b.period {
		b.restartProbeLocked(c.probe, now)
	}
	b.unlock()
	c.start = now
	return c
}

// Stale reports whether the outcome of c would be dropped: the breaker has
// changed its state since Allow, or c is a probe that was given up or has ended.
// Whoever made a call wait after Allow asks this, and Allow again if it is true.
func (c Call) Stale() bool {
	if c.b == nil {
		return true
	}
	b := c.b
	b.lock(context.Background(), b.now())
	stale := c.period != b.period || c.probe != 0 && b.findProbeLocked(c.probe) < 0
	b.unlock()
	return stale
}

// Done ends the call. Its duration is the time since Allow, or since Restart. The
// outcome is dropped if the breaker has changed its state meanwhile: a late
// result never touches a newer period. ctx is for the listener only, as
// Transition.Context; it may be nil. Done panics if o is not one of the outcomes.
func (c Call) Done(ctx context.Context, o Outcome) {
	if c.b == nil {
		return
	}
	now := c.b.now()
	c.b.end(ctx, c, o, now, now-c.start)
}

// DoneIn is Done with the duration given, for a call that was timed elsewhere.
func (c Call) DoneIn(ctx context.Context, o Outcome, took time.Duration) {
	if c.b == nil {
		return
	}
	c.b.end(ctx, c, o, c.b.now(), took)
}

// Cancel ends the call as Ignored: it was not made, or says nothing. It is in no
// window, and if it was a probe the next call can be one in its place.
func (c Call) Cancel() { c.Done(context.Background(), Ignored) }

// State returns the state that let the call in, or refused it.
func (c Call) State() State { return c.state }

// Remaining returns, for a call that an open breaker refused, how long that
// breaker stays open. It is 0 for a call that was let in, or that was refused in
// half-open or forced-open, where no time is known.
func (c Call) Remaining() time.Duration { return c.remaining }
