package breaker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOpen is returned by [Breaker.Allow] when the breaker lets no call in: it is
// open, or half-open with no probe left.
var ErrOpen = errors.New("breaker: open")

// A Breaker refuses calls to something that fails or has become slow, until
// probes have shown that it works again. [New] makes one; the zero Breaker is not
// usable. Its methods may be called from any number of goroutines. It has no
// goroutine and no timer, and nothing to close.
type Breaker struct {
	cfg    Config    // every default filled in; not changed after New
	origin time.Time // instants below are durations since then, on the monotonic clock

	mu sync.Mutex // guards the fields below
	// Invariants, whenever mu is not held:
	//   - period grows exactly when a state is entered, again or anew
	//   - since <= last, and last never falls
	//   - probes is empty unless state is HalfOpen
	//   - in HalfOpen, permits + len(probes) + probed.calls == cfg.HalfOpen.Calls,
	//     and probed.calls < cfg.minProbes()
	state   State
	period  uint64        // number of this stay in state, from 1
	since   time.Duration // when it began
	last    time.Duration // the latest instant acted upon
	openFor time.Duration // in Open: its length
	attempt int           // openings since the last Closed
	denied  uint64

	window    window  // the outcomes of Closed and MetricsOnly
	permits   int     // in HalfOpen: probes that may still be let in
	probes    []probe // in HalfOpen: those in flight, the one that began first in front
	lastProbe uint64  // number of the latest probe, from 1
	probed    counts  // the ended probes of the latest HalfOpen
	byProbes  bool    // the figures in view are probed, not window: in HalfOpen, and in Open after it

	pending    []Transition // changes that the listener has not seen, oldest first
	delivering bool         // a goroutine is in the listener
}

// New returns a breaker in the state that c says. It panics if a field of c is
// out of its range.
func New(c Config) *Breaker {
	c = c.withDefaults()
	b := &Breaker{cfg: c, origin: time.Now(), window: newWindow(c.Window)}
	b.enterLocked(c.InitialState, 0, 0)
	return b
}

// now reads the clock. That is done before taking the lock, to keep it out of the
// critical section.
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

// unlock gives the lock back, and then has the listener told what changed.
func (b *Breaker) unlock() {
	tell := b.undeliveredLocked()
	b.mu.Unlock()
	if tell {
		b.deliver()
	}
}

// Allow asks to let a call in. If it may go ahead, the error is nil and the
// caller must end the returned [Call] once, by Done, DoneIn or Cancel; in a defer
// that holds when the call panics, too. Otherwise the error is [ErrOpen], and the
// Call only says which state refused and for how long.
//
// Allow never waits. ctx is for the listener only, as Transition.Context; it may
// be nil, and whether it is done makes no difference.
//
// The first call after the open period makes the breaker half-open, and is the
// first probe.
func (b *Breaker) Allow(ctx context.Context) (Call, error) {
	return b.allow(ctx, b.now())
}

func (b *Breaker) allow(ctx context.Context, now time.Duration) (Call, error) {
	now = b.lock(ctx, now)
	if b.state == Open && now-b.since >= b.openFor {
		b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, now, 0)
	}
	// Still under the same lock as the change: whoever finds the breaker
	// half-open takes from the same permits, so there is no moment at which one
	// probe more could slip in.
	call, err := Call{b: b, state: b.state, period: b.period, start: now}, error(nil)
	switch b.state {
	case HalfOpen:
		if b.permits > 0 {
			call.probe = b.admitProbeLocked(now)
		} else {
			call, err = Call{state: HalfOpen}, ErrOpen
		}
	case Open:
		call, err = Call{state: Open, remaining: b.openFor - (now - b.since)}, ErrOpen
	case ForcedOpen:
		call, err = Call{state: ForcedOpen}, ErrOpen
	}
	if err != nil {
		b.denied++
	}
	b.unlock()
	return call, err
}

// end ends the call c, which was let in, at now.
func (b *Breaker) end(ctx context.Context, c Call, o Outcome, now, took time.Duration) {
	if !o.valid() {
		panic("breaker: bad outcome: " + o.String())
	}
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
	b.lock(context.Background(), b.now())
	s := b.state
	b.unlock()
	return s
}
