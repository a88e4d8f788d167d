package bulkhead

import (
	"math"
	"time"
)

// A queue holds the waiters of one bulkhead, oldest first. It is a doubly
// linked list threaded through the waiters, so that one that gives up leaves
// from the middle in constant time. It is guarded by the bulkhead's mutex.
type queue struct {
	head, tail *waiter
	n          int
	deadlines
}

func (q *queue) len() int {
	if q == nil {
		return 0
	}
	return q.n
}

// push appends a new waiter, which arrives now and waits for at most maxWait.
func (q *queue) push(now, maxWait time.Duration) *waiter {
	w := newWaiter(now)
	q.n++
	w.position, w.prev = q.n, q.tail
	w.deadline = now + min(maxWait, math.MaxInt64-max(now, 0))
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.expect(w, now)
	return w
}

// pop removes the oldest waiter and returns it. There must be one.
func (q *queue) pop() *waiter {
	w := q.head
	q.remove(w)
	return w
}

// remove unlinks w, which must be in the queue.
func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	q.n--
	q.forget(w)
	w.prev, w.next = nil, nil
}
