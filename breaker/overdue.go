package breaker

import (
	"context"
	"time"
)

// The overdue rule counts in slots of time, an eighth of SlowCall each. A period
// has its slots to itself: the first begins with the period, and numbers go on
// from those of the period before, so that a number belongs to one period.
//
// A call that began in slot s is overdue from the start of slot s+9. At that
// instant the latest call of slot s has been in flight for longer than eight
// slots, the earliest for nine: none is overdue too early, and none later than
// one slot after it should be. A response in slot s counts until that instant,
// too, so that the responses just before an upstream began to hang are forgotten
// together with the call that found it hanging.
//
// Both counts thus err towards not tripping. If the breaker trips by them, the
// rule holds exactly; and if the rule has held exactly for as long as a slot, while
// no call responded or ended, the breaker has tripped.
const (
	slotsPerSlowCall = 8
	slotsInView      = slotsPerSlowCall + 1
)

// overdue is what the rule counts, of the calls of the current period.
type overdue struct {
	// Of the current slot: the awaited calls that began in it, and the responses.
	begun, answered int32

	// Of the slots before it that are in view, slot s at s%slotsPerSlowCall.
	awaited, responded [slotsPerSlowCall]int32

	late   int // awaited calls that began in slots out of view: those overdue
	recent int // sum of responded
}

// prompt is how many calls responded in the slots in view.
func (o *overdue) prompt() int { return o.recent + int(o.answered) }

// begin puts a call into the current slot.
func (o *overdue) begin() { o.begun++ }

// respond counts a response in the current slot.
func (o *overdue) respond() { o.answered++ }

// pass is begin for some calls, and leave and respond for some that began in the
// current slot.
func (o *overdue) pass(begun, ended int) {
	o.begun += int32(begun - ended)
	o.answered += int32(ended)
}

// leave takes out an awaited call that began in the given slot. A call that was
// ended twice, against the rules, must not take a count below 0 for ever; for the
// current slot, step sees to that.
func (o *overdue) leave(slot, current uint64) {
	if slot == current {
		o.begun--
	} else if slot+slotsInView <= current {
		o.late = max(0, o.late-1)
	} else if n := &o.awaited[slot%slotsPerSlowCall]; *n > 0 {
		*n--
	}
}

// step makes slot the current one; the one before it was current until now.
func (o *overdue) step(slot uint64) {
	i := (slot - 1) % slotsPerSlowCall // held the slot that goes out of view
	o.late += int(o.awaited[i])
	o.recent += int(o.answered - o.responded[i])
	o.awaited[i], o.responded[i] = max(0, o.begun), o.answered
	o.begun, o.answered = 0, 0
}

// stepLocked sets the gate for the slot and the bucket that b.last lies in, and takes
// the counts to that slot, if the rule is on.
//
// That takes at most as many steps as there are slots in view. After these, all
// that happened before the first of them is either overdue or forgotten.
func (b *Breaker) stepLocked() {
	target, start := b.first, b.since
	if width := b.rules().width; width > 0 {
		passed := (b.last - b.since) / width
		target, start = target+uint64(passed), start+passed*width
		slot := b.slot.Load()
		for n := 0; n < slotsInView && slot < target; n++ {
			slot++
			b.overdue.step(slot)
		}
	}
	b.setLocked(target, start, b.stepDue(start, b.last))
}

// stepDue returns the end of what begins with start, a slot, or of the bucket of the
// window that at is in, whichever is first.
func (b *Breaker) stepDue(start, at time.Duration) time.Duration {
	due := b.window.steadyUntil(at)
	if b.rules().width > 0 {
		due = min(due, after(start, b.rules().width))
	}
	return due
}

// judgeOverdueLocked opens the breaker if the overdue rule holds.
//
// Whoever takes the lock calls it, since that may have begun a new slot: before
// deciding by the state or telling it (see look), or after ending or moving a call,
// which may have been one of the overdue. Who passes the gate need not: until the
// slot is over, no call becomes overdue and no response is forgotten, so the rule
// cannot begin to hold.
func (b *Breaker) judgeOverdueLocked(ctx context.Context, now time.Duration) {
	switch b.state {
	case Closed:
		if b.tooManyOverdueLocked() {
			b.moveLocked(ctx, Open, CauseOverdue, now, 0)
		}
	case HalfOpen:
		if late := b.lateProbesLocked(now); late > 0 {
			b.reopenLocked(ctx, late, now)
		}
	}
}

func (b *Breaker) tooManyOverdueLocked() bool {
	late := b.overdue.late
	if late == 0 {
		return false
	}
	enough := int(b.rules().minCalls)
	if b.overdueLimit > 0 {
		enough = min(enough, b.overdueLimit)
	}
	return late >= enough && percent(late, late+b.overdue.prompt()) >= b.rules().slowRate
}

// SetOverdueLimit changes [Config].OverdueLimit, for when the bulkhead around the
// breaker was resized; 0 means no limit. A lower one may open the breaker at once.
// SetOverdueLimit panics if limit is negative.
func (b *Breaker) SetOverdueLimit(limit int) {
	check(limit >= 0, "OverdueLimit", limit)
	ctx := context.Background()
	now := b.lock(ctx, b.now())
	b.overdueLimit = limit
	b.judgeOverdueLocked(ctx, now)
	b.unlock()
}
