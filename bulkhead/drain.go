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
	b.closed = true
	for b.queue.n > 0 {
		b.queue.pop().wake(shut)
	}
}

// Drain closes the bulkhead as [Bulkhead.Close] does and waits until every
// permit is back. It returns ctx.Err() if ctx ends first; the bulkhead stays
// closed, and Drain may be called again. If nothing is in flight it returns nil
// even with a dead ctx. Several calls may drain at once.
func (b *Bulkhead) Drain(ctx context.Context) error {
	b.mu.Lock()
	b.closeLocked()
	if b.inFlight == 0 {
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
