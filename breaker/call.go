package breaker

import (
	"context"
	"time"
)

// A Call is one call that a [Breaker] let in, or refused. It is a value and needs
// no memory of its own. It may be handed to another goroutine.
//
// A Call that was let in must be ended once, by Done, DoneIn, DoneAt or Cancel.
// Ending a probe again does nothing; ending any other call again files it again,
// since a value cannot remember. One that is never ended is overdue until the
// breaker next changes its state; a probe that is never ended is given up after
// [HalfOpenConfig].ProbeTimeout.
//
// A Call that was refused, like the zero Call, has nothing to end: it is Stale,
// and the methods that would change or end it do nothing.
type Call struct {
	b    *Breaker      // nil if refused
	slot uint64        // in which it was let in, or began anew
	when time.Duration // let in: when its time began; refused by Open: how long that lasts
	kind kind
}

// kind is the rest of a Call. It is apart only so that a Call has four fields and four
// words, which is the most that the compiler keeps in registers: with a Call that went
// through memory at each step, a call let in and ended took 55ns rather than 31.
type kind struct {
	probe uint32 // its number if state is HalfOpen
	state State
	phase phase
}

// A phase is what the overdue rule has to do with a call.
type phase uint8

const (
	awaited   phase = iota // it can become overdue
	paused                 // it cannot: it waits for something else
	responded              // it cannot: it has responded, and was counted as that
)

// Pause returns c with its time stopped: until Restart it cannot become overdue,
// since it waits for something else than the callee, such as a permit. Use the
// result in place of c. A probe that pauses is still given up after
// [HalfOpenConfig].ProbeTimeout. ctx is that of Done.
func (c Call) Pause(ctx context.Context) Call { return c.move(ctx, paused) }

// Restart returns c with its time beginning now: what it spent since Allow, such
// as queueing for something else, is neither part of its duration nor of
// [HalfOpenConfig].ProbeTimeout, nor does it make the call overdue. Use the result
// in place of c.
//
// A call that is Stale stays so, as does a probe that had already been given up. ctx
// is that of Done.
func (c Call) Restart(ctx context.Context) Call { return c.move(ctx, awaited) }

// Responded returns c as one that has been answered but has not ended: the first
// bytes are in, and its outcome will be told when the rest is. From now on it
// cannot become overdue. Use the result in place of c. A caller who ends the call
// as soon as it is answered need not call Responded. ctx is that of Done.
func (c Call) Responded(ctx context.Context) Call { return c.move(ctx, responded) }

// move takes c to another phase.
func (c Call) move(ctx context.Context, to phase) Call {
	b := c.b
	if b == nil || to == paused && c.kind.phase == responded {
		return c
	}
	if b.rules().width == 0 && c.kind.state != HalfOpen { // nobody asks for the phase
		if to == awaited {
			c.when = b.now()
		}
		return c
	}
	now := b.lock(ctx, b.now())
	if to == awaited {
		c.when = now
	}
	switch {
	case c.slot < b.first:
	case c.kind.state == HalfOpen:
		b.half.move(c.kind.probe, to, now)
	default:
		c.slot = b.moveAwaitedLocked(c, to)
	}
	c.kind.phase = to
	b.judgeOverdueLocked(ctx, now)
	b.unlock()
	return c
}

// moveAwaitedLocked is move for the counts of the overdue rule. It returns the slot
// that c, a call of this period, is now to be found in.
func (b *Breaker) moveAwaitedLocked(c Call, to phase) uint64 {
	current := b.slot.Load()
	if c.kind.phase == awaited {
		b.overdue.leave(c.slot, current)
	}
	switch {
	case to == awaited:
		b.overdue.begin()
	case to == responded && c.kind.phase != responded:
		b.overdue.respond()
	}
	return current
}

// Stale reports whether the outcome of c would be dropped: the breaker has
// changed its state since Allow, or c is a probe that was given up or has ended.
// Whoever made a call wait after Allow asks this, and Allow again if it is true.
func (c Call) Stale() bool {
	if c.b == nil {
		return true
	}
	b := c.b
	b.look(context.Background(), b.now())
	stale := c.slot < b.first || c.kind.state == HalfOpen && b.half.find(c.kind.probe) < 0
	b.unlock()
	return stale
}

// RetryAfter tells the breaker, before c ends, that the callee asks to be left alone
// for so long from now, as a Retry-After header does. If the breaker trips before
// that is over, it stays open until then, rather than as long as [Config].OpenFor
// says, but no longer than [Config].MaxRetryAfter. Of several calls the latest is
// heeded. It does nothing if wait is not positive, if c is from an earlier period,
// or if MaxRetryAfter is 0.
func (c Call) RetryAfter(wait time.Duration) {
	b := c.b
	if b == nil || wait <= 0 || b.rules().maxRetryAfter == 0 {
		return
	}
	now := b.look(context.Background(), b.now())
	if c.slot >= b.first {
		b.askedUntil = after(now, wait)
	}
	b.unlock()
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
	c.b.end(ctx, c, o, now, now-c.when)
}

// DoneAt is Done for a caller who has read the clock already: now must come from
// [time.Now], a moment ago.
func (c Call) DoneAt(ctx context.Context, o Outcome, now time.Time) {
	if c.b == nil {
		return
	}
	at := now.Sub(c.b.origin)
	c.b.end(ctx, c, o, at, at-c.when)
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
func (c Call) State() State { return c.kind.state }

// Start returns when the call's time began: at Allow, or at Restart. It does not
// read the clock. For a call that was refused it is the zero Time.
func (c Call) Start() time.Time {
	if c.b == nil {
		return time.Time{}
	}
	return c.b.origin.Add(c.when)
}

// Remaining returns, for a call that an open breaker refused, how long that
// breaker stays open. It is 0 for a call that was let in, or that was refused in
// half-open or forced-open, where no time is known.
func (c Call) Remaining() time.Duration {
	if c.b != nil {
		return 0
	}
	return c.when
}
