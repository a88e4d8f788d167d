package bulkhead

import (
	"slices"
	"sync/atomic"
	"time"
)

// A worker is one of the goroutines of a pool, or rather a succession of them:
// a task that calls runtime.Goexit takes its goroutine with it, and the worker
// goes on in another.
type worker struct {
	pool *Pool

	// wake brings the next task to an idle worker, or nil to retire it. It has
	// room for one and is used once for each time that the worker is idle, so
	// sending never waits. nil until the worker is idle for the first time.
	wake chan *task

	// Touched by the worker alone, and by whoever claimed it before it began.
	next    *task
	retired bool

	spare atomic.Pointer[task] // has ended, and is there for the next submission; see newTask

	since time.Time // when it became idle or surplus; of no meaning in the core. Guarded by the pool's mutex
}

// hand gives a worker that was claimed its task.
func (w *worker) hand(t *task) {
	if w.wake == nil { // it never was idle, so it is new
		w.next = t
		go w.work()
		return
	}
	w.wake <- t
}

func (w *worker) work() {
	defer func() {
		if !w.retired { // the task called Goexit
			go w.work()
		}
	}()
	for !w.retired {
		t := w.next
		if w.next = nil; t == nil {
			t = <-w.wake
		}
		if t == nil {
			w.retired = true
			return
		}
		t.attempt(func(o taskOutcome, err error) { w.pool.finish(w, t, o, err) })
	}
}

// finish ends t and decides what w does next: the oldest task that waits, being
// idle, or its own end. All this is one step, so that a submitter that has seen
// the end of t finds w idle, not still busy for an instant: without a backlog
// that instant would get it refused.
func (p *Pool) finish(w *worker, t *task, o taskOutcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.orphan {
		p.orphans--
	}
	p.endLocked(t, o, err)
	if p.workers <= p.cfg.Max { // or there are too many for one more task
		if w.next = p.nextLocked(); w.next != nil {
			p.noteLocked(w.next.info) // as active as before
			return
		}
		if !p.closed && (p.workers <= p.cfg.Core || p.cfg.KeepAlive > 0) {
			p.active--
			p.idleLocked(w)
			return
		}
	}
	p.active--
	p.workers--
	w.retired = true
	p.drainedLocked()
}

// idleLocked makes w idle. The clock is read only for workers beyond the
// core. That the others have no time is of no account: while one of them is
// idle, no worker is added, so only a smaller core can put it beyond the core,
// and then configureLocked gives it one. (The surplus are the longest idle; which
// worker is core is decided no earlier.)
func (p *Pool) idleLocked(w *worker) {
	if w.wake == nil {
		w.wake = make(chan *task, 1)
	}
	p.idle = append(p.idle, w)
	if p.workers > p.cfg.Core {
		w.since = time.Now()
		if !p.reaping {
			p.reapAfterLocked(p.cfg.KeepAlive)
		}
	}
}

// reap is what the reaper does: one timer for all workers instead of one each.
// It is set for the worker that has been idle longest and not moved when that
// one finds work; when it comes it looks who is next. So under load it costs a
// timer once for each keep-alive, and no worker outstays its time.
func (p *Pool) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaping = false
	p.reapLocked()
}

// reapLocked retires the workers beyond the core whose keep-alive has ended, and
// sets the reaper for the next of them.
func (p *Pool) reapLocked() {
	surplus := min(len(p.idle), p.workers-p.cfg.Core)
	if surplus <= 0 {
		return
	}
	expired, cut := 0, time.Now().Add(-p.cfg.KeepAlive)
	for expired < surplus && !p.idle[expired].since.After(cut) {
		expired++
	}
	p.retireLocked(expired)
	if expired < surplus {
		p.reapAfterLocked(p.idle[0].since.Sub(cut))
	}
}

func (p *Pool) reapAfterLocked(d time.Duration) {
	p.reaping = true
	if p.reaper == nil {
		p.reaper = time.AfterFunc(d, p.reap)
	} else {
		p.reaper.Reset(d)
	}
}

// stopReaperLocked does not wait for a reap that is on its way. That one is
// early at worst, and then finds nobody to retire.
func (p *Pool) stopReaperLocked() {
	p.reaping = false
	if p.reaper != nil {
		p.reaper.Stop()
	}
}

// retireLocked ends the n workers that have been idle longest.
func (p *Pool) retireLocked(n int) {
	for _, w := range p.idle[:n] {
		w.wake <- nil
	}
	p.idle = slices.Delete(p.idle, 0, n)
	p.workers -= n
	p.drainedLocked()
}
