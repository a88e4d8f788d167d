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
	add(now time.Duration, failed, slow bool)
	counts(now time.Duration) counts
	reset()
}

func newWindow(w Window) window {
	if w.Time > 0 {
		return newTimeWindow(w.Time)
	}
	return newCountWindow(w.Calls)
}

// A countWindow keeps the last len outcomes as two rings of bits, and their sum.
type countWindow struct {
	failed, slow []uint64
	size, next   int // next is where the next outcome goes; once the ring is full, the oldest sits there
	sum          counts
}

func newCountWindow(size int) *countWindow {
	words := (size + 63) / 64
	bits := make([]uint64, 2*words)
	return &countWindow{failed: bits[:words], slow: bits[words:], size: size}
}

func (w *countWindow) add(_ time.Duration, failed, slow bool) {
	word, bit := w.next/64, uint64(1)<<(w.next%64)
	if w.sum.calls == w.size {
		oldest := counts{calls: 1}
		if w.failed[word]&bit != 0 {
			oldest.failed = 1
		}
		if w.slow[word]&bit != 0 {
			oldest.slow = 1
		}
		w.sum.subtract(oldest)
	}
	w.failed[word] &^= bit
	if failed {
		w.failed[word] |= bit
	}
	w.slow[word] &^= bit
	if slow {
		w.slow[word] |= bit
	}
	w.sum.add(failed, slow)
	if w.next++; w.next == w.size {
		w.next = 0
	}
}

func (w *countWindow) counts(time.Duration) counts { return w.sum }

// reset leaves the bits as they are: none is read before add has written it.
func (w *countWindow) reset() { w.next, w.sum = 0, counts{} }
