package bulkhead

import "time"

// deadlines is how a queue ends the waits that last too long. A timer for each
// waiter would cost more than all the rest of a hand-over, so there is one for
// the whole queue.
//
// One is enough because all wait equally long: who came first is late first.
// The exception are those who arrive after Configure has shortened the max wait
// and find older waiters before them. Each of these brings a timer of its own,
// and is marked alone.
//
// Invariants, whenever the bulkhead's mutex is not held:
//   - due is the oldest waiter that has not been told that its time is up, nil
//     if there is none;
//   - if set, the timer will fire, or its function is on its way to the mutex,
//     not later than at fires;
//   - if due is not nil, the timer is set, and no waiter from due on that is not
//     alone has a deadline before fires.
//
// The timer stays set when the waiter that it was set for leaves, and when the
// queue becomes empty: most likely it is soon wanted again. It then fires too
// early, at most once per max wait, and is set anew there. So a queue that moves
// on fast never touches it. It is stopped by the first permit that comes back
// when nobody waits any more; see waiting.
type deadlines struct {
	due    *waiter
	latest time.Duration // no waiter in the queue has a later deadline
	timer  *time.Timer   // calls expire
	set    bool
	fires  time.Duration
	expire func()
	bubble bool // timer is of a synctest bubble
}

// expect is told of w, which has just been appended.
func (q *queue) expect(w *waiter, now time.Duration) {
	if q.n == 1 {
		q.latest = w.deadline
		// Like a channel (see waiters), a timer belongs to its bubble.
		bubble := inBubble(now)
		if bubble || q.bubble {
			q.timer, q.set = nil, false
		}
		q.bubble = bubble
	}
	w.alone = w.deadline < q.latest
	q.latest = max(q.latest, w.deadline)
	if q.due == nil {
		q.due = w
		if !q.set || w.deadline < q.fires {
			q.arm(now)
		}
	}
}

// forget is told of w, which is just being removed.
func (q *queue) forget(w *waiter) {
	if q.due == w {
		q.due = w.next
	}
	if q.bubble {
		q.disarmIfEmpty() // here: the next permit may come back outside of the bubble
	}
}

func (q *queue) isTimed() bool { return q != nil && q.set }

// disarmIfEmpty stops the timer if nobody is in the queue.
func (q *queue) disarmIfEmpty() {
	if q.isTimed() && q.n == 0 {
		q.timer.Stop()
		q.set = false
	}
}

// arm sets the timer for due.
func (q *queue) arm(now time.Duration) {
	q.set, q.fires = true, q.due.deadline
	left := q.fires - now
	if q.timer == nil {
		q.timer = time.AfterFunc(left, q.expire)
	} else {
		q.timer.Reset(left)
	}
}

// expire is what the timer calls. It wakes those whose time is up and leaves
// the rest to them: until such a waiter has run and left the queue, a permit
// that comes is still its own.
//
// That the timer has fired proves nothing. It may have been stopped and set
// anew while this function was on its way to the mutex. Then it fires once more.
func (b *Bulkhead) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, now := b.queue, time.Since(start)
	for q.due != nil && q.due.deadline <= now {
		q.due.wake()
		q.due = q.due.next
	}
	if q.due != nil {
		q.arm(now)
	} else {
		q.set = false
		b.flagLocked()
	}
}
