package watertight

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// maxFaults is how many calls a trip names at most.
const maxFaults = 8

// A Fault is what speaks against a call that a breaker watches.
type Fault struct {
	Failed  bool          // filed as a failure
	Slow    bool          // filed as slow; a call can be both
	Overdue bool          // still in flight, beyond slowCall or, as a probe, beyond probeTimeout
	Took    time.Duration // the call itself, as the breaker counts it; so far, if Overdue
	Kept    any           // what this set's Fault hook returned; in a TransitionEvent not nil, in a FaultEvent always
}

// A FaultEvent tells of a call that counts against what its breaker watches.
type FaultEvent struct {
	Compartment
	Fault
}

// faults is what is known of the calls that count against what one breaker watches, for
// as long as the breaker's period lasts. There is none where no hook asks.
//
// A call is noted just before it is filed, so that whoever trips the breaker finds
// all those it was tripped by, itself included. The other way round, one that failed
// might be told to the breaker, and another trip it and have that told, before the
// first was noted. What can be noted and yet not be in the figures of the trip is a
// call that failed at the same moment, and was filed too late to count.
//
// A call belongs to the period that let it in. Two things tell: it began no earlier
// than the period did, and was let in by the state that the period is called after;
// the second matters where a period lasts no time at all. Changes may be told long after
// they happened, while a hook is busy with the one before; by then calls of later periods
// are here already, and stay.
type faults struct {
	// Whether inside is full. Written under mu, and read without by calls that begin, so
	// that where there are many of them they do not all queue for the lock. One that
	// reads what was true a moment ago is left out, or takes the lock and looks again.
	full atomic.Bool

	mu sync.Mutex // guards the fields below

	slowCall     time.Duration // beyond it a call is overdue; 0: none is
	probeTimeout time.Duration // from it on a probe is given up; 0: none is
	since        time.Time     // when the period began, as far as anybody was told; zero: nobody was
	failed, slow trail
	inside       []insider // some of the calls in flight that a hook would keep something of, at most maxFaults
	tickets      uint32    // given out for inside; 0 is none
}

// A trail is the calls that were filed as one kind.
type trail struct {
	n      uint64  // all of them
	latest []noted // of those of which a hook kept something, the latest, oldest first
}

// A noted is a call that has ended.
type noted struct {
	n          uint64 // it was the nth of its trail
	start, end time.Time
	by         breaker.State // let it in
	fault      Fault         // without Kept
	kept       []any         // by set of hooks
}

// An insider is a call in flight that may become overdue.
type insider struct {
	ticket  uint32
	start   time.Time
	by      breaker.State
	ctx     context.Context // that it runs under
	granted grants          // what the sets' Grants returned; none, also in part: as ctx
}

func (tr *trail) add(c noted) {
	tr.n++
	if c.kept == nil {
		return
	}
	c.n = tr.n
	if len(tr.latest) == maxFaults {
		tr.latest = append(tr.latest[:0], tr.latest[1:]...)
	}
	tr.latest = append(tr.latest, c)
}

// within returns those of the last n calls that belong to the period before t. A change
// may be seen late: what ended after it was due is none of its reasons.
func (tr *trail) within(n int, since time.Time, t breaker.Transition) []noted {
	var found []noted
	for _, c := range tr.latest {
		if tr.n-c.n < uint64(n) && !c.start.Before(since) && c.by == t.From && !c.end.After(t.At) {
			found = append(found, c)
		}
	}
	return found
}

// forget drops what is older than the period after t.
func (tr *trail) forget(t breaker.Transition) {
	tr.latest = slices.DeleteFunc(tr.latest, func(c noted) bool { return past(c.start, c.by, t) })
}

// past reports whether a call belongs to the period that t ended, or one before.
func past(start time.Time, by breaker.State, t breaker.Transition) bool {
	return start.Before(t.At) || start.Equal(t.At) && by == t.From
}

// share returns how many calls of a transition's figures are behind one of its rates. A
// window has lost the others; of probes none is lost.
func share(t breaker.Transition, rate float64) int {
	if t.From == breaker.HalfOpen || rate < 0 {
		return math.MaxInt
	}
	return int(math.Round(rate * float64(t.Calls) / 100))
}

// turn ends the period before t, and returns the calls that t is owed to, the latest
// last: those that have ended, and those in flight, which are to be asked about.
func (f *faults) turn(t breaker.Transition) (ended []noted, inside []insider) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.To == breaker.Open {
		ended, inside = f.endedLocked(t), f.overdueLocked(t)
	}
	f.failed.forget(t)
	f.slow.forget(t)
	f.inside = slices.DeleteFunc(f.inside, func(in insider) bool { return past(in.start, in.by, t) })
	f.full.Store(len(f.inside) == maxFaults)
	f.since = t.At
	return ended, inside
}

func (f *faults) endedLocked(t breaker.Transition) []noted {
	switch t.Cause {
	case breaker.CauseFailureRate, breaker.CauseHalfOpenElapsed:
		return f.failed.within(share(t, t.FailureRate), f.since, t)
	case breaker.CauseSlowCallRate:
		return f.slow.within(share(t, t.SlowCallRate), f.since, t)
	case breaker.CauseOverdue:
		if t.From == breaker.HalfOpen { // where slow probes count with those overdue
			return f.slow.within(share(t, t.SlowCallRate), f.since, t)
		}
	}
	return nil
}

func (f *faults) overdueLocked(t breaker.Transition) []insider {
	byOverdue := t.Cause == breaker.CauseOverdue && f.slowCall > 0
	byTimeout := t.From == breaker.HalfOpen && t.Cause != breaker.CauseForced && f.probeTimeout > 0
	var found []insider
	for _, in := range f.inside {
		took := t.At.Sub(in.start)
		if in.start.Before(f.since) || in.by != t.From {
			continue
		}
		if byOverdue && took > f.slowCall || byTimeout && took >= f.probeTimeout {
			found = append(found, in)
		}
	}
	return found
}

// configure runs change, by which the breaker gets other settings. It may trip it, by the
// settings before or by the new ones; meanwhile what is overdue by either is. f may be nil.
func (f *faults) configure(to *policy.BreakerSettings, change func()) {
	if f == nil {
		change()
		return
	}
	slowCall, probeTimeout := to.SlowCall, to.HalfOpen.ProbeTimeout
	f.mu.Lock()
	f.slowCall, f.probeTimeout = sooner(f.slowCall, slowCall), sooner(f.probeTimeout, probeTimeout)
	f.mu.Unlock()
	change()
	f.mu.Lock()
	f.slowCall, f.probeTimeout = slowCall, probeTimeout
	f.mu.Unlock()
}

// sooner returns the smaller of two durations of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (f *faults) noteEnded(c noted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.start.Before(f.since) {
		return // the breaker will say the same, and drop it
	}
	if c.fault.Failed {
		f.failed.add(c)
	}
	if c.fault.Slow {
		f.slow.add(c)
	}
}

// enter puts a call among those inside, if there is room, and returns its ticket. One of
// a period that is over has no business there, and might stay for long.
func (f *faults) enter(in insider) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.inside) == maxFaults || in.start.Before(f.since) {
		return 0
	}
	if f.tickets++; f.tickets == 0 {
		f.tickets++
	}
	in.ticket = f.tickets
	f.inside = append(f.inside, in)
	f.full.Store(len(f.inside) == maxFaults)
	return in.ticket
}

// leave takes a call out, unless the end of its period has.
func (f *faults) leave(ticket uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.inside {
		if f.inside[i].ticket == ticket {
			f.inside = slices.Delete(f.inside, i, i+1)
			f.full.Store(false)
			return
		}
	}
}

// exposed notes that the call's time runs: it may become overdue. Without slowCall only
// a probe can, in a way.
func (c *Call) exposed() {
	if !c.Watched() || c.breaker.faults == nil || c.breaker.faults.full.Load() {
		return
	}
	probe := c.watch.State() == breaker.HalfOpen
	if (c.breaker.breakerRule.SlowCall > 0 || probe) && c.g.hooks.keepsFault(c.runCtx, &c.granted) {
		c.ticket = c.breaker.faults.enter(insider{
			start: c.watch.Start(), by: c.watch.State(), ctx: c.runCtx, granted: c.granted,
		})
	}
}

// safe notes that the call cannot become overdue any more.
func (c *Call) safe() {
	if c.ticket != 0 {
		c.breaker.faults.leave(c.ticket)
		c.ticket = 0
	}
}

// blame tells the hooks of a call that is about to be filed, if it counts against what
// it calls; now is no later than the breaker will have it.
func (c *Call) blame(o breaker.Outcome, took time.Duration, now time.Time) {
	slowCall := c.breaker.breakerRule.SlowCall
	fault := Fault{Failed: o == breaker.Failure, Slow: slowCall > 0 && took > slowCall, Took: took}
	if o == breaker.Ignored || !fault.Failed && !fault.Slow {
		return
	}
	kept := c.g.hooks.fault(c.runCtx, &c.granted, FaultEvent{c.breaker.Compartment, fault})
	c.breaker.faults.noteEnded(noted{start: c.watch.Start(), end: now, by: c.watch.State(), fault: fault, kept: kept})
}

// tellTransition tells the hooks of a change of a breaker of c, and of the calls that it
// is owed to, as f knows them.
func (h *hookSets) tellTransition(c *compartment, t breaker.Transition, f *faults) {
	l := c.limits.Load()
	e := TransitionEvent{Compartment: c.Compartment, Transition: t, Mode: l.rule.Mode}
	if f == nil {
		h.transition(t.Context, e, nil)
		return
	}
	calls, inside := f.turn(t)
	for _, in := range inside {
		fault := Fault{Overdue: true, Took: t.At.Sub(in.start)}
		if kept := h.fault(in.ctx, &in.granted, FaultEvent{c.Compartment, fault}); kept != nil {
			calls = append(calls, noted{fault: fault, kept: kept})
		}
	}
	h.transition(t.Context, e, calls[max(0, len(calls)-maxFaults):])
}
