package bulkhead

import "context"

// newTask returns a task for w, which the caller has claimed, or for no worker
// yet if w is nil.
//
// A submission that finds an idle worker allocates no task: it gets the one that
// this worker was handed before, with its bell. That is right because nobody else
// has hold of a task any more when it is recycled:
//
//   - The pool and the worker let go of it in the critical section in which it
//     ends; ringing its bell is the last that they do with it.
//   - Whoever waits for the bell recycles it after the message has come, so it is
//     empty for the next one. Who leaves before does not, and a task whose message
//     nobody takes is garbage.
//   - If nobody waits, the worker recycles it, in the critical section in which the
//     future lets go of it.
//   - A task that has waited in the backlog is not recycled: what watches its
//     context may look at it later than all these.
//
// When a waiter recycles a task, its worker may have another one already, or be
// gone. So the exchange is atomic, and of two that come back one is garbage.
func (w *worker) newTask(ctx context.Context, info *Info, b body) *task {
	var t *task
	if w != nil {
		t = w.spare.Swap(nil)
	}
	if t == nil {
		t = new(task)
	}
	t.worker, t.ctx, t.info, t.body = w, ctx, info, b
	return t
}

// recycle is called once a task has ended, by the only one that still has it.
func (t *task) recycle() {
	if w := t.worker; w != nil {
		*t = task{bell: t.bell}
		w.spare.Store(t)
	}
}
