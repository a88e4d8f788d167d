package bulkhead

import "context"

// Close shuts the pool for good. From now on every submitter gets [ErrClosed],
// and so do those who wait for room. Tasks that were accepted run, with those
// that still wait in the backlog, and workers end when there is nothing left for
// them. Close returns at once; [Pool.Drain] waits. Closing again does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked()
}

func (p *Pool) closeLocked() {
	p.closed = true
	for p.door.n > 0 {
		t := p.door.pop()
		t.state = taskBarred
		close(t.admitted)
	}
	p.retireLocked(len(p.idle))
	p.stopReaperLocked()
}

// CloseNow closes the pool as [Pool.Close] does, except that tasks in the
// backlog are not run any more: they end with [ErrClosed]. It returns how many
// these were. Tasks that run are not disturbed; to hurry them is up to whoever
// holds their contexts. It may follow a Close or a Drain whose time is up.
func (p *Pool) CloseNow() int {
	p.mu.Lock()
	p.closeLocked()
	dropped := p.backlog
	p.backlog = taskList{}
	for t := dropped.front; t != nil; t = t.next {
		p.noteLocked(t.info)
		p.endLocked(t, taskShutOut, ErrClosed)
	}
	p.mu.Unlock()

	// The list still holds: a task that has waited serves no other submission.
	for t := dropped.front; t != nil; t = t.next {
		if t.stop != nil {
			t.stop() // may belong to anybody, so not under mu
		}
	}
	return dropped.n
}

// Drain closes the pool as [Pool.Close] does and waits until every task that was
// accepted has ended, with those that their submitters run. It returns ctx.Err()
// if ctx ends first; the pool stays closed, its tasks go on, and Drain may be
// called again. If nothing is left it returns nil even with a dead ctx. Several
// calls may drain at once.
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.closeLocked()
	if p.workers == 0 && p.callers == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.drained == nil {
		p.drained = make(chan struct{})
	}
	drained := p.drained
	p.mu.Unlock()

	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	// With both ready the select above picks at random.
	select {
	case <-drained:
		return nil
	default:
		return ctx.Err()
	}
}
