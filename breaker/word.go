package breaker

import "math/bits"

// A word is the part of a gate that calls write: what they leave for whoever takes
// the lock next, together with what has to be so still at the instant they leave it.
//
//	bits  0-7   run       of the outcomes held, the oldest: so many successes
//	bits  8-20  tail      the outcomes after these, a bit each: 1 for a failure. The
//	                      latest is lowest; a 1 stands above the oldest
//	bit  21     locked    no outcome may be added but under the lock
//	bits 22-25  failures  so many more of the outcomes may be failures
//	bits 26-34  begun     the calls let in
//	bits 35-60  epoch
//	bits 61-63  state     of the breaker; 0 while the gate is shut
//
// Outcomes are held in their order, because a count window drops them in that order.
// Nearly all are successes, and for these a number does, up to the first failure;
// from there it takes the tail.
type word uint64

const (
	tailShift    = 8
	lockedShift  = 21
	failureShift = 22
	begunShift   = 26
	epochShift   = 35
	stateShift   = 61

	run        word = 1<<tailShift - 1
	tail       word = 1<<lockedShift - emptyTail
	emptyTail  word = 1 << tailShift
	fullTail   word = 1 << (lockedShift - 1)
	locked     word = 1 << lockedShift
	oneFailure word = 1 << failureShift
	failures   word = 1<<begunShift - oneFailure
	oneBegun   word = 1 << begunShift
	begun      word = 1<<epochShift - oneBegun
	crowded    word = 1 << (epochShift - 1) // the top bit of begun, which so never runs over
	oneEpoch   word = 1 << epochShift
	epochs     word = 1<<stateShift - oneEpoch

	maxFailures = failures / oneFailure // more than the tail has room for
)

func (w word) has(f word) bool { return w&f != 0 }
func (w word) state() State    { return State(w >> stateShift) }
func (w word) begun() int      { return int(w & begun / oneBegun) }

// run is the number of successes before the tail, which has the other outcomes.
func (w word) run() int  { return int(w & run) }
func (w word) tail() int { return bits.Len64(uint64(w&tail/emptyTail)) - 1 }

// failed reports whether the outcome number i of the tail, the latest being 0, is a
// failure.
func (w word) failed(i int) bool { return w.has(emptyTail << i) }

// sameEpoch reports whether state and epoch are the same in both.
func (w word) sameEpoch(v word) bool { return (w^v)>>epochShift == 0 }

// with returns w with one more outcome, if there is room for it.
func (w word) with(o Outcome) (next word, ok bool) {
	switch {
	case w.has(locked | fullTail), o == Failure && !w.has(failures):
		return w, false
	case o == Failure:
		return w + w&tail + emptyTail - oneFailure, true
	case w&tail == emptyTail && w&run != run:
		return w + 1, true
	default:
		return w + w&tail, true // twice as much is one place up
	}
}

// shut is the word of a gate that is shut, which holds nothing.
func (w word) shut() word { return w&epochs | locked | emptyTail }

// open is that of a gate that is open, and may come to hold so many failures, and
// so many more successes as there is room for; or no outcomes, if allowance is
// negative.
func (w word) open(s State, allowance int) word {
	w = w.shut() | word(s)<<stateShift
	if allowance >= 0 {
		w ^= locked
		w |= min(word(allowance), maxFailures) * oneFailure
	}
	return w
}
