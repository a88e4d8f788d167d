package breaker

import (
	"sync/atomic"
	"time"
)

// A gate is what nearly all calls go through, on their way in and on their way out,
// without the lock. Whoever has the lock (see Breaker.lock) has shut the gate and
// taken out what it held, so that under the lock there is no gate to think of: all is
// as if every call had taken the lock. This is the argument that all is so, too, for
// those that did not.
//
// One instant. word says in which epoch the gate is, and what it holds. slot, from,
// until and the breaker's rules are written only while the gate is shut, and each time
// begins a new epoch.
// Whoever passes loads word, then the others, and then either changes word by a
// compare-and-swap from what was loaded, or loads it again and finds the same epoch.
// So between the two, all belonged to that epoch: what is of a later one is written
// after the gate was shut for it, and what is of an earlier one before this one was
// opened. The second of the two is the instant at which the call was let in, refused
// or ended. (An epoch comes again after 2^26 of them. To be misled, a goroutine would
// have to rest for exactly so long between two of its instructions.)
//
// On the way in, the state decides, and until an instant that is due changes it (until)
// or the lock is taken, that is all that the lock would have decided by. What it would
// have counted, a call begun in this slot, word counts (begun): in the word itself,
// since a count of its own could only be written before or after, when the slot, or
// even the period, might be another.
//
// On the way out, word holds the outcome until somebody takes the lock. The one who
// does files it before anything else, and nobody sees any outcomes, but under the
// lock; so it is as good as filed, if filing it at its own instant would have set
// nothing else in motion, and does the same now as then. That is why only such a call
// leaves its outcome here as
//   - began in this slot and was awaited all along, so that for the overdue rule one
//     call begun is one less and one response is one more, whenever in this slot. Until
//     the slot is over nothing becomes overdue, so that the rule, which did not hold when
//     the gate was opened, will not;
//   - ended before until, which is not after the end of the bucket of a time window, so
//     that it goes into the same bucket, and no outcome has left the window meanwhile;
//   - was not slow, and is not one failure more than word says (failures), which is as
//     many as can be added without a trip, whatever the order: see rules.allowance. If
//     even a success might trip, word has no room for outcomes (locked).
//
// The lock is taken by all others, which are rare where it matters: many calls a second
// are calls that end soon, in the slot in which they began. Besides, one call in a few
// hundred finds word full, or every twelfth while failures are among them.
type gate struct {
	word  atomic.Uint64 // a word
	slot  atomic.Uint64 // current number of the overdue rule; while that is off, of the period
	from  atomic.Int64  // the gate lets by at from and later, and before until
	until atomic.Int64
}

func (g *gate) load() word               { return word(g.word.Load()) }
func (g *gate) swap(old, next word) bool { return g.word.CompareAndSwap(uint64(old), uint64(next)) }

// setLocked begins a new epoch. If from and until are the same, the gate will let
// nobody by, even when it is open.
func (g *gate) setLocked(slot uint64, from, until time.Duration) {
	g.word.Store(uint64((g.load() + oneEpoch).shut()))
	g.slot.Store(slot)
	g.from.Store(int64(from))
	g.until.Store(int64(until))
}

// shutLocked shuts the gate and files what it held: as of b.last, which is in the
// epoch, so the bucket of the window is the right one.
func (b *Breaker) shutLocked() {
	// While the gate is open, its epoch stays.
	w := word(b.word.Swap(uint64(b.load().shut())))
	if b.rules().width > 0 {
		b.overdue.pass(w.begun(), w.run()+w.tail())
	}
	for range w.run() {
		b.window.add(b.last, false, false)
	}
	for i := w.tail() - 1; i >= 0; i-- {
		b.window.add(b.last, w.failed(i), false)
	}
}

// openLocked opens the gate for the state that the breaker is in now.
func (b *Breaker) openLocked() {
	allowance := -1
	switch b.state {
	case Closed:
		allowance = b.rules().allowance(b.window.counts(b.last))
	case MetricsOnly: // nothing trips
		allowance = int(maxFailures)
	}
	b.word.Store(uint64(b.load().open(b.state, allowance)))
}

// pass is Allow without the lock. It reports whether that was possible. A call that is
// refused has no breaker.
func (b *Breaker) pass(now time.Duration) (call Call, ok bool) {
	for {
		w, slot, until := b.load(), b.slot.Load(), time.Duration(b.until.Load())
		if now < time.Duration(b.from.Load()) || now >= until {
			return Call{}, false
		}
		switch state := w.state(); state {
		case Closed, Disabled, MetricsOnly:
			if w.has(crowded) {
				return Call{}, false
			}
			if b.rules().width == 0 && b.load().sameEpoch(w) || b.swap(w, w+oneBegun) {
				return Call{b, slot, now, kind{state: state}}, true
			}
		case Open:
			if b.load().sameEpoch(w) {
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

// leave is end without the lock. It reports whether that was possible.
func (b *Breaker) leave(c Call, o Outcome, now, took time.Duration) bool {
	if o == Ignored || c.kind.phase != awaited {
		return false
	}
	for {
		w := b.load()
		if c.slot != b.slot.Load() || b.rules().slow(took) || now < time.Duration(b.from.Load()) || now >= time.Duration(b.until.Load()) {
			return false
		}
		next, ok := w.with(o)
		if !ok {
			return false
		}
		if b.swap(w, next) {
			return true
		}
	}
}
