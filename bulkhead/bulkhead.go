package bulkhead

import (
	"context"
	"sync"
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
	mu sync.Mutex // guards the fields below

	// Invariants, whenever mu is not held:
	//   - inFlight >= 0, and it only rises while it is below cfg.Limit
	//   - queue is empty unless inFlight >= cfg.Limit
	//   - queue is empty once closed
	// The second is what makes the order fair: whoever finds a free permit
	// knows that nobody is waiting for it.
	cfg      Config
	inFlight int // with the permits handed to a waiter that has not run yet
	queue    queue
	closed   bool
	drained  chan struct{} // made by the first Drain that has to wait; closed when inFlight gets to 0

	peak                                int
	granted, full, timedOut, left, shut uint64
}

// New returns a Bulkhead with all its permits free. It panics if cfg.Limit is
// less than 1 or if cfg.Backlog or cfg.MaxWait is negative.
func New(cfg Config) *Bulkhead {
	cfg.check()
	return &Bulkhead{cfg: cfg}
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
func (b *Bulkhead) Acquire(ctx context.Context) (Permit, error) {
	var info Info
	return b.AcquireInfo(ctx, &info)
}

// AcquireInfo does what [Bulkhead.Acquire] does and says in *info, which it
// overwrites, how the call fared: on success and on error alike. info must not
// be nil; it is not retained.
func (b *Bulkhead) AcquireInfo(ctx context.Context, info *Info) (Permit, error) {
	*info = Info{} // here, so that a nil info panics before mu is held

	// ctx may belong to anybody, so it is never asked under mu. If it dies
	// between this answer and the grant below, the call cannot be told from one
	// whose ctx died just after the grant.
	dead := ctx.Err()

	b.mu.Lock()
	var err error
	switch {
	case dead != nil:
		b.left++
		err = dead
	case b.closed:
		b.shut++
		err = ErrClosed
	case b.inFlight < b.cfg.Limit: // then nobody waits, so this overtakes nobody
		b.takeLocked()
		b.granted++
	case b.cfg.MaxWait == 0 || b.queue.n >= b.cfg.Backlog:
		b.full++
		err = ErrFull
	default:
		w, maxWait := b.queue.push(), b.cfg.MaxWait
		b.mu.Unlock()
		return b.wait(ctx, w, maxWait, info)
	}
	b.figuresLocked(info)
	b.mu.Unlock()
	if err != nil {
		return Permit{}, err
	}
	return Permit{b}, nil
}

// TryAcquire takes a permit if one is free, and never waits. The error is
// [ErrFull] or [ErrClosed]. The caller must release the permit exactly once.
func (b *Bulkhead) TryAcquire() (Permit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		b.shut++
		return Permit{}, ErrClosed
	case b.inFlight < b.cfg.Limit: // then nobody waits, so this overtakes nobody
		b.takeLocked()
		b.granted++
		return Permit{b}, nil
	default:
		b.full++
		return Permit{}, ErrFull
	}
}

func (b *Bulkhead) takeLocked() {
	b.inFlight++
	b.peak = max(b.peak, b.inFlight)
}

// wait returns once w is granted, shut out, out of time or given up by its
// caller, and settles which of these it was.
//
// Several of them can be true at once: while this goroutine is on its way from
// the select to the mutex, or merely not running yet, Release may grant to w
// and ctx may die. So the select only says that there is something to decide.
// What is decided depends on ctx, asked once after the select, and on w.state,
// read under the mutex that Release, Resize and Close hold when they change it:
//
//   - ctx dead: the caller gets ctx.Err(), even if w was granted a permit
//     meanwhile. That permit goes on to the next waiter in the same critical
//     section, so no wake-up is lost and no permit with it.
//   - granted: the caller gets the permit, even if MaxWait has also ended. To
//     refuse it would waste a permit on a call that is still wanted.
//   - shut out: ErrClosed.
//   - still queued: only the timer can have ended the wait.
//
// A call is counted here and not by whoever woke it, because only here is it
// known how it ends; a count that rose with the hand-over would have to be
// taken back for a caller that has left.
func (b *Bulkhead) wait(ctx context.Context, w *waiter, maxWait time.Duration, info *Info) (Permit, error) {
	arrived := time.Now()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()

	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-timer.C:
	}
	waited := time.Since(arrived)
	dead := ctx.Err()

	b.mu.Lock()
	*info = w.handed
	var err error
	switch {
	case dead != nil:
		if w.state == granted {
			b.giveBackLocked()
		} else if w.state == queued {
			b.queue.remove(w)
		}
		b.left++
		err = dead
	case w.state == granted:
		b.granted++
	case w.state == shut:
		b.shut++
		err = ErrClosed
	default:
		b.queue.remove(w)
		b.timedOut++
		err = ErrWaitTimeout
	}
	if err != nil {
		b.figuresLocked(info)
	}
	b.mu.Unlock()

	info.Position, info.Arrived, info.Waited = w.position, arrived, waited
	if err != nil {
		return Permit{}, err
	}
	return Permit{b}, nil
}

// giveBackLocked returns one permit and passes it on.
func (b *Bulkhead) giveBackLocked() {
	b.inFlight--
	b.grantLocked()
	if b.inFlight == 0 && b.drained != nil {
		// Only a closed bulkhead has been asked to drain, and a closed one
		// admits nobody, so this happens once.
		close(b.drained)
		b.drained = nil
	}
}

// grantLocked restores the second invariant: it hands a permit to each of the
// oldest waiters that fit. It is called wherever inFlight falls or the limit
// rises. While in flight is above a lowered limit it does nothing.
func (b *Bulkhead) grantLocked() {
	for b.inFlight < b.cfg.Limit && b.queue.n > 0 {
		w := b.queue.pop()
		b.takeLocked()
		b.figuresLocked(&w.handed)
		w.wake(granted)
	}
}

func (b *Bulkhead) figuresLocked(info *Info) {
	info.Limit, info.InFlight, info.Queued = b.cfg.Limit, b.inFlight, b.queue.n
}
