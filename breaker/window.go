package breaker

import "time"

// counts are the outcomes that a rate is computed from. A call that was both
// slow and failed is one call, one failed and one slow.
type counts struct {
	calls, failed, slow int
}

func (c *counts) add(failed, slow bool) {
	c.calls++
	if failed {
		c.failed++
	}
	if slow {
		c.slow++
	}
}

func (c *counts) subtract(d counts) {
	c.calls -= d.calls
	c.failed -= d.failed
	c.slow -= d.slow
}

// A window keeps the outcomes that a closed breaker is judged by. Instants are
// durations since the breaker was made.
type window interface {
	add(now time.Duration, failed, slow bool) counts // with what is in the window then
	counts(now time.Duration) counts
	steadyUntil(now time.Duration) time.Duration // before then, nothing leaves but by add
	reset()
	// resized returns the window that w asks for, with the latest outcomes of this one
	// that it has room for; with none if it is of another kind. It may be the same.
	resized(w Window, now time.Duration) window
}

func newWindow(w Window) window {
	if w.Time > 0 {
		return newTimeWindow(w.Time)
	}
	return newCountWindow(w.Calls)
}

// A countWindow keeps the last size outcomes as a ring of two bits each, and
// their sum.
type countWindow struct {
	ring       []uint64 // failed and slow of outcome i in bits 2i and 2i+1, i counted over all words
	size, next int      // next is where the next outcome goes; once the ring is full, the oldest sits there
	sum        counts
}

const failedBit, slowBit = 1, 2

func newCountWindow(size int) *countWindow {
	return &countWindow{ring: make([]uint64, (size+31)/32), size: size}
}

func (w *countWindow) add(_ time.Duration, failed, slow bool) counts {
	word, shift := &w.ring[w.next/32], w.next%32*2
	if w.sum.calls == w.size {
		oldest := *word >> shift
		w.sum.calls--
		w.sum.failed -= int(oldest & failedBit)
		w.sum.slow -= int(oldest & slowBit / slowBit)
	}
	var bits uint64
	if failed {
		bits |= failedBit
	}
	if slow {
		bits |= slowBit
	}
	*word = *word&^((failedBit|slowBit)<<shift) | bits<<shift
	w.sum.add(failed, slow)
	if w.next++; w.next == w.size {
		w.next = 0
	}
	return w.sum
}

func (w *countWindow) counts(time.Duration) counts { return w.sum }

func (w *countWindow) steadyUntil(time.Duration) time.Duration { return forever }

// reset leaves the bits as they are: none is read before add has written it.
func (w *countWindow) reset() { w.next, w.sum = 0, counts{} }

func (w *countWindow) resized(to Window, _ time.Duration) window {
	if to.Calls == w.size {
		return w
	}
	next := newWindow(to)
	if to.Calls > 0 {
		for ago := min(w.sum.calls, to.Calls); ago > 0; ago-- {
			i := (w.next - ago + w.size) % w.size
			bits := w.ring[i/32] >> (i % 32 * 2)
			next.add(0, bits&failedBit != 0, bits&slowBit != 0)
		}
	}
	return next
}
