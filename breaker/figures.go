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
}

// figuresLocked returns what the current period is judged by, or in Open what
// the period before it was judged by.
func (b *Breaker) figuresLocked(now time.Duration) figures {
	f := figures{failureRate: -1, slowRate: -1}
	enough := b.cfg.MinCalls
	if b.byProbes {
		f.counts, enough = b.probed, b.cfg.minProbes()
	} else {
		f.counts = b.window.counts(now)
	}
	if f.calls >= enough {
		// One division of integers, so that a rate equal to a threshold is
		// equal as a float64, too.
		f.failureRate = float64(100*f.failed) / float64(f.calls)
		f.slowRate = float64(100*f.slow) / float64(f.calls)
	}
	return f
}

// verdictLocked returns which rate has reached its threshold; 0 if none has.
func (b *Breaker) verdictLocked(now time.Duration) Cause {
	f := b.figuresLocked(now)
	switch {
	case f.failureRate >= b.cfg.FailureRate:
		return CauseFailureRate
	case b.cfg.SlowCall > 0 && f.slowRate >= b.cfg.SlowCallRate:
		return CauseSlowCallRate
	default:
		return 0
	}
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

	OpenRemaining time.Duration // in Open: how long it lasts; 0 in any other state, and when the next call will be a probe
	Attempt       int           // openings since the breaker was last closed
	ProbesLeft    int           // in HalfOpen: how many more probes would be let in
	Denied        uint64        // calls refused since New
}

// Snapshot returns the breaker's figures at this moment.
func (b *Breaker) Snapshot() Snapshot {
	now := b.lock(context.Background(), b.now())
	f := b.figuresLocked(now)
	s := Snapshot{
		State:       b.state,
		FailureRate: f.failureRate, SlowCallRate: f.slowRate,
		Calls: f.calls, Failed: f.failed, Slow: f.slow,
		Attempt: b.attempt,
		Denied:  b.denied,
	}
	switch b.state {
	case Open:
		s.OpenRemaining = max(0, b.openFor-(now-b.since))
	case HalfOpen:
		s.ProbesLeft = b.permits
	}
	b.unlock()
	return s
}
