package bulkhead

import (
	"sync"
	"time"
)

// A waiter is one call in the queue.
type waiter struct {
	// ready brings state: granted or shut when the wait is over, queued when
	// its time is up. It holds one message, and one that finds it taken is
	// dropped: whoever reads queued looks at state itself. Messages are sent
	// under the bulkhead's mutex, and only to a waiter that is in the queue or
	// is just being taken out.
	ready chan state

	// Set on arrival, never changed.
	position int           // 1 is next
	deadline time.Duration // end of the max wait, counted from start
	alone    bool          // the timer of the queue does not see to deadline
	pooled   bool          // goes back to waiters

	// Guarded by the bulkhead's mutex, or read once ready has brought granted.
	state      state
	prev, next *waiter
	handed     word // the bulkhead's figures when state became granted,
	behind     int  // and how many were still in the queue
}

type state uint8

const (
	queued  state = iota // in the queue
	granted              // out of it, and one permit in flight is the waiter's
	shut                 // out of it: the bulkhead was closed
)

// end settles how the wait of w ends. It must be out of the queue already.
func (w *waiter) end(s state) {
	w.state = s
	w.wake()
}

func (w *waiter) wake() {
	select {
	case w.ready <- w.state:
	default: // there is a message that it has not read yet
	}
}

// waiters holds those whose wait is over, for the waits to come. Most of what a
// wait would allocate is the channel.
//
// A channel belongs to the synctest bubble that it was made in. In another
// bubble, or outside, using it is fatal; and one from outside hides from
// synctest that a goroutine in a bubble is blocked. So what waits in a bubble
// is neither taken from here nor put here.
var waiters = sync.Pool{New: func() any {
	return &waiter{ready: make(chan state, 1), pooled: true}
}}

func newWaiter(now time.Duration) *waiter {
	if inBubble(now) {
		return &waiter{ready: make(chan state, 1)}
	}
	return waiters.Get().(*waiter)
}

// recycle must be called without the mutex by the goroutine that has waited,
// once it knows, from the mutex or from a message, that w is out of the queue.
// From then on nobody else knows w, so nothing can be sent to its next user by
// mistake; what was sent before, if something else woke the waiter, is taken out
// here.
func (w *waiter) recycle() {
	if !w.pooled {
		return
	}
	select {
	case <-w.ready:
	default:
	}
	*w = waiter{ready: w.ready, pooled: true}
	waiters.Put(w)
}

// start is where the package counts time from: a span since then is one word,
// and telling it costs half of what telling the time of day does.
var start = time.Now()

// inBubble tells, given the time since start, whether the calling goroutine is
// in a bubble of testing/synctest. There the year is 2000 and start is yet to
// come, while the clock outside is monotonic.
func inBubble(now time.Duration) bool { return now < 0 }
