package bulkhead

// Resize changes the limit of a live bulkhead and returns at once.
//
// If the limit grows, exactly the waiters that now fit get their permits, oldest
// first. If it shrinks, permits that are out stay valid and keep counting:
// nothing is admitted until in flight has fallen below the new limit. Resize
// panics if limit is less than 1.
func (b *Bulkhead) Resize(limit int) {
	checkLimit(limit)
	b.mu.Lock()
	b.cfg.Limit = limit
	b.grantLocked()
	b.mu.Unlock()
}

// Configure changes limit, backlog and max wait of a live bulkhead in one step
// and returns at once. The limit changes as by [Bulkhead.Resize]. Backlog and
// MaxWait apply to calls that arrive from now on: callers that already wait
// keep their place, even beyond a smaller backlog, and the max wait that was in
// force when they arrived. Configure panics where [New] does.
func (b *Bulkhead) Configure(cfg Config) {
	cfg.check()
	b.mu.Lock()
	b.cfg = cfg
	b.grantLocked()
	b.mu.Unlock()
}
