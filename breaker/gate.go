package breaker

import (
	"sync/atomic"
	"time"
)

// A gate is the part of a breaker's state with which Allow decides without the
// lock, as long as nothing is due. It is written under the lock only, but for the
// count, which Allow writes.
//
// word holds, from the top, the state in 3 bits, an epoch in 29 and a count in
// 32. The count is of the calls that were let in since the epoch began, without
// the lock; the epoch changes whenever anything but the count does. While the
// state is 0, the gate is being written, and is shut.
//
// Allow loads word, then the other fields, and then either adds its call to the
// count by a compare-and-swap of the word that it loaded, or loads word again and
// finds it unchanged. Either succeeds only if the epoch is still the same, and
// then what it loaded in between belongs to that epoch: the writer changes word
// first, so fields of a later epoch come with a changed word, and last, so fields
// of an earlier epoch come with a shut one. So its decision is the one of that
// instant, at which the lock would have given it the same: the state is that of
// the epoch, and nothing was due at now. (An epoch comes again after 2^29 of
// them, each of which took the lock. To be misled, Allow would have to rest for
// exactly that long between two of its instructions.)
//
// The count goes into the same word as the epoch, rather than into an atomic of its
// own, because of what would happen with two: between finding the epoch unchanged
// and adding to the count, the slot could change, and the call would be counted in
// a slot, or even in a period, that it does not belong to; nobody would ever take
// it out again.
type gate struct {
	word  atomic.Uint64
	from  atomic.Int64 // the decision holds at from and later, and before until
	until atomic.Int64
	slot  atomic.Uint64 // current number of the overdue rule; while that is off, of the period
}

const (
	stateShift = 61
	epochShift = 32
	epochBits  = 1<<stateShift - 1<<epochShift
	countFull  = 1 << (epochShift - 2) // far from running over into the epoch, or out of an int32
)

// shutLocked shuts the gate, and returns the count of the epoch that this ends.
func (b *Breaker) shutLocked() (count uint32) {
	// The epoch changes here and not in openLocked, since Allow may find the gate
	// open before, shut not at all, and open after.
	epoch := (b.word.Load() + 1<<epochShift) & epochBits
	return uint32(b.word.Swap(epoch))
}

// openLocked opens the gate for the state of the breaker, from an instant until
// another. If these are the same, it lets nobody through without the lock.
func (b *Breaker) openLocked(slot uint64, from, until time.Duration) {
	b.slot.Store(slot)
	b.from.Store(int64(from))
	b.until.Store(int64(until))
	b.word.Store(b.word.Load() | uint64(b.state)<<stateShift)
}

// pass is Allow without the lock. It reports whether that was possible. A call that is
// refused has no breaker.
func (b *Breaker) pass(now time.Duration) (call Call, ok bool) {
	for {
		word, until := b.word.Load(), time.Duration(b.until.Load())
		if now < time.Duration(b.from.Load()) || now >= until {
			return Call{}, false
		}
		state := State(word >> stateShift)
		switch state {
		case Closed, Disabled, MetricsOnly:
			slot := b.slot.Load()
			if word&countFull != 0 {
				return Call{}, false
			}
			if b.rules.width == 0 && b.word.Load() == word || b.word.CompareAndSwap(word, word+1) {
				return Call{b, slot, now, kind{state: state}}, true
			}
		case Open:
			if b.word.Load() == word {
				b.denied.Add(1)
				return Call{when: until - now, kind: kind{state: Open}}, true
			}
		case ForcedOpen:
			b.denied.Add(1)
			return Call{kind: kind{state: ForcedOpen}}, true
		default:
			return Call{}, false
		}
	}
}
