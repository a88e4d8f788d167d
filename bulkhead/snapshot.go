package bulkhead

import "time"

// A Snapshot is the state of a [Bulkhead] at one instant: all its figures were
// true at the same time.
type Snapshot struct {
	// Limit, Backlog and MaxWait are the configuration in force.
	Limit, Backlog int
	MaxWait        time.Duration

	// InFlight is how many permits are out, with those handed to a waiter whose
	// goroutine has not run yet. It exceeds Limit only after a shrink, until
	// enough of them are back.
	InFlight int

	// Queued is how many callers wait. It exceeds Backlog only after Backlog
	// was lowered.
	Queued int

	// Peak is the highest InFlight so far.
	Peak int

	// Every call counts in exactly one of these, at the moment it returns.
	// A call whose permit is still on its way counts in InFlight and not yet
	// here. They never fall.
	Granted  uint64 // got a permit
	Full     uint64 // ErrFull
	TimedOut uint64 // ErrWaitTimeout
	Left     uint64 // ctx.Err(): dead on arrival, or left the queue
	Closed   uint64 // ErrClosed
}

// Snapshot returns the figures of the bulkhead as they are now. It stops no
// call: it holds the mutex, for some nanoseconds, which only those need that
// queue or leave the queue, or hand over a permit.
func (b *Bulkhead) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	// All but full, granted and the word stand still. These two only rise, so if
	// they are the same before and after the word was read, they were so at that
	// instant.
	full, granted, w := b.full.Load(), b.granted.Load(), b.load()
	for b.full.Load() != full || b.granted.Load() != granted {
		full, granted, w = b.full.Load(), b.granted.Load(), b.load()
	}
	return Snapshot{
		Limit:    w.limit(),
		Backlog:  b.backlog,
		MaxWait:  b.maxWait,
		InFlight: w.inFlight(),
		Queued:   b.queue.len(),
		Peak:     int(b.peak.Load()),
		Granted:  granted + w.grants(),
		Full:     full,
		TimedOut: b.timedOut,
		Left:     b.left,
		Closed:   b.shut,
	}
}
