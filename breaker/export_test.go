package breaker

import "time"

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
