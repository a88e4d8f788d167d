package breaker

import (
	"sync/atomic"
	"time"
)

// A gate lets nearly all calls in, and out again, without the lock. It does so by one
// word, which a call changes by compare-and-swap: as it comes in, to be counted, and as
// it leaves, to leave its outcome behind. Whoever takes the lock (Breaker.lock) first
// shuts the gate and files what it held. So nobody who has the lock has to think of the
// gate: for him, all is as if every call had taken the lock. Why is it so for the
// others, too?
//
// What a call goes by belongs together. slot, from, until and the breaker's rules are
// written only while the gate is shut, and never without a new epoch. A call loads word,
// then these, and then either swaps the word that it loaded for another, or loads it
// again and finds the epoch unchanged. If that succeeds, it has seen nothing later than
// that epoch, for which the gate would have been shut first, and nothing earlier, since
// all of an epoch is written before the gate opens for it. At the instant at which it
// succeeds, the call is let in, refused, or ended. (An epoch comes again after 2^26 of
// them. To be misled, a goroutine would have to rest for exactly that long between two
// of its instructions.)
//
// A call that comes in is told what the lock would have told it. The state is that of
// the epoch, and from from until until nothing is due that would change it. The count of
// the calls begun stands in word, and not beside it: written a moment later, it would
// be found in the next slot, or the next period, and nobody would take the call out of
// that again.
//
// A call that leaves would, under the lock, be filed in the window, be judged there, and
// move from those awaited to those that have responded. It need not take the lock if
// doing this later comes to the same. Nobody can tell the difference meanwhile, since
// nobody sees any of it but under the lock. What remains:
//
//   - The overdue rule counts by the slot. The call began in the current one and was
//     awaited all along, so that it is only a number: one call less, one response more.
//     In that slot no further call becomes overdue, so that the rule, which did not hold
//     when the gate was opened, cannot begin to.
//   - A time window counts by the bucket. The gate is open no longer than the bucket
//     lasts, so that the outcome comes into its own one, and none leaves before it is in.
//   - A count window drops what came first. word holds the outcomes in their order.
//   - Nothing may trip unnoticed. word says how many of the outcomes that it holds may be
//     failures: as many as cannot trip the breaker, however they come. None may be slow.
//     Where a success alone might trip, which takes a window that has lost old
//     outcomes, or too few of them to be judged, it may hold none. See rules.allowance.
//
// Nor does it matter that the clock may have been read before last. Under the lock, last
// would be used instead, which is in the same slot and the same bucket.
//
// That leaves, for the lock: calls that last into another slot, are slow, waited, or
// might trip. Calls that are many a second at one breaker are short, so where there is
// contention these are few. Besides, word is full after some hundred successes, and a
// dozen outcomes after the first failure.
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

// shutLocked shuts the gate and files what it held, as of b.last, which is in the same
// bucket.
func (b *Breaker) shutLocked() {
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
