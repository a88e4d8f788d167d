package bulkhead

import (
	"context"
	"time"
)

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
	w := b.queue.push(now, b.maxWait)
	if info != nil {
		info.Position = b.queue.n
	}
	return w
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
//   - still queued: only MaxWait can have ended the wait.
//
// A call is counted here and not by whoever woke it, because only here is it
// known how it ends; a count that rose with the hand-over would have to be
// taken back for a caller that has left.
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
	w, err := b.join(dead, info)
	if w == nil {
		if err != nil {
			return Permit{}, err
		}
		return Permit{b}, nil
	}

	var late <-chan time.Time
	var timer *time.Timer
	if w.alone {
		timer = time.NewTimer(w.deadline - time.Since(start))
		late = timer.C
	}
	s := queued
	select {
	case s = <-w.ready:
	case <-ctx.Done():
	case <-late:
	}
	if timer != nil {
		timer.Stop()
	}
	if info != nil {
		info.Waited = time.Since(info.Arrived)
	}
	dead = ctx.Err()
	if s == granted && dead == nil {
		b.granted.Add(1)
		info.see(w.handed, w.behind)
		w.recycle()
		return Permit{b}, nil
	}

	b.mu.Lock()
	err = b.settleLocked(w, dead)
	if err != nil {
		info.see(b.load(), b.queue.n)
	} else {
		info.see(w.handed, w.behind)
	}
	b.mu.Unlock()
	select {
	case <-w.ready:
	default:
	}
	w.recycle()
	if err != nil {
		return Permit{}, err
	}
	return Permit{b}, nil
}

// settleLocked decides and counts how the wait of w has ended. dead is what ctx
// said after it. Afterwards w is out of the queue.
func (b *Bulkhead) settleLocked(w *waiter, dead error) error {
	if w.state == queued {
		b.queue.remove(w)
		b.flagLocked()
	}
	switch {
	case dead != nil:
		if w.state == granted {
			b.giveBackLocked()
		}
		b.left++
		return dead
	case w.state == granted:
		b.granted.Add(1)
		return nil
	case w.state == shut:
		b.shut++
		return ErrClosed
	default:
		b.timedOut++
		return ErrWaitTimeout
	}
}
