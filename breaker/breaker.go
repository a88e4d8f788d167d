package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrOpen is returned by [Breaker.Allow] when the breaker lets no call in:
	// it is open, or half-open with no probe left.
	ErrOpen = errors.New("breaker: open")

	// ErrIllegalTransition is returned, wrapped, by [Breaker.Transition].
	ErrIllegalTransition = errors.New("breaker: illegal transition")
)

// A Breaker refuses calls to something that fails or has become slow, until
// probes have shown that it works again. [New] makes one. Its methods may be
// called from any number of goroutines. It has no goroutine and no timer, and
// need not be closed.
type Breaker struct {
	cfg    Config    // every default filled in; not changed after New
	origin time.Time // instants below are durations since then, on the monotonic clock

	mu sync.Mutex // guards the fields below
	// Invariants, whenever mu is not held:
	//   - period changes exactly when the state is entered, again or anew
	//   - since <= last; both only grow
	//   - probes is empty unless state is HalfOpen
	//   - in HalfOpen, permits + len(probes) + probed.calls == cfg.HalfOpen.Calls
	//     and probed.calls < cfg.minProbes()
	state   State
	period  uint64        // number of this stay in state, from 1; 0 is no period
	since   time.Duration // when it began
	last    time.Duration // the latest instant acted upon
	openFor time.Duration // in Open: its length
	attempt int           // openings since the last Closed
	denied  uint64

	window    window  // the outcomes of Closed and MetricsOnly
	permits   int     // in HalfOpen: probes that may still be let in
	probes    []probe // in HalfOpen: those in flight, the one that began first in front
	probed    counts  // the ended probes of the latest HalfOpen
	byProbes  bool    // the figures in view are probed, not window: in HalfOpen, and in Open after it
	lastProbe uint64  // number of the latest probe, from 1

	pending    []Transition // changes that the listener has not seen, oldest first
	delivering bool         // a goroutine is in the listener
}

// New returns a breaker in the state that c says. It panics if a field of c is
// out of its range.
func New(c Config) *Breaker {
	c = c.withDefaults()
	b := &Breaker{cfg: c, origin: time.Now(), window: newWindow(c.Window), state: c.InitialState}
	b.enterLocked(c.InitialState, 0, 0)
	return b
}

// now returns the instant to act upon. It is read before the lock is taken, to
// keep the clock out of the critical section.
func (b *Breaker) now() time.Duration { return time.Since(b.origin) }

// lock takes the lock and makes every change that was due by now. It returns now,
// or the instant already acted upon if a goroutine with a later reading of the
// clock was faster: under the lock, time does not run backwards.
func (b *Breaker) lock(ctx context.Context, now time.Duration) time.Duration {
	b.mu.Lock()
	b.last = max(b.last, now)
	if b.state == HalfOpen || b.state == Open && b.cfg.AutoHalfOpen {
		b.catchUpLocked(ctx)
	}
	return b.last
}

// unlock gives the lock back and then has the listener told what changed.
func (b *Breaker) unlock() {
	tell := b.undeliveredLocked()
	b.mu.Unlock()
	if tell {
		b.deliver()
	}
}

// Allow asks to let a call in. If it may go ahead, the error is nil and the
// caller must end the returned [Call] once, by Done, DoneIn or Cancel; a deferred
// call of one of these holds when the call panics, too. Otherwise the error is
// [ErrOpen], and the Call says no more than which state refused and for how long.
//
// Allow never waits. ctx is for the listener only, as Transition.Context; it may
// be nil, and whether it is done makes no difference.
//
// The first call after the open period makes the breaker half-open, and is the
// first probe.
func (b *Breaker) Allow(ctx context.Context) (Call, error) {
	now := b.lock(ctx, b.now())
	if b.state == Open && now-b.since >= b.openFor {
		b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, now, 0)
	}
	call := Call{state: b.state}
	switch b.state {
	case HalfOpen:
		if b.permits > 0 {
			call.b, call.period, call.start = b, b.period, now
			call.probe = b.admitProbeLocked(now)
		}
	case Open:
		call.remaining = b.openFor - (now - b.since)
	case ForcedOpen:
	default:
		call.b, call.period, call.start = b, b.period, now
	}
	if call.b == nil {
		b.denied++
	}
	b.unlock()
	if call.b == nil {
		return call, ErrOpen
	}
	return call, nil
}

// end ends the call c, which was let in, at now.
func (b *Breaker) end(ctx context.Context, c Call, o Outcome, now, took time.Duration) {
	check(o.valid(), "outcome", o)
	now = b.lock(ctx, now)
	if c.period == b.period {
		slow := b.cfg.SlowCall > 0 && took > b.cfg.SlowCall
		switch {
		case b.state == HalfOpen:
			b.endProbeLocked(ctx, c.probe, o, slow, now)
		case b.state == Disabled || o == Ignored:
		default:
			b.window.add(now, o == Failure, slow)
			if cause := b.verdictLocked(now); cause != 0 && b.state == Closed {
				b.moveLocked(ctx, Open, cause, now, 0)
			}
		}
	}
	b.unlock()
}

// State returns the state at this moment.
func (b *Breaker) State() State {
	b.lock(nil, b.now())
	s := b.state
	b.unlock()
	return s
}

// Reset closes the breaker and empties its window. Calls in flight will count
// for nothing.
func (b *Breaker) Reset() {
	now := b.lock(nil, b.now())
	b.moveLocked(nil, Closed, CauseReset, now, 0)
	b.unlock()
}

// Transition puts the breaker into the state to, by hand. Calls in flight will
// count for nothing, even if that is the state it is in: Closed then starts with
// an empty window, HalfOpen with all its probes, Open with a whole open period.
//
// With to == Open, openFor is how long to stay open; the attempt then keeps its
// number. 0 takes the next attempt's period from the configuration. For any other
// state it is not used.
//
// A closed breaker cannot become half-open: that is an error which wraps
// [ErrIllegalTransition], and nothing changes. Transition panics if to is not a
// state or openFor is negative.
func (b *Breaker) Transition(to State, openFor time.Duration) error {
	check(to.valid(), "state to change to", to)
	check(openFor >= 0, "time to stay open", openFor)
	now := b.lock(nil, b.now())
	from := b.state
	illegal := from == Closed && to == HalfOpen
	if !illegal {
		b.moveLocked(nil, to, CauseForced, now, openFor)
	}
	b.unlock()
	if illegal {
		return fmt.Errorf("%w: %v to %v", ErrIllegalTransition, from, to)
	}
	return nil
}

// moveLocked changes the state at the instant at, and queues that for the
// listener. openFor is as in enterLocked.
func (b *Breaker) moveLocked(ctx context.Context, to State, cause Cause, at, openFor time.Duration) {
	tell := b.cfg.OnTransition != nil && b.state != to
	var t Transition
	if tell {
		f := b.figuresLocked(at)
		t = Transition{
			Context: ctx, From: b.state, To: to, Cause: cause,
			FailureRate: f.failureRate, SlowCallRate: f.slowRate, Calls: f.calls,
			// Wall clocks get adjusted and machines sleep, so this counts back
			// from now rather than forward from origin.
			At: time.Now().Add(at - b.last),
		}
		if ctx == nil {
			t.Context = context.Background()
		}
	}
	b.enterLocked(to, at, openFor)
	if tell {
		t.Attempt = b.attempt
		if to == Open {
			t.OpenFor = b.openFor
		}
		b.queueLocked(t)
	}
}

// enterLocked starts a new period, in the state to. If that is Open, openFor is
// its length; 0 makes it the next attempt and takes the length from the
// configuration.
func (b *Breaker) enterLocked(to State, at, openFor time.Duration) {
	b.state, b.since = to, at
	b.period++
	b.probes = nil
	switch to {
	case Open: // the figures that led here stay in view
		if openFor == 0 {
			b.attempt++
			openFor = b.cfg.openFor(b.attempt)
		}
		b.openFor = openFor
	case HalfOpen:
		b.permits, b.probed, b.byProbes = b.cfg.HalfOpen.Calls, counts{}, true
	case ForcedOpen:
		b.attempt++
		b.window.reset()
		b.byProbes = false
	default:
		b.attempt = 0
		b.window.reset()
		b.byProbes = false
	}
}
