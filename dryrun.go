package watertight

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// A dryRun plays through what a bulkhead would have done with the calls of a
// compartment whose policy only observes. These are admitted at once, and their own
// times go on; the dryRun has another time for each, in which it waits for a permit
// as it would have had to, and then takes as long as it took.
//
// What happens in that other time is made up for when somebody looks: with the next
// call that comes or goes, or for a snapshot. So it needs no timer. A call may be over
// before its turn would have come; then how long it takes is known, and when its permit
// would come back. One that is not yet over will not have ended in that time before
// now, since in it, it began no earlier. So nothing that is still unknown can change
// what has been made up for.
//
// It keeps one record for each call that would be queued, and a time for each permit
// that would still be out though its call is over: no more than a bulkhead with such
// limits would have calls.
type dryRun struct {
	c      *compartment // counts what would have been refused
	origin time.Time    // instants below are durations since then

	mu sync.Mutex // guards the fields below, and those of every attempt
	// Invariants, whenever mu is not held:
	//   - held <= limit, once limit has not been lowered
	//   - queue is empty while held < limit
	limit, backlog int
	maxWait        time.Duration
	held           int             // permits that would be out
	ends           []time.Duration // when those of calls that are over will come back, the latest first
	queue          []*attempt      // the oldest first
	shortened      time.Duration   // when maxWait last was: of those who were in the queue then, the wait may end after that of a younger one
}

// An attempt is one call in a dryRun.
type attempt struct {
	state    attemptState
	arrived  time.Duration
	deadline time.Duration // when it will have waited too long
	granted  time.Duration // when its permit would have come
	over     bool          // the call has ended
	took     time.Duration // how long the call took, once it is over
}

type attemptState uint8

const (
	attemptQueued attemptState = iota
	attemptGranted
	attemptRefused  // at once
	attemptTimedOut // in the queue
)

func newDryRun(c *compartment) *dryRun { return &dryRun{c: c, origin: time.Now()} }

func (d *dryRun) configure(b *policy.BulkheadSettings) {
	now := time.Since(d.origin)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catchUpLocked(now)
	if b.MaxWait < d.maxWait {
		d.shortened = now
	}
	d.limit, d.backlog, d.maxWait = b.MaxConcurrent, b.MaxQueue, b.MaxWait
	for d.held < d.limit && len(d.queue) > 0 {
		d.held++
		d.handOverLocked(now)
	}
}

// begin says what would have become of a call that arrives now, as far as that is
// known.
func (d *dryRun) begin() (*attempt, attemptState) {
	now := time.Since(d.origin)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catchUpLocked(now)
	a := &attempt{arrived: now, deadline: now + d.maxWait}
	switch {
	case d.held < d.limit:
		d.held++
		a.state, a.granted = attemptGranted, now
	case d.maxWait > 0 && len(d.queue) < d.backlog:
		d.queue = append(d.queue, a)
	default:
		a.state = attemptRefused
		d.c.observe(policy.ReasonFull)
	}
	return a, a.state
}

// end says what would have become of a call that ends now, as far as that is known.
func (d *dryRun) end(a *attempt) attemptState {
	now := time.Since(d.origin)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catchUpLocked(now)
	a.over, a.took = true, now-a.arrived
	if a.state == attemptGranted {
		d.comeBackLocked(a)
		d.catchUpLocked(now) // it may come back at once
	}
	return a.state
}

// look returns what the bulkhead would look like now.
func (d *dryRun) look() refusal {
	now := time.Since(d.origin)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catchUpLocked(now)
	return refusal{limit: d.limit, inFlight: d.held, queued: len(d.queue)}
}

func (d *dryRun) catchUpLocked(now time.Duration) {
	for len(d.ends) > 0 {
		next := d.ends[len(d.ends)-1]
		if next > now {
			break
		}
		d.ends = d.ends[:len(d.ends)-1]
		d.handOverLocked(next)
	}
	d.expireLocked(now)
}

// comeBackLocked notes when the permit of a call that is over comes back.
func (d *dryRun) comeBackLocked(a *attempt) {
	end := a.granted + a.took
	i, _ := slices.BinarySearchFunc(d.ends, end, func(have, end time.Duration) int { return cmp.Compare(end, have) })
	d.ends = slices.Insert(d.ends, i, end)
}

// handOverLocked passes on a permit that comes back at an instant.
func (d *dryRun) handOverLocked(at time.Duration) {
	d.expireLocked(at)
	if len(d.queue) == 0 || d.held > d.limit {
		d.held--
		return
	}
	a := d.pop()
	a.state, a.granted = attemptGranted, at
	if a.over {
		d.comeBackLocked(a)
	}
}

// expireLocked refuses those who would have waited too long by an instant. With one
// maxWait for all, that of the oldest is over first, and only they are looked at.
func (d *dryRun) expireLocked(at time.Duration) {
	for len(d.queue) > 0 && d.queue[0].deadline < at {
		d.timeOut(d.pop())
	}
	if len(d.queue) == 0 || d.queue[0].arrived > d.shortened {
		return
	}
	d.queue = slices.DeleteFunc(d.queue, func(a *attempt) bool {
		late := a.deadline < at
		if late {
			d.timeOut(a)
		}
		return late
	})
}

func (d *dryRun) timeOut(a *attempt) {
	a.state = attemptTimedOut
	d.c.observe(policy.ReasonWaitTimeout)
}

func (d *dryRun) pop() *attempt {
	a := d.queue[0]
	d.queue[0] = nil
	if d.queue = d.queue[1:]; len(d.queue) == 0 {
		d.queue = nil
	}
	return a
}
