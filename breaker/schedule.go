package breaker

import (
	"context"
	"time"
)

// maxReplay is how many rounds of open and half-open that nobody looked at are
// made one by one, each with its transitions.
const maxReplay = 64

// catchUpLocked makes the changes that were due by b.last and after seen, in
// order, each at the instant it was due: a half-open whose MaxWait ended 200ms ago
// has been open for 200ms.
//
// The number of steps does not depend on how long nobody looked. In Closed there is
// one. The first round of open and half-open looks at the probes in flight, as many
// as are configured; later rounds have none, there are as many of them as entries
// in Config.OpenFor until the periods repeat, and of those that repeat maxReplay
// are left to make.
func (b *Breaker) catchUpLocked(ctx context.Context, seen time.Duration) {
	for {
		switch b.state {
		case Closed, MetricsOnly:
			if b.rules.width == 0 || !b.stepLocked(ctx) {
				return
			}
		case Open:
			if !b.rules.auto || b.last < time.Duration(b.until.Load()) {
				return
			}
			b.skipRoundsLocked()
			b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, time.Duration(b.until.Load()), 0)
		case HalfOpen:
			give, late, end := b.dueLocked(seen)
			switch first := min(give, late, end); {
			case first > b.last:
				return
			// At the same instant the probe goes first: that it failed is
			// evidence, that time is up is none.
			case first == give:
				b.endProbeLocked(ctx, b.half.probes[0].id, Failure, true, first)
			case first == late:
				seen = first
				b.reopenLocked(ctx, b.lateProbesLocked(first), first)
			default:
				b.moveLocked(ctx, b.rules.maxWaitTarget, CauseHalfOpenElapsed, first, 0)
			}
		default:
			return
		}
	}
}

// dueLocked returns the instants, in half-open, at which the oldest probe is given
// up, at which the next probe after seen becomes overdue, and at which the state
// ends; past b.last for one that never comes.
func (b *Breaker) dueLocked(seen time.Duration) (give, late, end time.Duration) {
	const never = forever
	give, late, end = never, never, never
	if d := b.rules.probeTimeout; d > 0 && len(b.half.probes) > 0 {
		give = after(b.half.probes[0].start, d)
	}
	if b.rules.width > 0 {
		for _, p := range b.half.probes {
			if t := b.probeLateLocked(p); p.phase == awaited && t > seen {
				late = t
				break // the later a probe began, the later it is overdue
			}
		}
	}
	if d := b.rules.maxWait; d > 0 {
		end = after(b.since, d)
	}
	return give, late, end
}

// skipRoundsLocked moves an open period that is over forward, by whole rounds of
// open and half-open, until about maxReplay of them are left. It does so only where
// all of these are alike: with the last entry of Config.OpenFor, if it was that which
// the present period was opened for. Of periods with jitter, nobody saw these, and
// they are taken as long as their mean.
func (b *Breaker) skipRoundsLocked() {
	maxWait, until := b.rules.maxWait, time.Duration(b.until.Load())
	passed := b.last - until
	if maxWait == 0 || maxWait > passed || b.rules.maxWaitTarget != Open || b.attempt < len(b.rules.openFor) {
		return
	}
	round := after(b.rules.baseFor(b.attempt), maxWait)
	if skip := passed/round - maxReplay; skip > 0 {
		b.attempt += int(skip)
		b.since += skip * round
		b.enterGateLocked(b.since, until+skip*round)
	}
}
