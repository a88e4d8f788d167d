package bulkhead

import (
	"context"
	"fmt"
	"time"
)

// OnFull is what becomes of a task that finds all workers of a [Pool] busy and
// its backlog full. Its values are made by [Abort], [CallerRuns], [Discard],
// [Fallback] and [WaitForRoom]; the zero OnFull is Abort. None of them applies
// to a pool that is closed, whose submitters get [ErrClosed], or to a dead
// context, which gets its own error.
type OnFull struct {
	kind       onFullKind
	fallback   any // a func(context.Context) (T, error)
	plain      func(context.Context) error
	maxWait    time.Duration
	maxWaiters int
}

type onFullKind uint8

const (
	onFullAbort onFullKind = iota
	onFullCallerRuns
	onFullDiscard
	onFullFallback
	onFullWait
)

// Abort refuses the task with [ErrFull]. It is the default, and the only one
// under which a full pool costs its submitters neither memory nor time.
func Abort() OnFull { return OnFull{} }

// CallerRuns runs the task on the goroutine of its submitter, who cannot submit
// more in the meantime: that is the back-pressure. The task gets its future as
// ever, done when [Submit] returns, and the pool drains only after it.
//
// Such tasks are outside the limit: with n goroutines submitting there can be
// n more at work than Max. [PoolSnapshot] shows them as CallerRunning and
// CallerRun. [Pool.Do] cannot leave a task that its own goroutine runs, and a
// task that calls [runtime.Goexit] ends the goroutine of its submitter, after
// its future.
func CallerRuns() OnFull { return OnFull{kind: onFullCallerRuns} }

// Discard drops the task. [Submit] returns a future that is done at once, and
// its error is [ErrDiscarded], which [Pool.Do] returns.
func Discard() OnFull { return OnFull{kind: onFullDiscard} }

// Fallback calls fn, on the submitter's goroutine and with its context, instead
// of the task: the future is done when [Submit] returns, with what fn returned.
// A panic of fn becomes the error, as a task's own would. fn must be safe for
// concurrent use. It is no task of the pool, which may drain while it runs.
// Fallback panics if fn is nil.
//
// fn answers for tasks of its own type T. A task of another type is refused with
// [ErrFull], except in [Pool.Do], which has no value and takes fn's error only.
func Fallback[T any](fn func(context.Context) (T, error)) OnFull {
	if fn == nil {
		panic("bulkhead: fallback is nil")
	}
	return OnFull{kind: onFullFallback, fallback: fn, plain: func(ctx context.Context) error {
		_, err := fn(ctx)
		return err
	}}
}

// WaitForRoom lets the submitter wait for room, at most maxWait, and then
// refuses the task with [ErrWaitTimeout]. Submitters are served first come,
// first served; while one waits, no newcomer gets in before it. One whose
// context ends gets ctx.Err(). At most maxWaiters wait at once, and those who
// come on top are refused with [ErrFull]: a pool that bounds its backlog but not
// the goroutines in front of it has no bound.
//
// WaitForRoom panics if maxWait is not positive or maxWaiters is less than 1.
func WaitForRoom(maxWait time.Duration, maxWaiters int) OnFull {
	if maxWait <= 0 {
		panic(fmt.Sprintf("bulkhead: max wait for room is %v, must be positive", maxWait))
	}
	if maxWaiters < 1 {
		panic(fmt.Sprintf("bulkhead: max waiters for room is %d, must be at least 1", maxWaiters))
	}
	return OnFull{kind: onFullWait, maxWait: maxWait, maxWaiters: maxWaiters}
}

// refuses says that a task gets ErrFull without being looked at.
func (o OnFull) refuses(waiters int) bool {
	return o.kind == onFullAbort || o.kind == onFullWait && waiters >= o.maxWaiters
}

// overflow does with t what OnFull says. It is called with mu held and unlocks.
func (p *Pool) overflow(ctx context.Context, t *task) error {
	how := p.cfg.OnFull
	if how.kind == onFullFallback {
		t.body = t.body.replaced(how)
	}
	if how.refuses(p.door.n) || t.body == nil {
		p.outcomes[taskRefused]++
		p.noteLocked(t.info)
		p.mu.Unlock()
		return ErrFull
	}
	if how.kind == onFullWait {
		t.admitted = make(chan struct{})
		p.queueLocked(&p.door, t, taskOutside)
		p.mu.Unlock()
		return p.waitForRoom(ctx, t, how.maxWait)
	}
	p.noteLocked(t.info)
	switch how.kind {
	case onFullCallerRuns:
		p.runHereAndUnlock(t, taskCallerRun)
	case onFullFallback:
		p.runHereAndUnlock(t, taskFellBack)
	default: // discard
		p.endLocked(t, taskDiscarded, ErrDiscarded)
		p.mu.Unlock()
	}
	return nil
}

// runHereAndUnlock runs t on its submitter's goroutine.
func (p *Pool) runHereAndUnlock(t *task, as taskOutcome) {
	if as == taskCallerRun {
		p.callers++
	}
	p.mu.Unlock()
	t.attempt(func(o taskOutcome, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if o != taskLeft {
			o = as
		}
		p.endLocked(t, o, err)
		if as == taskCallerRun {
			p.callers--
			p.drainedLocked()
		}
	})
}

// waitForRoom returns once t is admitted, shut out, out of time or given up by
// its submitter.
//
// Several of them can be true at once. The select only says that there is
// something to decide; what is decided depends on t.state, which changes under
// the mutex. A task that has got in is accepted, whatever else has happened: it
// may be running by now. If it waits with a dead context, whoever watches over
// it takes it out again. And a task still outside is taken from the door in the
// same critical section that finds it there, so it cannot get in any more.
func (p *Pool) waitForRoom(ctx context.Context, t *task, maxWait time.Duration) error {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-t.admitted:
	case <-ctx.Done():
	case <-timer.C:
	}
	dead := ctx.Err()

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case t.state == taskOutside:
		p.door.remove(t)
	case t.state != taskBarred:
		return nil
	}
	p.noteLocked(t.info)
	switch {
	case dead != nil:
		p.outcomes[taskLeft]++
		return dead
	case t.state == taskBarred:
		p.outcomes[taskShutOut]++
		return ErrClosed
	default:
		p.outcomes[taskTimedOut]++
		return ErrWaitTimeout
	}
}
