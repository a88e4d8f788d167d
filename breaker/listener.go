package breaker

import (
	"log/slog"
	"runtime/debug"
)

// maxPending bounds the changes that wait for a stalled listener.
const maxPending = 1000

func (b *Breaker) queueLocked(t Transition) {
	if len(b.pending) == maxPending {
		b.pending = b.pending[1:]
	}
	b.pending = append(b.pending, t)
}

// undeliveredLocked reports whether deliver would find something to do.
func (b *Breaker) undeliveredLocked() bool {
	return len(b.pending) > 0 && !b.delivering
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
	for {
		b.mu.Lock()
		if !b.undeliveredLocked() {
			b.mu.Unlock()
			return
		}
		next := b.pending[0]
		if b.pending = b.pending[1:]; len(b.pending) == 0 {
			b.pending = nil // keeps neither the contexts nor the room of a long queue
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
			slog.Error("breaker: OnTransition panicked", "panic", p,
				"from", t.From.String(), "to", t.To.String(), "stack", string(debug.Stack()))
		case !returned:
			b.deliver() // runtime.Goexit: the loop that called notify will not go on
		}
	}()
	b.cfg.OnTransition(t)
	returned = true
}
