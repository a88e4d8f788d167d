// Package flood thins out log records of one kind when there are too many of them,
// without losing count: each event is either written or among those left out, whose
// number is told.
package flood

import (
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says how many records are too many.
type Config[K comparable] struct {
	Interval time.Duration // after which it is told how many were left out
	Burst    int           // events of one key that are written before others are left out, at least 1
	Keys     int           // keys that are told apart at the same time, at least 1

	// Tell writes how many were left out. It is called by [Limiter.Flush] and on a
	// goroutine of its own, without a lock. A panic ends there: whoever it would have
	// been told to is who panicked.
	Tell func(Left[K])
}

// A Left is how many events were left out since something was last told of their key.
type Left[K comparable] struct {
	Key    K
	Others bool          // of several keys, which were too many to be told apart; Key is none
	Count  uint64        // at least 1
	Over   time.Duration // the time in which they happened, at most
}

// Attrs returns what the record that tells of left says of it.
func (left Left[K]) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.Uint64("left_out", left.Count),
		slog.Float64("over_ms", float64(left.Over)/float64(time.Millisecond)),
	}
}

// A Limiter decides which events are written. The first of a key, as many as
// Config.Burst, are; then begins a run in which they are only counted, and each
// Config.Interval their number is told. A run ends with an interval in which there
// was none to be left out. So is the last count told even if no event comes after it,
// and while there are no events there is no timer and nothing is kept.
//
// If more than Config.Keys keys have runs, the events of all others are counted
// together, and none is written, until an interval passes without one. So no more than
// Burst*Keys+Keys+1 records are written in an interval, whatever happens.
//
// All methods are safe for concurrent use. A Limiter must be made by [New].
type Limiter[K comparable] struct {
	cfg Config[K]

	// What runs holds, and the run of the others. Changed under mu, by replacement; read
	// without, so that events which are left out, in the worst of a flood, wait for nobody.
	known  atomic.Pointer[map[K]*run[K]]
	others atomic.Pointer[run[K]]

	mu   sync.Mutex    // guards runs, and the fields of each run but for those above key
	runs map[K]*run[K] // but for that of the others
}

// A run is what is known of a key from its first event until an interval passes
// without one.
type run[K comparable] struct {
	// left is how many were left out since something was told, or ended. Whoever wants
	// to count finds out by counting whether the run is over, and then looks for
	// another. An ended run is never used again, so that the number there means nothing.
	left atomic.Int64
	full atomic.Bool // the burst is written; changed under mu

	key     K
	others  bool
	written int       // of the burst
	told    time.Time // when something was last told, or the run began
}

// ended is so far below 0 that counting does not get there.
const ended = math.MinInt64

// New returns a Limiter without events.
func New[K comparable](cfg Config[K]) *Limiter[K] {
	l := &Limiter[K]{cfg: cfg, runs: make(map[K]*run[K])}
	l.known.Store(new(map[K]*run[K]))
	return l
}

// Write notes an event, and reports whether to write it. Otherwise it was counted.
func (l *Limiter[K]) Write(key K) bool {
	r := (*l.known.Load())[key]
	switch {
	case r == nil:
		r = l.others.Load()
	case !r.full.Load():
		return l.write(key)
	}
	if r != nil && r.leaveOut() {
		return false
	}
	return l.write(key)
}

func (r *run[K]) leaveOut() bool { return r.left.Add(1) > 0 }

// write is Write for a key that may have something to be written. What has ended is no
// longer among the runs, so nothing is counted there.
func (l *Limiter[K]) write(key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runLocked(key)
	if !r.others && r.written < l.cfg.Burst {
		r.written++
		r.full.Store(r.written == l.cfg.Burst)
		return true
	}
	r.left.Add(1)
	return false
}

// runLocked returns the run in which events of a key are counted.
func (l *Limiter[K]) runLocked(key K) *run[K] {
	if r := l.runs[key]; r != nil {
		return r
	}
	if r := l.others.Load(); r != nil {
		return r
	}
	r := &run[K]{told: time.Now()}
	if len(l.runs) < l.cfg.Keys {
		r.key = key
		l.runs[key] = r
		l.publishLocked()
	} else {
		r.others = true
		l.others.Store(r)
	}
	l.arm(r)
	return r
}

func (l *Limiter[K]) arm(r *run[K]) { time.AfterFunc(l.cfg.Interval, func() { l.look(r) }) }

// look is called once an interval, and tells what was left out in it, or ends the run.
func (l *Limiter[K]) look(r *run[K]) {
	left, over := l.takeOrEnd(r)
	if over {
		return
	}
	// After it was told, so that whoever holds that up is not called a second time;
	// and even if that ends the goroutine.
	defer l.arm(r)
	l.tell(left)
}

func (l *Limiter[K]) takeOrEnd(r *run[K]) (_ Left[K], over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !r.left.CompareAndSwap(0, ended) {
		if left := r.takeLocked(); left.Count > 0 {
			return left, false
		} // else Flush has taken them: now it is 0
	}
	if r.others {
		l.others.Store(nil)
	} else {
		delete(l.runs, r.key)
		l.publishLocked()
	}
	return Left[K]{}, true
}

// takeLocked returns what was left out, which it takes for told. The run has not ended.
func (r *run[K]) takeLocked() Left[K] {
	now := time.Now()
	left := Left[K]{Key: r.key, Others: r.others, Count: uint64(r.left.Swap(0)), Over: now.Sub(r.told)}
	r.told = now
	return left
}

func (l *Limiter[K]) publishLocked() {
	known := maps.Clone(l.runs)
	l.known.Store(&known)
}

func (l *Limiter[K]) tell(left Left[K]) {
	defer func() { _ = recover() }()
	l.cfg.Tell(left)
}

// Flush tells at once what was left out up to now. Runs go on.
func (l *Limiter[K]) Flush() {
	for _, left := range l.takeAll() {
		l.tell(left)
	}
}

func (l *Limiter[K]) takeAll() []Left[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Left[K]
	take := func(r *run[K]) {
		if r.left.Load() > 0 {
			all = append(all, r.takeLocked())
		}
	}
	for _, r := range l.runs {
		take(r)
	}
	if r := l.others.Load(); r != nil {
		take(r)
	}
	return all
}
