package watertight

import (
	"context"
	"sync"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A poolTask is what a [Guard] knows of a task on its way through a pool. The
// pool says how each task fared, but not whether it has begun; what begins, ends
// or leaves in here tells that.
type poolTask struct {
	pool    *Pool
	hookCtx context.Context // the submitter's, or what Arrive made of it

	// info is the pool's until the task begins or ends, or until Do or Submit is
	// back with an error.
	info bulkhead.Info

	mu    sync.Mutex // guards the fields below
	began bool
	left  bool          // the caller of Do has left, and has told of the wait
	begun chan struct{} // closed once began; nil unless somebody follows the task
	stop  func() bool   // ends watching the submitter's context; nil: nobody does
}

func (p *Pool) newTask(ctx context.Context) *poolTask {
	t := &poolTask{pool: p, hookCtx: ctx}
	if h := p.g.hooks; h != nil && ctx.Err() == nil {
		t.hookCtx, _ = h.arrive(ctx, &policy.Request{Side: policy.Client})
	}
	return t
}

// begin is the first that a task does. It returns the context that the task runs
// under, and what end needs.
func (t *poolTask) begin() (context.Context, grants) {
	t.mu.Lock()
	t.began = true
	left, stop := t.left, t.stop
	if t.begun != nil {
		close(t.begun)
	}
	t.mu.Unlock()
	if stop != nil {
		stop() // may belong to anybody, so not under mu
	}
	c := t.pool.c
	c.granted.Add(1)
	if !left {
		t.tellWait(nil)
	}
	h := t.pool.g.hooks
	if h == nil {
		return t.hookCtx, grants{}
	}
	run, _, gs := h.grant(t.hookCtx, GrantEvent{
		Compartment: c.Compartment,
		Limit:       t.info.Limit,
		InFlight:    t.info.InFlight,
		Waited:      t.info.Waited,
	})
	return run, gs
}

// end is the last that a task does.
func (t *poolTask) end(gs grants) {
	if h := t.pool.g.hooks; h != nil && !gs.none() {
		h.release(&gs, t.pool.c.Compartment, time.Since(start), false)
	}
}

// leave reports, when Do of the pool is back, whether the task has not begun.
//
// As a rule it never will. But if the caller's context ended after the worker had
// looked at it and before the task began, it may begin still; the caller has left
// nevertheless. Then both are told: a wait that ended because the caller left, and
// a permit for the task. What is told once is the wait.
func (t *poolTask) leave() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = !t.began
	return t.left
}

// turnedAway tells of a task that does not run, and returns what its submitter
// gets where the pool says err.
func (t *poolTask) turnedAway(ctx context.Context, err error) error {
	t.tellWait(err)
	reason, refused := reasonOf(err)
	switch {
	case err == bulkhead.ErrDiscarded:
		return t.reject(policy.ReasonFull, err)
	case refused:
		return t.reject(reason, err)
	case ctx.Err() == nil:
		// Neither the pool nor the caller's context said so, hence the fallback.
		// (One that returns an error of the pool's own is taken for the pool.)
		_ = t.reject(policy.ReasonFull, bulkhead.ErrFull)
	}
	return err
}

func (t *poolTask) reject(reason policy.Reason, err error) error {
	c := t.pool.c
	if reason == policy.ReasonFull {
		now := time.Now()
		c.pressure.note(now, now)
	}
	rejected := &RejectedError{Policy: c.Policy, Reason: reason, RetryAfter: c.retryAfter(), Err: err}
	if h := t.pool.g.hooks; h != nil {
		h.reject(t.hookCtx, RejectEvent{
			Compartment: c.Compartment,
			Reason:      reason,
			Limit:       t.info.Limit,
			InFlight:    t.info.InFlight,
			Queued:      t.info.Queued,
			RetryAfter:  rejected.RetryAfter,
			Err:         rejected,
		})
	}
	return rejected
}

// tellWait counts and tells of a wait, if the task waited, that ended with err.
func (t *poolTask) tellWait(err error) {
	if t.info.Position == 0 {
		return
	}
	t.pool.c.noteWait(t.info.Waited)
	t.pool.c.pressure.note(t.info.Arrived, t.info.Arrived.Add(t.info.Waited))
	if h := t.pool.g.hooks; h != nil {
		h.wait(t.hookCtx, WaitEvent{
			Compartment: t.pool.c.Compartment,
			Arrived:     t.info.Arrived,
			Waited:      t.info.Waited,
			Position:    t.info.Position,
			Result:      waitResult(err),
		})
	}
}

// follow tells of a submitted task what nobody else would: that it never began.
// done is that of its future, and result its error once done.
//
// A task that was discarded, or answered by the fallback, is done when the pool
// returns it. Any other begins, or its context ends before; so there is nothing to
// wait for but that. When it does end, the pool either ends the task at once or
// has handed it to a worker, which at once begins it or ends it.
func (t *poolTask) follow(ctx context.Context, done <-chan struct{}, result func() error) {
	select {
	case <-done:
		if !t.hasBegun() {
			_ = t.turnedAway(ctx, result())
		}
		return
	default:
	}
	if ctx.Done() == nil {
		return
	}
	t.mu.Lock()
	if t.began {
		t.mu.Unlock()
		return
	}
	begun := make(chan struct{})
	t.begun = begun
	t.mu.Unlock()

	stop := context.AfterFunc(ctx, func() {
		select {
		case <-begun:
			return
		case <-done:
		}
		if !t.hasBegun() {
			t.tellWait(result())
		}
	})
	// If the task began before stop is stored, it is called here.
	t.mu.Lock()
	began := t.began
	t.stop = stop
	t.mu.Unlock()
	if began {
		stop()
	}
}

func (t *poolTask) hasBegun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began
}
