package bulkhead

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Bulkhead hands out a limited number of permits, first come, first served.
//
// Create one with [New]. The zero Bulkhead has no permits and refuses every
// call with [ErrFull] until [Bulkhead.Configure] gives it some. A Bulkhead must
// not be copied after first use. All methods may be called by many goroutines
// at once. There is nothing to clean up: a Bulkhead that nobody refers to is
// garbage.
type Bulkhead struct {
	// state is a word: see there for who changes it and why that is right.
	//
	// Invariants, whenever mu is not held:
	//   - waiting is set exactly if somebody is in the queue or its timer is set
	//   - waiting is set only if in flight >= limit
	//   - waiting is not set once closed is
	//   - in flight <= peak
	// The second is what makes the order fair: whoever finds a free permit
	// knows that nobody is waiting for it.
	state atomic.Uint64

	// full counts refusals, and granted the grants that state does not count.
	// They only rise, and by anybody: a refusal changes nothing else, and for
	// who has waited the grant is counted when everything else is done.
	full, granted atomic.Uint64

	// peak is the highest in flight so far. It is written under mu and read by
	// anybody: a call that would rise above it is left to the holder of mu. So
	// peak is exact, and costs the others one load.
	peak atomic.Int64

	mu      sync.Mutex // guards the fields below, and state as its type says
	backlog int
	maxWait time.Duration
	queue   *queue        // nil until somebody has waited
	drained chan struct{} // made by the first Drain that has to wait; closed when in flight gets to 0

	timedOut, left, shut uint64
}

// New returns a Bulkhead with all its permits free. It panics if cfg.Limit is
// less than 1 or if cfg.Backlog or cfg.MaxWait is negative.
func New(cfg Config) *Bulkhead {
	b := new(Bulkhead)
	b.Configure(cfg)
	return b
}

// Acquire takes a permit, and waits for one at most MaxWait if none is free and
// the backlog has room. The caller must release the permit exactly once.
//
// Without a permit the error is [ErrFull], [ErrWaitTimeout], [ErrClosed], or
// ctx.Err() itself if ctx is dead on arrival or dies while the call waits. A
// dead ctx takes precedence over everything else, a free permit included. At
// the one instant at which MaxWait ends and a permit arrives, either may win.
//
// ctx must not be nil; it is not retained.
func (b *Bulkhead) Acquire(ctx context.Context) (Permit, error) { return b.acquire(ctx, nil) }

// AcquireInfo does what [Bulkhead.Acquire] does and says in *info, which it
// overwrites, how the call fared: on success and on error alike. info must not
// be nil; it is not retained.
func (b *Bulkhead) AcquireInfo(ctx context.Context, info *Info) (Permit, error) {
	*info = Info{} // here, so that a nil info panics before anything is decided
	return b.acquire(ctx, info)
}

// TryAcquire takes a permit if one is free, and never waits. The error is
// [ErrFull] or [ErrClosed]. The caller must release the permit exactly once.
func (b *Bulkhead) TryAcquire() (Permit, error) {
	w, ok := b.take()
	if !ok && (w.free() || w.has(closed)) {
		b.mu.Lock()
		if w, ok = b.takeLocked(); w.has(closed) {
			b.shut++
		}
		b.mu.Unlock()
	}
	switch {
	case ok:
		return Permit{b}, nil
	case w.has(closed):
		return Permit{}, ErrClosed
	default:
		b.full.Add(1)
		return Permit{}, ErrFull
	}
}

// TryAcquireInfo does what [Bulkhead.TryAcquire] does and says in *info, which it
// overwrites, how the call fared: on success and on error alike. info must not be
// nil; it is not retained. It is for a caller who has something to do before it
// waits, and calls [Bulkhead.AcquireInfo] after it; in a [Snapshot] these are two
// calls.
func (b *Bulkhead) TryAcquireInfo(info *Info) (Permit, error) {
	*info = Info{} // here, so that a nil info panics before anything is decided
	w, ok := b.take()
	if ok {
		info.see(w, 0)
		return Permit{b}, nil
	}
	b.mu.Lock() // for the length of the queue, too
	defer b.mu.Unlock()
	w, ok = b.takeLocked()
	info.see(w, b.queue.len())
	switch {
	case ok:
		return Permit{b}, nil
	case w.has(closed):
		b.shut++
		return Permit{}, ErrClosed
	default:
		b.full.Add(1)
		return Permit{}, ErrFull
	}
}

// take admits a call if that needs nothing but a swap. It returns the word that
// it left behind, or else the one that it found. A free word that it did not
// take is one for takeLocked.
func (b *Bulkhead) take() (word, bool) {
	for {
		w := b.load()
		if !w.free() || w.inFlight() >= int(b.peak.Load()) || w&grants == grants {
			return w, false
		}
		if next := w + onePermit + oneGrant; b.swap(w, next) {
			return next, true
		}
	}
}

// takeLocked admits a call if a permit is free. It can do what take cannot:
// raise peak, and make room for more grants in the word.
func (b *Bulkhead) takeLocked() (word, bool) {
	for {
		w := b.load()
		if !w.free() {
			return w, false
		}
		if next := w&^grants + onePermit; b.swap(w, next) {
			b.granted.Add(w.grants() + 1)
			b.raisePeakLocked(next)
			return next, true
		}
	}
}

// giveBackLocked returns one permit and passes it on. It reports false, and
// changes nothing, if no permit is out.
func (b *Bulkhead) giveBackLocked() bool {
	for {
		w := b.load()
		if w.inFlight() == 0 {
			return false
		}
		if b.queue.len() > 0 && w.inFlight() <= w.limit() {
			// From hand to hand: in flight stays as it is.
			b.handOverLocked(w)
			b.flagLocked()
			return true
		}
		b.queue.disarmIfEmpty()
		if b.swap(w, b.flaggedLocked(w-onePermit, b.queue.len())) {
			if b.drained != nil && w.inFlight() == 1 {
				// Only a closed bulkhead has been asked to drain, and a closed
				// one admits nobody, so this happens once.
				close(b.drained)
				b.drained = nil
			}
			return true
		}
	}
}

// handOverLocked gives a permit, which w counts already, to the oldest waiter.
func (b *Bulkhead) handOverLocked(w word) {
	first := b.queue.pop()
	first.handed, first.behind = w, b.queue.n
	first.end(granted)
}

// flaggedLocked returns w with the flags that are right for a queue of length n.
func (b *Bulkhead) flaggedLocked(w word, n int) word {
	return w.with(waiting, n > 0 || b.queue.isTimed()).with(room, b.maxWait > 0 && n < b.backlog)
}

// flagLocked brings the flags in line with the queue and the configuration. It
// is called wherever one of these changes, after the permits that became free
// have been handed over.
func (b *Bulkhead) flagLocked() {
	for {
		w := b.load()
		if next := b.flaggedLocked(w, b.queue.len()); w == next || b.swap(w, next) {
			return
		}
	}
}

func (b *Bulkhead) raisePeakLocked(w word) {
	if n := int64(w.inFlight()); n > b.peak.Load() {
		b.peak.Store(n)
	}
}

func (b *Bulkhead) load() word { return word(b.state.Load()) }
func (b *Bulkhead) swap(old, next word) bool {
	return b.state.CompareAndSwap(uint64(old), uint64(next))
}
