package bulkhead

import "time"

// A Permit is the right to be inside a [Bulkhead]. It is a small value; it may
// be stored, and released by another goroutine than the one that acquired it.
//
// The zero Permit, which is also what comes with an error, holds nothing and
// its Release does nothing.
type Permit struct{ b *Bulkhead }

// Release gives the permit back; the oldest waiter, if any, gets it at once.
// It does not wait for that waiter to run.
//
// A permit must be released exactly once. Copies are the same permit, so
// releasing a copy too is misuse. It cannot always be recognised: Release
// panics if no permit of the bulkhead is out, and otherwise takes away the
// permit of somebody else.
func (p Permit) Release() {
	b := p.b
	if b == nil {
		return
	}
	for {
		w := b.load()
		if w.has(waiting|closed) || w.inFlight() == 0 {
			break
		}
		if b.swap(w, w-onePermit) {
			return
		}
	}
	b.mu.Lock()
	out := b.giveBackLocked()
	b.mu.Unlock()
	if !out {
		panic("bulkhead: Release of a permit that is not out")
	}
}

// Info says how one call to [Bulkhead.AcquireInfo] or [Bulkhead.TryAcquireInfo]
// fared.
type Info struct {
	// Limit, InFlight and Queued are the figures of the bulkhead at the moment
	// of the decision: for a permit, when it was taken or handed over, and then
	// InFlight includes it and is at most Limit; for an error, when the call
	// was turned away or had left the queue. Queued never includes the call.
	Limit, InFlight, Queued int

	// Position is the place in the queue on arrival, 1 being next. 0: the call
	// did not queue.
	Position int

	// Arrived is when the call queued. Zero: it did not queue.
	Arrived time.Time

	// Waited is how long the call was in the queue. 0: it did not queue.
	Waited time.Duration
}

// see takes the figures of the bulkhead from w. i may be nil.
func (i *Info) see(w word, queued int) {
	if i != nil {
		i.Limit, i.InFlight, i.Queued = w.limit(), w.inFlight(), queued
	}
}
