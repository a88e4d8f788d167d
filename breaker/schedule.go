package breaker

import (
	"context"
	"time"
)

// maxReplay is how many rounds of open and half-open that nobody looked at are
// made one by one, each with its transitions.
const maxReplay = 64

// catchUpLocked makes the changes that were due by b.last, in order, each at the
// instant it was due: a half-open whose MaxWait ended 200ms ago has been open for
// 200ms.
//
// The number of steps does not depend on how long nobody looked. In Closed there is
// one. The first round of open and half-open ends the probes in flight, as many as
// are configured at most; later rounds have none, there are as many of them as
// entries in Config.OpenFor until the periods repeat, and of those that repeat
// maxReplay are left to make.
//
// None is made as of an instant before from, for rules that are in force only since
// then.
func (b *Breaker) catchUpLocked(ctx context.Context, from time.Duration) {
	for {
		switch b.state {
		case Open:
			if !b.rules().auto || b.last < time.Duration(b.until.Load()) {
				return
			}
			b.skipRoundsLocked(from)
			b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, max(from, time.Duration(b.until.Load())), 0)
		case HalfOpen:
			probeDue, endDue := b.dueLocked(from)
			switch {
			// At the same instant the probe goes first: that it failed is
			// evidence, that time is up is none.
			case probeDue > 0 && (endDue == 0 || probeDue <= endDue):
				b.endProbeLocked(ctx, b.half.probes[0].id, Failure, true, probeDue)
			case endDue > 0:
				b.moveLocked(ctx, b.rules().maxWaitTarget, CauseHalfOpenElapsed, endDue, 0)
			default:
				return
			}
		default:
			if b.last >= time.Duration(b.until.Load()) {
				b.stepLocked() // Closed or MetricsOnly: in others nothing is due
			}
			return
		}
	}
}

// dueLocked returns the instants, in half-open, at which the oldest probe was to
// be given up and the state was to end, or from if that is later; 0 for one that has not
// come. (Neither can be at 0 itself, since both lie a positive time after the breaker
// was made.)
func (b *Breaker) dueLocked(from time.Duration) (probe, end time.Duration) {
	// Differences, since a sum with a very long limit may overflow.
	if d := b.rules().probeTimeout; d > 0 && len(b.half.probes) > 0 && b.last-b.half.probes[0].start >= d {
		probe = max(from, b.half.probes[0].start+d)
	}
	if d := b.rules().maxWait; d > 0 && b.last-b.since >= d {
		end = max(from, b.since+d)
	}
	return probe, end
}

// skipRoundsLocked moves an open period that is over forward, by whole rounds of
// open and half-open, until about maxReplay of them are left. It does so only where
// all of these are alike: with the last entry of Config.OpenFor, if it was that which
// the present period was opened for. Of periods with jitter, nobody saw these, and
// they are taken as long as their mean. There were no rounds before from.
func (b *Breaker) skipRoundsLocked(from time.Duration) {
	maxWait, until := b.rules().maxWait, time.Duration(b.until.Load())
	passed := b.last - max(from, until)
	if maxWait == 0 || maxWait > passed || b.rules().maxWaitTarget != Open || b.attempt < len(b.rules().openFor) {
		return
	}
	round := after(b.rules().baseFor(b.attempt), maxWait)
	if skip := passed/round - maxReplay; skip > 0 {
		b.attempt += int(skip)
		b.since += skip * round
		b.enterGateLocked(b.since, until+skip*round)
	}
}
