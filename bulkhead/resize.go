package bulkhead

import "time"

// Resize changes the limit of a live bulkhead and returns at once.
//
// If the limit grows, exactly the waiters that now fit get their permits, oldest
// first. If it shrinks, permits that are out stay valid and keep counting:
// nothing is admitted until in flight has fallen below the new limit. Resize
// panics if limit is less than 1; more than [MaxLimit] counts as MaxLimit.
func (b *Bulkhead) Resize(limit int) {
	checkLimit(limit)
	b.mu.Lock()
	b.configureLocked(limit, b.backlog, b.maxWait)
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
	b.configureLocked(cfg.Limit, cfg.Backlog, cfg.MaxWait)
	b.mu.Unlock()
}

// configureLocked changes limit and flags in one swap, so that nobody meets the
// one without the other. Waiters that now fit stay marked as waiting in it: a
// newcomer must not take their permits before they are handed over. Where nobody
// waits, nothing may be marked, or nobody could take the permits that are new.
func (b *Bulkhead) configureLocked(limit, backlog int, maxWait time.Duration) {
	b.backlog, b.maxWait = backlog, maxWait
	b.queue.disarmIfEmpty()
	for {
		w := b.load()
		if b.swap(w, b.flaggedLocked(w, b.queue.len()).withLimit(limit)) {
			break
		}
	}
	if b.queue.len() > 0 {
		b.grantLocked()
	}
}

// grantLocked hands a permit to each of the oldest waiters that fit. Nobody else
// changes the word meanwhile, because somebody waits.
func (b *Bulkhead) grantLocked() {
	w := b.load()
	for w.inFlight() < w.limit() && b.queue.n > 0 {
		w += onePermit
		b.handOverLocked(w)
	}
	b.raisePeakLocked(w)
	b.queue.disarmIfEmpty()
	b.state.Store(uint64(b.flaggedLocked(w, b.queue.n)))
}
