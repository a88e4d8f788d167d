package breaker

import (
	"context"
	"time"
)

// AllowAt and DoneAt are Allow and Done with a reading of the clock, in time since
// New, that may be older than one already acted upon, as when goroutines overtake
// each other between the clock and the lock.

func (b *Breaker) AllowAt(now time.Duration) (Call, error) {
	return b.allow(context.Background(), now)
}

func (c Call) DoneAt(o Outcome, now time.Duration) {
	c.b.end(context.Background(), c, o, now, now-c.start)
}

// Buckets returns the buckets of a time window: how many, and how long.
func (w Window) Buckets() (n int, width time.Duration) {
	t := newTimeWindow(w.Time)
	return len(t.ring), t.width
}

// Pending returns how many changes the listener has not been told of yet.
func (b *Breaker) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}
