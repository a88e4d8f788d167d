package breaker

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"
)

// A Transition is one change of a breaker's state, as [Config].OnTransition sees
// it. The listener gets every change once, in the order in which they happened,
// each From being the To before it; setting a state that the breaker is already
// in is no change.
//
// No lock is held meanwhile, so the listener may call any method of the breaker,
// and the breaker may have moved on. It runs on the goroutine whose call made the
// change, before that call returns; but if another goroutine is inside the
// listener at that time, that one delivers this change next, and the call that
// made it does not wait. A change that the listener itself makes is delivered
// after it returns.
//
// A panic of the listener goes no further: it is logged with its stack through
// [slog.Default], and later changes are still delivered. A listener that stalls
// while a thousand more changes pile up loses the oldest of them.
type Transition struct {
	Context context.Context // of the call that saw the change; context.Background if none did
	From    State
	To      State
	Cause   Cause

	// The figures of the period that ended, at its end. The rates are in
	// percent, and -1 if fewer than the minimum calls were in.
	FailureRate  float64
	SlowCallRate float64
	Calls        int

	OpenFor time.Duration // how long the breaker now stays open, if To is Open
	Attempt int           // how many times it has opened since it was last closed
	At      time.Time     // when the change was due; may lie before the call that saw it
}

// maxPending bounds the changes that wait for a stalled listener.
const maxPending = 1000

func (b *Breaker) queueLocked(t Transition) {
	if len(b.pending) == maxPending {
		b.pending = b.pending[1:]
	}
	b.pending = append(b.pending, t)
}

// undeliveredLocked reports whether a caller has to call deliver once it has
// given up the lock.
func (b *Breaker) undeliveredLocked() bool {
	return len(b.pending) > 0 && !b.delivering
}

// deliver hands the queued changes to the listener. Whoever queued one calls it
// after unlocking. None is left behind: a goroutine that finds delivering set
// queued its change before looking, and the one that set it looks again after
// clearing it, both under the lock. None is overtaken: a change is taken off the
// queue only while no other is being delivered.
func (b *Breaker) deliver() {
	for {
		b.mu.Lock()
		if !b.undeliveredLocked() {
			b.mu.Unlock()
			return
		}
		next := b.pending[0]
		b.pending = b.pending[1:]
		if len(b.pending) == 0 {
			b.pending = nil // a queue that was long once does not stay so
		}
		b.delivering = true
		b.mu.Unlock()
		b.notify(next)
	}
}

func (b *Breaker) notify(t Transition) {
	returned := false
	defer func() {
		p := recover()
		b.mu.Lock()
		b.delivering = false
		b.mu.Unlock()
		switch {
		case p != nil:
			slog.Default().Error("breaker: OnTransition panicked",
				"panic", p, "from", t.From.String(), "to", t.To.String(), "stack", string(debug.Stack()))
		case !returned:
			b.deliver() // runtime.Goexit: the loop in deliver will not go on
		}
	}()
	b.cfg.OnTransition(t)
	returned = true
}
