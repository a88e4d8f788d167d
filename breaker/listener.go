package breaker

import (
	"log/slog"
	"runtime/debug"
)

// maxPending bounds the changes that wait for a stalled listener.
const maxPending = 1000

// A listener is Config.OnTransition and what it has not been told yet. It is guarded by
// mu of its breaker alone: no call goes by it, so whoever needs only this leaves the gate
// open.
type listener struct {
	tell       func(Transition) // not changed
	pending    []Transition     // oldest first
	delivering bool             // a goroutine is in tell
}

func (l *listener) queueLocked(t Transition) {
	if len(l.pending) == maxPending {
		l.pending = l.pending[1:]
	}
	l.pending = append(l.pending, t)
}

// behindLocked reports whether deliver would find something to do.
func (l *listener) behindLocked() bool {
	return len(l.pending) > 0 && !l.delivering
}

// deliver hands the queued changes to the listener. Whoever queued one calls it
// after unlocking.
//
// None is left behind: a goroutine that finds delivering set has queued its
// change before it looked, and the goroutine that set it looks again after
// clearing it, both under the lock. None is overtaken: a change leaves the queue
// only while no other is being delivered. Waiting for the goroutine that
// delivers would be a deadlock if the caller is that very goroutine, called from
// the listener, and Go does not let it find out.
func (b *Breaker) deliver() {
	l := b.listener
	for {
		b.mu.Lock()
		if !l.behindLocked() {
			b.mu.Unlock()
			return
		}
		next := l.pending[0]
		if l.pending = l.pending[1:]; len(l.pending) == 0 {
			l.pending = nil // keeps neither the contexts nor the room of a long queue
		}
		l.delivering = true
		b.mu.Unlock()
		b.notify(next)
	}
}

func (b *Breaker) notify(t Transition) {
	returned := false
	defer func() {
		p := recover()
		b.mu.Lock()
		b.listener.delivering = false
		b.mu.Unlock()
		switch {
		case p != nil:
			slog.Error("breaker: OnTransition panicked", "panic", p,
				"from", t.From.String(), "to", t.To.String(), "stack", string(debug.Stack()))
		case !returned:
			b.deliver() // runtime.Goexit: the loop that called notify will not go on
		}
	}()
	b.listener.tell(t)
	returned = true
}
