package bulkhead

import "context"

// Close shuts the bulkhead for good: everybody who waits and everybody who
// comes later gets [ErrClosed]. Permits that are out stay valid and are to be
// released as ever. Closing again does nothing.
func (b *Bulkhead) Close() {
	b.mu.Lock()
	b.closeLocked()
	b.mu.Unlock()
}

func (b *Bulkhead) closeLocked() {
	b.state.Or(uint64(closed)) // first: from here on nobody joins or passes the queue
	for b.queue.len() > 0 {
		b.queue.pop().end(shut)
	}
	b.queue.disarmIfEmpty()
	b.flagLocked()
}

// Drain closes the bulkhead as [Bulkhead.Close] does and waits until every
// permit is back. It returns ctx.Err() if ctx ends first; the bulkhead stays
// closed, and Drain may be called again. If nothing is in flight it returns nil
// even with a dead ctx. Several calls may drain at once.
func (b *Bulkhead) Drain(ctx context.Context) error {
	b.mu.Lock()
	b.closeLocked()
	if b.load().inFlight() == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.drained == nil {
		b.drained = make(chan struct{})
	}
	drained := b.drained
	b.mu.Unlock()

	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	// With both ready the select above picks at random; being empty is the
	// better news and no less true.
	select {
	case <-drained:
		return nil
	default:
		return ctx.Err()
	}
}
