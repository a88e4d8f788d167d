package breaker

import (
	"context"
	"time"
)

// figures are counts with the rates computed from them, in percent; -1 under the
// minimum of calls.
type figures struct {
	counts
	failureRate, slowRate float64
	overdue, responded    int
}

// figuresLocked returns what the current period is judged by, or in Open what
// the period before it was judged by.
func (b *Breaker) figuresLocked(now time.Duration) figures {
	f := figures{failureRate: -1, slowRate: -1}
	enough := int(b.rules().minCalls)
	if b.half != nil {
		f.counts, enough = b.half.ended, b.half.enough
	} else {
		f.counts = b.window.counts(now)
	}
	if f.calls >= enough {
		f.failureRate, f.slowRate = percent(f.failed, f.calls), percent(f.slow, f.calls)
	}
	switch b.state {
	case Closed, MetricsOnly:
		f.overdue, f.responded = b.overdue.late, b.overdue.prompt()
	case HalfOpen:
		f.overdue = b.lateProbesLocked(now)
	}
	return f
}

// A Snapshot is what a breaker looks like at one moment.
type Snapshot struct {
	State State

	// The outcomes in the window, or in half-open those of the probes; in Open,
	// the figures that it was opened with, of which a time window goes on losing
	// the old ones. The rates are in percent, and -1 under the minimum of calls.
	FailureRate  float64
	SlowCallRate float64
	Calls        int
	Failed       int
	Slow         int

	// What the overdue rule counts while the breaker is closed, to an eighth of
	// SlowCall: the calls in flight that are overdue, and the calls that responded
	// within the last SlowCall. In half-open, the probes that are overdue.
	Overdue   int
	Responded int

	OpenRemaining time.Duration // in Open: how long it lasts; 0 in any other state, and when the next call will be a probe
	Attempt       int           // openings since the breaker was last closed
	ProbesLeft    int           // in HalfOpen: how many more probes would be let in
	Denied        uint64        // calls refused since New
}

// Snapshot returns the breaker's figures at this moment.
func (b *Breaker) Snapshot() Snapshot {
	now := b.look(context.Background(), b.now())
	f := b.figuresLocked(now)
	s := Snapshot{
		State:       b.state,
		FailureRate: f.failureRate, SlowCallRate: f.slowRate,
		Calls: f.calls, Failed: f.failed, Slow: f.slow,
		Overdue: f.overdue, Responded: f.responded,
		OpenRemaining: b.remainingLocked(now),
		Attempt:       b.attempt,
		Denied:        b.denied.Load(),
	}
	if b.state == HalfOpen {
		s.ProbesLeft = b.half.permits
	}
	b.unlock()
	return s
}
