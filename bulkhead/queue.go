package bulkhead

// A queue holds the waiters of one bulkhead, oldest first. It is a doubly
// linked list threaded through the waiters, so that one that gives up leaves
// from the middle in constant time. It is guarded by the bulkhead's mutex.
type queue struct {
	head, tail *waiter
	n          int
}

// A waiter is one call in the queue.
type waiter struct {
	ready    chan struct{} // closed when state leaves queued by another's hand
	position int           // on arrival, 1 is next; never changes

	// Guarded by the bulkhead's mutex.
	state      state
	handed     Info // the bulkhead's figures when state became granted
	prev, next *waiter
}

type state uint8

const (
	queued  state = iota // in the queue
	granted              // out of it, and one permit in flight is the waiter's
	shut                 // out of it: the bulkhead was closed
)

// push appends a new waiter.
func (q *queue) push() *waiter {
	q.n++
	w := &waiter{ready: make(chan struct{}), position: q.n, prev: q.tail}
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
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
	w.prev, w.next = nil, nil
	q.n--
}

// wake tells the waiter, which must be out of the queue already, that it was
// granted or shut out.
func (w *waiter) wake(s state) {
	w.state = s
	close(w.ready)
}
