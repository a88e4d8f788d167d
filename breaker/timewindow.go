package breaker

import "time"

// A timeWindow keeps the outcomes of the last len(ring) buckets of time, the one
// that is now included, and their sum.
type timeWindow struct {
	width  time.Duration
	ring   []counts // bucket number i is at i % len(ring)
	newest int64    // number of the newest bucket, counted from the breaker's making
	sum    counts
}

func newTimeWindow(length time.Duration) *timeWindow {
	width := bucketWidth(length)
	return &timeWindow{width: width, ring: make([]counts, length/width)}
}

// bucketWidth keeps the promise of [Window] about whole seconds, and the ring to
// at most 120 buckets. For the windows of 60 buckets it rounds down, so that an
// outcome may leave up to 60ns early, but never late.
func bucketWidth(length time.Duration) time.Duration {
	switch whole := length%time.Second == 0; {
	case whole && length < 10*time.Second:
		return 100 * time.Millisecond
	case whole && length <= 2*time.Minute:
		return time.Second
	default:
		return length / 60
	}
}

func (w *timeWindow) add(now time.Duration, failed, slow bool) counts {
	w.advance(now)
	w.ring[w.newest%int64(len(w.ring))].add(failed, slow)
	w.sum.add(failed, slow)
	return w.sum
}

func (w *timeWindow) counts(now time.Duration) counts {
	w.advance(now)
	return w.sum
}

func (w *timeWindow) steadyUntil(now time.Duration) time.Duration {
	return after(now-now%w.width, w.width)
}

// advance drops the buckets that have left the window by now. It visits each at
// most once, however long nobody has looked. now is never before the newest
// bucket: see Breaker.lock.
func (w *timeWindow) advance(now time.Duration) {
	i := int64(now / w.width)
	for n := min(i-w.newest, int64(len(w.ring))); n > 0; n-- {
		old := &w.ring[(w.newest+n)%int64(len(w.ring))]
		w.sum.subtract(*old)
		*old = counts{}
	}
	w.newest = i
}

func (w *timeWindow) resized(to Window, now time.Duration) window {
	w.advance(now) // or what has left this one would come back into a longer one
	if to.Time == 0 || bucketWidth(to.Time) != w.width {
		return newWindow(to)
	}
	next := newTimeWindow(to.Time)
	next.newest = w.newest
	for ago := range int64(min(len(w.ring), len(next.ring))) {
		i := w.newest - ago
		if i < 0 {
			break // the breaker was not made yet
		}
		bucket := w.ring[i%int64(len(w.ring))]
		next.ring[i%int64(len(next.ring))] = bucket
		next.sum.calls += bucket.calls
		next.sum.failed += bucket.failed
		next.sum.slow += bucket.slow
	}
	return next
}

func (w *timeWindow) reset() {
	clear(w.ring)
	w.sum = counts{}
}
