package bulkhead

import (
	"context"
	"time"
)

// acquire is Acquire and AcquireInfo. info may be nil.
func (b *Bulkhead) acquire(ctx context.Context, info *Info) (Permit, error) {
	// ctx may belong to anybody, so it is never asked under mu. If it dies
	// between this answer and the grant, the call cannot be told from one whose
	// ctx died just after the grant.
	dead := ctx.Err()
	if dead == nil {
		w, ok := b.take()
		if ok {
			info.see(w, 0)
			return Permit{b}, nil
		}
		// The length of a queue is known only under mu.
		if !w.free() && !w.has(room|closed) && (info == nil || !w.has(waiting)) {
			b.full.Add(1)
			info.see(w, 0)
			return Permit{}, ErrFull
		}
	}
	waiter, err := b.join(dead, info)
	if waiter != nil {
		err = b.wait(ctx, waiter, info)
	}
	if err != nil {
		return Permit{}, err
	}
	return Permit{b}, nil
}

// join settles a call under mu, where take could not, or puts it into the queue
// and returns its waiter. dead is what ctx said on arrival; info may be nil.
func (b *Bulkhead) join(dead error, info *Info) (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.load(), false
	if dead == nil {
		w, ok = b.takeLocked()
		for !ok && w.has(room) && !w.has(closed) {
			// The swap fails if a permit came back meanwhile. If it succeeds,
			// or waiting was set before, which is when there is nothing to
			// swap, every permit from now on comes by the queue.
			if next := b.flaggedLocked(w, b.queue.len()+1); w == next || b.swap(w, next) {
				return b.enqueueLocked(info), nil
			}
			w, ok = b.takeLocked()
		}
	}
	info.see(w, b.queue.len())
	switch {
	case ok:
		return nil, nil
	case dead != nil:
		b.left++
		return nil, dead
	case w.has(closed):
		b.shut++
		return nil, ErrClosed
	default:
		b.full.Add(1)
		return nil, ErrFull
	}
}

// enqueueLocked puts a call into the queue. The flags in the word count it
// already. info may be nil.
func (b *Bulkhead) enqueueLocked(info *Info) *waiter {
	if b.queue == nil {
		b.queue = &queue{deadlines: deadlines{expire: b.expire}}
	}
	var now time.Duration
	if info == nil {
		now = time.Since(start)
	} else {
		info.Arrived = time.Now()
		now = info.Arrived.Sub(start)
	}
	return b.queue.push(now, b.maxWait)
}
