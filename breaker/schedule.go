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
// The number of steps does not depend on how long nobody looked. The first round
// of open and half-open ends the probes in flight, at most cfg.HalfOpen.Calls;
// later rounds have none, there are as many of them as entries in cfg.OpenFor
// until the periods repeat, and of those that repeat maxReplay are left to make.
func (b *Breaker) catchUpLocked(ctx context.Context) {
	for {
		switch b.state {
		case Open:
			if !b.cfg.AutoHalfOpen || b.last-b.since < b.openFor {
				return
			}
			b.skipRoundsLocked()
			b.moveLocked(ctx, HalfOpen, CauseOpenElapsed, b.since+b.openFor, 0)
		case HalfOpen:
			probeDue, endDue := b.dueLocked()
			switch {
			// At the same instant the probe goes first: that it failed is
			// evidence, that time is up is none.
			case probeDue > 0 && (endDue == 0 || probeDue <= endDue):
				b.endProbeLocked(ctx, b.probes[0].id, Failure, true, probeDue)
			case endDue > 0:
				b.moveLocked(ctx, b.cfg.HalfOpen.MaxWaitTarget, CauseHalfOpenElapsed, endDue, 0)
			default:
				return
			}
		default:
			return
		}
	}
}

// dueLocked returns the instants, in half-open, at which the oldest probe was to
// be given up and the state was to end; 0 for one that has not come. (Neither can
// be at 0 itself, since both lie a positive time after the breaker was made.)
func (b *Breaker) dueLocked() (probe, end time.Duration) {
	// Differences, since a sum with a very long limit may overflow.
	if d := b.cfg.HalfOpen.ProbeTimeout; d > 0 && len(b.probes) > 0 && b.last-b.probes[0].start >= d {
		probe = b.probes[0].start + d
	}
	if d := b.cfg.HalfOpen.MaxWait; d > 0 && b.last-b.since >= d {
		end = b.since + d
	}
	return probe, end
}

// skipRoundsLocked moves the start of an open period that is over forward, by
// whole rounds of open and half-open, until maxReplay of them are left. It does
// so only where all of these are alike: with the last entry of cfg.OpenFor.
func (b *Breaker) skipRoundsLocked() {
	passed := b.last - b.since
	maxWait := b.cfg.HalfOpen.MaxWait
	if maxWait == 0 || maxWait > passed || b.cfg.HalfOpen.MaxWaitTarget != Open ||
		b.attempt < len(b.cfg.OpenFor) || b.openFor != b.cfg.openFor(b.attempt) {
		return
	}
	round := b.openFor + maxWait
	if skip := passed/round - maxReplay; skip > 0 {
		b.since += skip * round
		b.attempt += int(skip)
		b.period++
	}
}
