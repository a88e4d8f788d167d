package breaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	// What calls go by comes first, and then what is written under mu whenever a call
	// ends: with what overdue counts of the current slot it is 64 bytes, a cache line,
	// and that is handed from one processor to another less often than several.

	gate // what calls do without mu

	mu sync.Mutex // guards the fields below, but for those marked
	// Invariants, whenever mu is not held:
	//   - the gate is open, for state, from since or, with the overdue rule, from
	//     the start of the slot, until the instant at which something is due
	//   - unless that has come, last is in the current slot and bucket
	//   - first <= slot, and both grow whenever a period begins: with each state that is
	//     entered, again or anew, and when the overdue rule has to count anew (slot also
	//     grows from slot to slot)
	//   - since <= last, and last never falls
	//   - half is not nil in HalfOpen, and nil in every other state but Open
	last    time.Duration // the latest instant acted upon under mu
	first   uint64        // slot with which this stay in state, the period, began
	overdue overdue       // of Closed and MetricsOnly

	state        State
	overdueLimit int           // 0: none
	since        time.Duration // when the period began
	attempt      int           // openings since the last Closed
	askedUntil   time.Duration // when the callee wants to be called again, as said in this period; 0: not said

	window   window    // the outcomes of Closed and MetricsOnly
	half     *halfOpen // in HalfOpen, and in Open after it, where its figures stay in view
	listener *listener // nil: there is none; not changed after New

	config atomic.Pointer[rules] // changed under mu, while the gate is shut; read with mu and without
	origin time.Time             // not changed after New; instants are durations since then, on the monotonic clock

	denied atomic.Uint64 // written with mu and without
}

// New returns a breaker in the state that c says. It panics if a field of c is
// out of its range.
func New(c Config) *Breaker {
	c = c.withDefaults()
	b := &Breaker{
		origin:       time.Now(),
		overdueLimit: c.OverdueLimit,
		window:       newWindow(c.Window),
	}
	b.config.Store(shared(newRules(c)))
	if c.OnTransition != nil {
		b.listener = &listener{tell: c.OnTransition}
	}
	if c.InitialState == HalfOpen {
		b.attempt = 1 // that of the open period it comes after
	}
	b.enterLocked(c.InitialState, 0, 0)
	b.openLocked()
	return b
}

// rules returns what is in force.
func (b *Breaker) rules() *rules { return b.config.Load() }

// now reads the clock. That is done before taking the lock, to keep it out of the
// critical section.
func (b *Breaker) now() time.Duration { return time.Since(b.origin) }

// lock takes the lock: mu, with the gate shut and what it held filed. It makes every
// change that was due by now. It returns now, or the instant already acted upon if a
// goroutine with a later reading of the clock was faster: under the lock, time does
// not run backwards.
//
// The overdue rule is no such change: see judgeOverdueLocked.
func (b *Breaker) lock(ctx context.Context, now time.Duration) time.Duration {
	b.mu.Lock()
	b.shutLocked()
	now = max(now, b.last)
	b.last = now
	if now >= time.Duration(b.until.Load()) {
		b.catchUpLocked(ctx, 0)
	}
	return now
}

// look is lock for those who are about to decide by the state, or to tell it.
func (b *Breaker) look(ctx context.Context, now time.Duration) time.Duration {
	now = b.lock(ctx, now)
	b.judgeOverdueLocked(ctx, now)
	return now
}

// unlock opens the gate, gives the lock back, and then has the listener told what
// changed.
func (b *Breaker) unlock() {
	b.openLocked()
	tell := b.listener != nil && b.listener.behindLocked()
	b.mu.Unlock()
	if tell {
		b.deliver()
	}
}

// Allow asks to let a call in. If it may go ahead, the error is nil and the
// caller must end the returned [Call] once, by Done, DoneIn, DoneAt or Cancel; in
// a defer that holds when the call panics, too. Otherwise the error is [ErrOpen],
// and the Call only says which state refused and for how long.
//
// Allow never waits. ctx is for the listener only, as Transition.Context; it may
// be nil, and whether it is done makes no difference.
//
// The first call after the open period makes the breaker half-open, and is the
// first probe.
func (b *Breaker) Allow(ctx context.Context) (Call, error) {
	return b.allow(ctx, b.now())
}

// AllowAt is Allow for a caller who has read the clock already: now must come
// from [time.Now], a moment ago.
func (b *Breaker) AllowAt(ctx context.Context, now time.Time) (Call, error) {
	return b.allow(ctx, now.Sub(b.origin))
}

func (b *Breaker) allow(ctx context.Context, now time.Duration) (Call, error) {
	call, ok := b.pass(now)
	if !ok {
		call = b.allowLocking(ctx, now)
	}
	if call.b == nil {
		return call, ErrOpen
	}
	return call, nil
}

// allowLocking is allow under the lock. A call that is refused has no breaker.
func (b *Breaker) allowLocking(ctx context.Context, now time.Duration) Call {
	now = b.look(ctx, now)
	if b.state == Open && now >= time.Duration(b.until.Load()) {
		b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, now, 0)
	}
	// Still under the same lock as the change: whoever finds the breaker
	// half-open takes from the same permits, so there is no moment at which one
	// probe more could slip in.
	call := Call{b, b.slot.Load(), now, kind{state: b.state}}
	switch b.state {
	case HalfOpen:
		if b.half.permits == 0 {
			call = Call{kind: kind{state: HalfOpen}}
		} else {
			call.kind.probe = b.half.admit(now)
		}
	case Open:
		call = Call{when: time.Duration(b.until.Load()) - now, kind: kind{state: Open}}
	case ForcedOpen:
		call = Call{kind: kind{state: ForcedOpen}}
	default:
		b.overdue.begin()
	}
	if call.b == nil {
		b.denied.Add(1)
	}
	b.unlock()
	return call
}

// end ends the call c, which was let in, at now.
func (b *Breaker) end(ctx context.Context, c Call, o Outcome, now, took time.Duration) {
	if !o.valid() {
		panic("breaker: bad outcome: " + o.String())
	}
	if !b.leave(c, o, now, took) {
		b.endLocking(ctx, c, o, now, took)
	}
}

// endLocking is end under the lock.
func (b *Breaker) endLocking(ctx context.Context, c Call, o Outcome, now, took time.Duration) {
	now = b.lock(ctx, now)
	if c.slot >= b.first {
		b.endLocked(ctx, c, o, now, took)
	}
	b.judgeOverdueLocked(ctx, now)
	b.unlock()
}

// endLocked ends a call of this period.
func (b *Breaker) endLocked(ctx context.Context, c Call, o Outcome, now, took time.Duration) {
	if b.state == Disabled {
		return
	}
	slow := b.rules().slow(took)
	if b.state == HalfOpen {
		b.endProbeLocked(ctx, c.kind.probe, o, slow, now)
		return
	}
	if b.rules().width > 0 {
		b.endAwaitedLocked(c, o)
	}
	if o == Ignored {
		return
	}
	sum := b.window.add(now, o == Failure, slow)
	if cause := b.rules().verdict(sum, int(b.rules().minCalls)); cause != 0 && b.state == Closed {
		b.moveLocked(ctx, Open, cause, now, 0)
	}
}

func (b *Breaker) endAwaitedLocked(c Call, o Outcome) {
	current := b.slot.Load()
	if c.kind.phase == awaited {
		b.overdue.leave(c.slot, current)
	}
	if c.kind.phase != responded && o != Ignored {
		b.overdue.respond()
	}
}

// State returns the state at this moment.
func (b *Breaker) State() State {
	b.look(context.Background(), b.now())
	s := b.state
	b.unlock()
	return s
}

// Remaining returns how long the breaker stays open, at this moment. It is 0 in
// any other state, and when the next call will be a probe.
func (b *Breaker) Remaining() time.Duration {
	now := b.look(context.Background(), b.now())
	remaining := b.remainingLocked(now)
	b.unlock()
	return remaining
}

func (b *Breaker) remainingLocked(now time.Duration) time.Duration {
	if b.state != Open {
		return 0
	}
	return max(0, time.Duration(b.until.Load())-now)
}
