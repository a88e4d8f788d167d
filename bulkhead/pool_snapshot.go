package bulkhead

import "time"

// A PoolSnapshot is the state of a [Pool] at one instant: all its figures were
// true at the same time.
type PoolSnapshot struct {
	// Core, Max, Backlog and KeepAlive are the configuration in force.
	Core, Max, Backlog int
	KeepAlive          time.Duration

	// Workers is how many workers there are: Active + Idle. It exceeds Max only
	// after a shrink, and is then all active.
	Workers int

	// Active is how many workers have a task, with those that are about to
	// begin it. A task counts until it ends, also if its caller has left.
	Active int

	// Abandoned is how many of Active work for a call of Do that has left.
	Abandoned int

	// Idle is how many workers have no task.
	Idle int

	// Queued is how many accepted tasks wait for a worker. It exceeds Backlog
	// only after Backlog was lowered.
	Queued int

	// WaitingForRoom is how many submitters wait until their task is accepted.
	WaitingForRoom int

	// CallerRunning is how many tasks run on their submitter's goroutine, and
	// so outside Max.
	CallerRunning int

	// Peak is the highest Active so far.
	Peak int

	// Every submission counts in exactly one of these, when its future
	// completes or its submitter is refused. They never fall. The sum of all and
	// of Active, Queued and CallerRunning is the number of tasks that were
	// submitted, but for those that are being turned away or wait for room.
	Completed uint64 // run by a worker, returned nil
	Failed    uint64 // run by a worker, returned an error
	Panicked  uint64 // run by a worker, panicked or called runtime.Goexit
	CallerRun uint64 // run by its submitter, however it ended
	FellBack  uint64 // answered by the fallback, whatever it said
	Discarded uint64 // ErrDiscarded
	Full      uint64 // ErrFull
	TimedOut  uint64 // ErrWaitTimeout
	Closed    uint64 // ErrClosed: refused, or dropped by CloseNow
	Left      uint64 // ctx.Err(): dead before the task began
}

// Snapshot returns the figures of the pool as they are now.
func (p *Pool) Snapshot() PoolSnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolSnapshot{
		Core:           p.cfg.Core,
		Max:            p.cfg.Max,
		Backlog:        p.cfg.Backlog,
		KeepAlive:      p.cfg.KeepAlive,
		Workers:        p.workers,
		Active:         p.active,
		Abandoned:      p.orphans,
		Idle:           len(p.idle),
		Queued:         p.backlog.n,
		WaitingForRoom: p.door.n,
		CallerRunning:  p.callers,
		Peak:           p.peak,
		Completed:      p.outcomes[taskCompleted],
		Failed:         p.outcomes[taskFailed],
		Panicked:       p.outcomes[taskPanicked],
		CallerRun:      p.outcomes[taskCallerRun],
		FellBack:       p.outcomes[taskFellBack],
		Discarded:      p.outcomes[taskDiscarded],
		Full:           p.outcomes[taskRefused],
		TimedOut:       p.outcomes[taskTimedOut],
		Closed:         p.outcomes[taskShutOut],
		Left:           p.outcomes[taskLeft],
	}
}
