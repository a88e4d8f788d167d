package watertight

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// waits counts, by how long they were, the waits of those who got their permit, and of
// those who waited in vain. It is made by the first who waits: most compartments have
// none.
//
// A bucket holds the waits up to twice as long as the one before it, which is exact
// enough to tell 5 ms from 50 ms, and all that a percentile on a screen needs.
type waits struct {
	buckets [waitBuckets]atomic.Uint64
}

const (
	waitBuckets = 20
	// firstWait is the upper end of the first bucket. The last but one ends at some
	// four minutes, and what is longer is in the last.
	firstWait = time.Millisecond
)

// waitBucket returns the bucket of a wait: the first whose upper end is not below it.
func waitBucket(d time.Duration) int {
	whole := uint64(max(d, 1)-1) / uint64(firstWait)
	return min(bits.Len64(whole), waitBuckets-1)
}

// waitBound returns the upper end of a bucket.
func waitBound(i int) time.Duration { return firstWait << i }

// noteWait counts a wait that has ended.
func (c *compartment) noteWait(d time.Duration) {
	w := c.waits.Load()
	if w == nil {
		c.waits.CompareAndSwap(nil, new(waits))
		w = c.waits.Load()
	}
	w.buckets[waitBucket(d)].Add(1)
}

func (w *waits) add(other *waits) {
	for i := range w.buckets {
		w.buckets[i].Add(other.buckets[i].Load())
	}
}

// A WaitSnapshot is how many calls have waited for a permit for how long, since the
// compartment was made. Only calls that had to wait are in it, however the wait ended.
type WaitSnapshot struct {
	UpToMs float64 `json:"upToMs"` // longest wait of this entry; 0: none, in the last one
	Count  uint64  `json:"count"`
}

// snapshot returns the buckets up to the last that is not empty.
func (w *waits) snapshot() []WaitSnapshot {
	if w == nil {
		return nil
	}
	var out []WaitSnapshot
	last := 0
	for i := range w.buckets {
		s := WaitSnapshot{Count: w.buckets[i].Load()}
		if i < waitBuckets-1 {
			s.UpToMs = float64(waitBound(i)) / float64(time.Millisecond)
		}
		out = append(out, s)
		if s.Count > 0 {
			last = i
		}
	}
	return out[:last+1]
}
