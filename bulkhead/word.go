package bulkhead

// A word is the part of a bulkhead's state that decides over a call which does
// not queue: all of it fits into 64 bits, so that one compare-and-swap admits
// such a call and one takes its permit back.
//
//	bit  0      waiting   somebody is in the queue, or its timer is set
//	bit  1      closed    for good
//	bit  2      room      a call that finds no permit may queue
//	bits 3-15   grants    not yet added to Bulkhead.granted
//	bits 16-39  limit
//	bits 40-63  in flight
//
// A word without waiting and closed may be changed by anybody, by
// compare-and-swap: Acquire and TryAcquire add a permit and a grant while in
// flight is below the limit, Release takes a permit away. Everything else
// changes only under Bulkhead.mu. With waiting or closed set, only the holder of
// mu changes anything at all. Anybody may read.
//
// That each of these facts is in the one word is what makes the fast paths
// right, because a compare-and-swap succeeds only if all of them still hold:
//
//   - in flight with the limit: a call is admitted below the limit of that very
//     moment, however a Resize runs beside it;
//   - in flight with waiting: a call takes a permit only when nobody waits for
//     it, and a call that starts to wait does so only when there is none. It
//     sets waiting in a swap that fails if a permit came back meanwhile. From
//     then on every Release goes through mu, where the queue is. So nobody
//     overtakes a waiter and no wake-up is lost;
//   - in flight with closed: a Release that a Drain waits for cannot slip by it;
//   - in flight with room: a call is refused in a moment at which there was
//     neither a permit nor a place in the queue for it;
//   - in flight with grants: a grant is counted in the step that makes it.
//
// waiting outlasts the last waiter as long as the timer is set, and no permit is
// free meanwhile. A queue that becomes empty with a hand-over and fills again
// before the next leaves the word alone. If it does not fill, the next Release
// finds nobody, stops the timer, and takes waiting away with its permit.
//
// Where two of these words are equal they mean the same, so a word that has
// changed and changed back under a slow compare-and-swap (the ABA problem) is
// harmless: nothing about the call is remembered but the word.
type word uint64

const (
	waiting word = 1 << iota
	closed
	room
	oneGrant

	grantsShift   = 3
	limitShift    = 16
	inFlightShift = 40

	grants    word = 1<<limitShift - oneGrant
	limits    word = 1<<inFlightShift - 1<<limitShift
	onePermit word = 1 << inFlightShift
)

// MaxLimit is the highest limit that a [Bulkhead] can have. A higher one in a
// [Config] or a call to [Bulkhead.Resize] counts as this.
const MaxLimit = 1<<(inFlightShift-limitShift) - 1

func (w word) inFlight() int   { return int(w >> inFlightShift) }
func (w word) limit() int      { return int(w & limits >> limitShift) }
func (w word) grants() uint64  { return uint64(w & grants >> grantsShift) }
func (w word) has(f word) bool { return w&f != 0 }

// free reports whether a newcomer can have a permit at once.
func (w word) free() bool { return !w.has(waiting|closed) && w.inFlight() < w.limit() }

func (w word) withLimit(n int) word {
	return w&^limits | word(min(n, MaxLimit))<<limitShift
}

// with sets flags, or clears them.
func (w word) with(flags word, on bool) word {
	if on {
		return w | flags
	}
	return w &^ flags
}
