package breaker

import (
	"slices"
	"sync/atomic"
	"time"
)

// rules are a [Config] with every default filled in, flattened to what is asked
// on each call. They do not change: a breaker that is configured anew gets others.
type rules struct {
	scalars
	openFor []time.Duration
}

type scalars struct {
	failureRate, slowRate   float64 // percent
	failureFloor, slowFloor uint8   // the same rounded down, see verdict
	slowCall                time.Duration
	width                   time.Duration // of the slots of the overdue rule; 0: that rule is off
	jitter                  float64
	maxRetryAfter           time.Duration
	probeTimeout            time.Duration // negative: for ever
	maxWait                 time.Duration // 0: no bound
	minCalls, permits       int32
	maxWaitTarget           State
	auto                    bool
}

// newRules takes a Config in which withDefaults has filled the gaps.
func newRules(c Config) rules {
	r := rules{openFor: c.OpenFor, scalars: scalars{
		failureRate:   c.FailureRate,
		slowRate:      c.SlowCallRate,
		failureFloor:  uint8(c.FailureRate),
		slowFloor:     uint8(c.SlowCallRate),
		slowCall:      c.SlowCall,
		jitter:        c.Jitter,
		maxRetryAfter: c.MaxRetryAfter,
		probeTimeout:  c.HalfOpen.ProbeTimeout,
		maxWait:       c.HalfOpen.MaxWait,
		minCalls:      int32(min(c.MinCalls, maxCount)),
		permits:       int32(min(c.HalfOpen.Calls, maxCount)),
		maxWaitTarget: c.HalfOpen.MaxWaitTarget,
		auto:          c.AutoHalfOpen,
	}}
	if c.SlowCall > 0 && !c.NoOverdue {
		// Rounded up: eight slots may be longer than SlowCall, by 7ns at most, but
		// never shorter, so nothing is overdue early.
		r.width = (c.SlowCall-1)/slotsPerSlowCall + 1
	}
	return r
}

// shared returns rules with the same content: those made last, if they are the same, so
// that of many breakers made one after the other from one Config, as for the hosts of a
// policy, each does not have its own.
func shared(r rules) *rules {
	if last := lastRules.Load(); last != nil && last.equal(&r) {
		return last
	}
	lastRules.Store(&r)
	return &r
}

// Whichever of several breakers made at once is the last: it only saves memory.
var lastRules atomic.Pointer[rules]

func (r *rules) equal(s *rules) bool {
	return r.scalars == s.scalars && slices.Equal(r.openFor, s.openFor)
}

const maxCount = 1<<31 - 1

// minProbes is how many probes must have ended before they are judged. It is
// never more than there are probes, so the last one always decides.
func (r *rules) minProbes() int { return int(min(r.minCalls, r.permits)) }

// slow reports whether a call that took so long is slow.
func (r *rules) slow(took time.Duration) bool { return r.slowCall > 0 && took > r.slowCall }

// verdict returns which rate has reached its threshold; 0 if none has, or if there are
// fewer than enough calls.
func (r *rules) verdict(c counts, enough int) Cause {
	if c.calls < enough {
		return 0
	}
	// A look at the integers spares nearly every call the divisions: what is under
	// a threshold rounded down is under the threshold. c.calls > 0.
	if 100*c.failed >= int(r.failureFloor)*c.calls && percent(c.failed, c.calls) >= r.failureRate {
		return CauseFailureRate
	}
	if 100*c.slow >= int(r.slowFloor)*c.calls && r.slowCall > 0 && percent(c.slow, c.calls) >= r.slowRate {
		return CauseSlowCallRate
	}
	return 0
}

// allowance returns how many failures, with as many successes between them as one
// likes, none of them slow, can be added to a window that has c without a verdict. It
// is negative if a success alone might lead to one.
//
// When there is a verdict, there are calls of them at least: minCalls, or the calls of
// c, since for each outcome that leaves a count window another has come. In the worst
// case, all the bad ones of c are still there. What is added only to the calls, or
// leaves with the bad ones, makes a rate lower.
func (r *rules) allowance(c counts) int {
	calls := max(c.calls, int(r.minCalls))
	if room(r.slowFloor, calls, c.slow) < 0 {
		return -1
	}
	return room(r.failureFloor, calls, c.failed)
}

// room returns how many more of so many calls can be bad, if some are, while the rate
// stays under floor percent; negative if it does not as it is. Where none is bad it is
// never negative, whatever floor: a threshold is above 0.
func room(floor uint8, calls, bad int) int { return (int(floor)*calls-1)/100 - bad }

// percent is one division of integers, so that a rate equal to a threshold is
// equal as a float64, too.
func percent(part, of int) float64 { return float64(100*part) / float64(of) }

// after returns at+d, or the end of time if that is later than a Duration can say.
func after(at, d time.Duration) time.Duration {
	if d > forever-at {
		return forever
	}
	return at + d
}

const forever time.Duration = 1<<63 - 1
