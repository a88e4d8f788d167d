package breaker

import (
	"context"
	"time"
)

// At returns the reading of the clock at d after New, which may be older than one
// already acted upon, as when goroutines overtake each other between the clock and
// the lock.
func (b *Breaker) At(d time.Duration) time.Time { return b.origin.Add(d) }

// Buckets returns the buckets of a time window: how many, and how long.
func (w Window) Buckets() (n int, width time.Duration) {
	t := newTimeWindow(w.Time)
	return len(t.ring), t.width
}

// Pending returns how many changes the listener has not been told of yet.
func (b *Breaker) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.listener.pending)
}

// Slot returns the slot in which c was let in; without the overdue rule, one slot is one
// period.
func (c Call) Slot() uint64 { return c.slot }

// Epoch returns the gate's state and epoch, and what they stand for.
func (b *Breaker) Epoch() (epoch uint64, fields [4]any) {
	return b.word.Load() >> epochShift, [4]any{b.from.Load(), b.until.Load(), b.slot.Load(), b.rules()}
}

// Held returns how many outcomes the gate holds.
func (b *Breaker) Held() int { return b.load().run() + b.load().tail() }

// AllowLocking is AllowAt with the lock, whether or not the gate lets by.
func (b *Breaker) AllowLocking(ctx context.Context, now time.Time) Call {
	return b.allowLocking(ctx, now.Sub(b.origin))
}

// DoneLocking is DoneAt in the same way.
func (c Call) DoneLocking(ctx context.Context, o Outcome, now time.Time) {
	at := now.Sub(c.b.origin)
	c.b.endLocking(ctx, c, o, at, at-c.when)
}
