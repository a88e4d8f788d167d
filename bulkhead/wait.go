package bulkhead

import (
	"context"
	"runtime"
	"time"
)

// near is the last position in the queue at which a waiter yields before it falls
// asleep: as many goroutines as the run queue of a processor holds.
//
// Falling asleep in a select and being woken costs more than all the rest of a
// hand-over. So a waiter near the head first lets other goroutines have a turn:
// where permits are held but for a moment, its own is there after that. Where
// they are held for longer it has cost one turn of the scheduler, which is little
// beside the wait. Nothing is decided by it. Further back it does not pay: a
// holder that the scheduler interrupts goes behind all who yield, and these fall
// asleep after all.
const near = 256

// wait returns once w is granted, shut out, out of time or given up by its
// caller, and settles which of these it was. info may be nil.
//
// Several of them can be true at once: while this goroutine is on its way from
// the select, or merely not running yet, Release may grant to w and ctx may die.
// What is decided depends on ctx, asked once after the select, and on w.state:
//
//   - ctx dead: the caller gets ctx.Err(), even if w was granted a permit
//     meanwhile. That permit goes on to the next waiter in the same critical
//     section, so no wake-up is lost and no permit with it.
//   - granted: the caller gets the permit, even if MaxWait has also ended. To
//     refuse it would waste a permit on a call that is still wanted.
//   - shut out: ErrClosed.
//   - still queued: only MaxWait can have ended the wait.
//
// Most waits end with a permit and a live ctx, and these need no mutex. A
// message brings w.state as it was when the message was sent, and granted is for
// good: w was out of the queue by then, so nobody else knows it any more, let
// alone changes it or sends to it. Any other news may be out of date. Time may
// have been up first, and the grant found that message still unread. Then
// w.state is read under the mutex that Release, Resize and Close hold when they
// change it.
//
// A call is counted here and not by whoever woke it, because only here is it
// known how it ends; a count that rose with the hand-over would have to be
// taken back for a caller that has left.
func (b *Bulkhead) wait(ctx context.Context, w *waiter, info *Info) error {
	var late <-chan time.Time
	if w.alone {
		timer := time.NewTimer(w.deadline - time.Since(start))
		defer timer.Stop()
		late = timer.C
	}
	if w.position <= near {
		runtime.Gosched()
	}
	news := queued
	if len(w.ready) > 0 {
		news = <-w.ready // for a fraction of what the select costs
	} else {
		select {
		case news = <-w.ready:
		case <-ctx.Done():
		case <-late:
		}
	}
	if info != nil {
		info.Position, info.Waited = w.position, time.Since(info.Arrived)
	}
	dead := ctx.Err()
	if news == granted && dead == nil {
		b.granted.Add(1)
		info.see(w.handed, w.behind)
		w.recycle()
		return nil
	}

	b.mu.Lock()
	err := b.settleLocked(w, dead)
	if err != nil {
		info.see(b.load(), b.queue.n)
	} else {
		info.see(w.handed, w.behind)
	}
	b.mu.Unlock()
	w.recycle()
	return err
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
