package bulkhead

import (
	"context"
	"sync"
	"time"
)

// A Pool runs tasks on a bounded number of goroutines of its own, its workers,
// and lets a bounded number of tasks wait for one. It isolates by thread, as
// such pools are called elsewhere: the work runs apart from its callers, who
// can leave while it goes on, and it counts until it really ends.
//
// [Submit] hands a task over and returns its [Future]; [Pool.Do] hands one over
// and waits. A task goes, in this order, to an idle worker, to a new one while
// there are fewer than Max, into the backlog, and at last to what
// [PoolConfig].OnFull says. Tasks start in the order in which they were
// accepted. A task waits only while Max others run: the ThreadPoolExecutor of
// Java, the model of such pools, starts workers beyond the core only once the
// backlog is full. That makes tasks wait while workers may still be added, and
// lets the one that finds the backlog full start before all that wait in it.
// Both orders turn away the same task, the one that finds Max workers busy and
// the backlog full; this one starts each as early as the bounds allow.
//
// A task gets the context of its submission. If that is dead when the turn of
// the task comes, or dies while the task waits, the task is not run and ends
// with ctx.Err(). The pool never interrupts a task that runs: a task that is to
// end early watches its context.
//
// A task that panics or calls [runtime.Goexit] ends with a [*PanicError], and
// its worker lives on.
//
// A task that need not wait costs one allocation, its future of 64 B (with an int
// for value), and by [Pool.Do] none. It takes 2.1 times as long as a round trip
// between two goroutines over unbuffered channels, by Do 1.6 times: 830 ns and 640
// ns to 400 ns, as measured by the module bench in November 2026 on two cores of an
// AMD EPYC with Go 1.26. A refusal under [Abort] costs no allocation.
//
// A task that waits for another task of its own pool can wait for ever, since
// all workers may be waiting like it. Give the inner tasks a pool of their own.
//
// Create one with [NewPool]. The zero Pool has no room and refuses every task with
// [ErrFull] until [Pool.Configure] gives it some. A Pool must not be copied. All
// methods may be called by many goroutines at once, also from within tasks, except
// that a task that drains its own pool waits for itself. A pool that has run tasks
// keeps up to Core idle workers, which only [Pool.Close], [Pool.CloseNow] or
// [Pool.Drain] ends; with a Core of 0 there is nothing to clean up.
type Pool struct {
	mu sync.Mutex // guards the fields below

	// Invariants, whenever mu is not held:
	//   - workers == active + len(idle), and neither rises to more than cfg.Max
	//   - backlog is empty unless active >= cfg.Max, so whoever finds a worker
	//     overtakes nobody
	//   - door is empty unless backlog.n >= cfg.Backlog, so whoever finds room
	//     in the backlog overtakes nobody
	//   - idle and door are empty once closed
	// They make the order fair: what frees a worker or a place hands it on in
	// the same critical section and never leaves it lying about.
	cfg     PoolConfig
	workers int
	active  int       // workers that have a task, with those that have yet to begin it
	idle    []*worker // the longest idle first; the latest is the next to work, its stack being warm
	backlog taskList  // accepted
	door    taskList  // not accepted: their submitters wait for room, see WaitForRoom
	callers int       // tasks running on their submitter's goroutine
	orphans int       // of the active: those whose task has lost its caller
	closed  bool
	drained chan struct{} // made by the first Drain that has to wait; closed when nothing accepted is left
	reaper  *time.Timer   // retires idle workers; made by the first worker that is to have a keep-alive
	reaping bool          // the reaper will come

	peak     int
	outcomes [taskOutcomes]uint64
}

// NewPool returns a pool without workers: each is started by the first task
// that needs it. It panics if cfg.Max is less than 1, if cfg.Core is negative or
// more than cfg.Max, or if cfg.KeepAlive or cfg.Backlog is negative.
func NewPool(cfg PoolConfig) *Pool {
	cfg.check()
	return &Pool{cfg: cfg}
}

// claim takes a worker for a task that the caller is about to make, or says why
// there will be none. It returns nil and nil if that has to be decided with the
// task in hand, by enter. So a refusal costs no allocation, and a task that need
// not wait costs one critical section.
func (p *Pool) claim(ctx context.Context, info *Info) (w *worker, err error) {
	// ctx may belong to anybody, so it is never asked under mu. If it dies after
	// this answer, the worker sees that.
	dead := ctx.Err()

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case dead != nil:
		p.outcomes[taskLeft]++
		err = dead
	case p.closed:
		p.outcomes[taskShutOut]++
		err = ErrClosed
	default:
		w = p.claimLocked()
		if w == nil && p.backlog.n >= p.cfg.Backlog && p.cfg.OnFull.refuses(p.door.n) {
			p.outcomes[taskRefused]++
			err = ErrFull
		}
	}
	p.noteLocked(info)
	return w, err
}

// noteLocked says in info, unless that is nil, how things stand at the moment
// that decides about a task. The clock is read only for one that has waited.
func (p *Pool) noteLocked(info *Info) {
	if info == nil {
		return
	}
	info.Limit, info.InFlight, info.Queued = p.cfg.Max, p.active, p.backlog.n
	if info.Position > 0 {
		info.Waited = time.Since(info.Arrived)
	}
}

// queueLocked appends t to l, the backlog or the door.
func (p *Pool) queueLocked(l *taskList, t *task, s taskState) {
	l.push(t)
	t.state = s
	if t.info != nil {
		t.info.Position, t.info.Arrived = p.backlog.n+p.door.n, time.Now()
	}
}

// claimLocked returns a worker that now counts as active, or nil if there are
// Max. An idle worker implies, by the invariants, that nothing waits.
func (p *Pool) claimLocked() *worker {
	var w *worker
	switch n := len(p.idle); {
	case n > 0:
		w = p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
	case p.workers < p.cfg.Max:
		p.workers++
		w = &worker{pool: p}
	default:
		return nil
	}
	p.active++
	p.peak = max(p.peak, p.active)
	return w
}

// enter finds a place for t: a worker, the backlog, or what OnFull says. An
// error means that t was not accepted; its future is then nobody's. ctx is that of
// t, which loses it when it ends, and that may be as soon as it is accepted.
func (p *Pool) enter(ctx context.Context, t *task) error {
	p.mu.Lock()
	if p.closed {
		p.outcomes[taskShutOut]++
		p.noteLocked(t.info)
		p.mu.Unlock()
		return ErrClosed
	}
	if w := p.claimLocked(); w != nil {
		p.noteLocked(t.info)
		p.mu.Unlock()
		w.hand(t)
		return nil
	}
	if p.backlog.n < p.cfg.Backlog {
		p.queueLocked(&p.backlog, t, taskWaits)
		p.mu.Unlock()
		return nil
	}
	return p.overflow(ctx, t) // unlocks
}

// nextLocked takes the task whose turn it is out of the backlog and lets the
// oldest submitter in that waits for its place. It returns nil if there is none.
func (p *Pool) nextLocked() *task {
	var t *task
	switch {
	case p.backlog.n > 0:
		t = p.backlog.pop()
		p.admitLocked()
	case p.door.n > 0: // no backlog: straight from hand to hand
		t = p.door.pop()
		close(t.admitted)
	default:
		return nil
	}
	t.state = taskRuns
	return t
}

// admitLocked restores the third invariant. It is called wherever the backlog
// loses a task or its bound rises.
func (p *Pool) admitLocked() {
	for p.door.n > 0 && p.backlog.n < p.cfg.Backlog {
		t := p.door.pop()
		t.state = taskWaits
		p.backlog.push(t)
		close(t.admitted)
	}
}

// leave takes t, whose context has ended with err, out of the backlog. It
// reports false if t is not there any more: it runs or has ended.
func (p *Pool) leave(t *task, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.state != taskWaits {
		return false
	}
	p.backlog.remove(t)
	p.admitLocked()
	p.noteLocked(t.info)
	p.endLocked(t, taskLeft, err)
	return true
}

// endLocked counts t and completes its future. It does both under mu, so that
// whoever sees a future done sees it counted, and the other way round. t is not to
// be touched any more.
func (p *Pool) endLocked(t *task, o taskOutcome, err error) {
	p.outcomes[o]++
	t.state = taskEnded
	if r := t.result; r != nil {
		r.completeLocked(err)
	}
	if t.wanted {
		t.err = err
		t.bell <- struct{}{}
	} else {
		t.recycle()
	}
}

// drainedLocked tells those who drain that nothing is left, if so. It is called
// wherever a worker ends or a task on its submitter's goroutine.
func (p *Pool) drainedLocked() {
	if p.drained != nil && p.workers == 0 && p.callers == 0 {
		// Only a closed pool has been asked to drain, and a closed one accepts
		// nothing, so this happens once.
		close(p.drained)
		p.drained = nil
	}
}
