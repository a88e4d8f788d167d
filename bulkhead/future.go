package bulkhead

import (
	"context"
	"sync/atomic"
)

// A Future is the result of a task, now or later. Its methods may be called by
// many goroutines at once and any number of times. It need not be waited for.
//
// Create one with [Submit]. The zero Future has no task, and its methods panic.
type Future[T any] struct {
	result
	fn    func(context.Context) (T, error)
	value T
}

// A result is the part of a future that does not depend on its type.
type result struct {
	pool *Pool

	// ended is set once err and the value are written. Who has seen it set may
	// read them.
	ended atomic.Bool
	err   error

	// Guarded by the pool's mutex.
	task *task         // nil once ended
	done chan struct{} // closed at the end; nil until somebody needs it
}

// Submit hands fn to p, to be run once and with ctx on one of p's workers, and
// returns at once with its future. (Or it waits, or runs fn or a fallback
// itself, if that is what p's OnFull says.) It is a function and not a method of
// p only because methods have no type parameters.
//
// On error fn is not run and there is no future. The error is [ErrFull],
// [ErrWaitTimeout], [ErrClosed], or ctx.Err() itself if ctx is dead on arrival
// or dies while the call waits for room; a dead ctx takes precedence over the
// others. Once there is a future, it ends: with what fn returned, with a
// [*PanicError], with ctx.Err() if ctx died before fn began, with [ErrClosed]
// after [Pool.CloseNow], or with [ErrDiscarded].
//
// Submit panics if fn is nil. ctx must not be nil; the pool holds it until the
// task has ended.
func Submit[T any](p *Pool, ctx context.Context, fn func(context.Context) (T, error)) (*Future[T], error) {
	return submit(p, ctx, nil, fn)
}

// SubmitInfo does what [Submit] does and says in *info, which it overwrites, how
// the task fared: before fn begins, if it does, else before its future is done
// or the error is returned. So fn may read it, and so may whoever waits for the
// future or has got the error. info must not be nil; the pool holds it until the
// task has ended.
//
// Limit and InFlight are Max and Active. Position is the place among all that
// wait on arrival, those that wait for room included, and Waited the time from
// there to the worker.
func SubmitInfo[T any](p *Pool, ctx context.Context, info *Info, fn func(context.Context) (T, error)) (*Future[T], error) {
	*info = Info{}
	return submit(p, ctx, info, fn)
}

func submit[T any](p *Pool, ctx context.Context, info *Info, fn func(context.Context) (T, error)) (*Future[T], error) {
	if fn == nil {
		panic("bulkhead: Submit of a nil function")
	}
	w, err := p.claim(ctx, info)
	if err != nil {
		return nil, err
	}
	f := &Future[T]{fn: fn, result: result{pool: p}}
	t := w.newTask(ctx, info, f)
	t.result, f.task = &f.result, t
	if w != nil {
		w.hand(t)
		return f, nil
	}
	if err := p.enter(ctx, t); err != nil {
		return nil, err
	}
	p.watch(ctx, t)
	return f, nil
}

// watch takes t out of the backlog when ctx ends, so that a dead task neither
// keeps its place nor its future open while the workers hang. It does nothing if
// t does not wait.
//
// t may begin or end at any point in here. If it has not when stop is stored,
// whoever takes it out of the backlog finds stop there and calls it; otherwise
// it is called here. So ctx, which may live long, does not collect tasks.
func (p *Pool) watch(ctx context.Context, t *task) {
	if ctx.Done() == nil || !p.waits(t, nil) {
		return
	}
	stop := context.AfterFunc(ctx, func() { p.leave(t, ctx.Err()) })
	if !p.waits(t, stop) {
		stop()
	}
}

// waits says whether t is in the backlog, and stores stop if so.
func (p *Pool) waits(t *task, stop func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.state != taskWaits {
		return false
	}
	t.stop = stop
	return true
}

// Wait waits for the task to end and returns its value and error. If ctx ends
// first, the error is ctx.Err() and the value the zero T; the task goes on, or
// keeps its place, and Wait may be called again. A task that has ended is better
// news than a dead ctx: Wait then returns its result.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	if !f.ended.Load() && !f.await(ctx) {
		var zero T
		return zero, ctx.Err()
	}
	return f.value, f.err
}

// Done returns a channel that is closed when the task has ended, for use in a
// select. Wait then returns at once, whatever its context.
func (f *Future[T]) Done() <-chan struct{} {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.doneLocked()
}

func (f *Future[T]) run(ctx context.Context) (err error) {
	fn := f.fn
	f.fn = nil // a future may live longer than what its function holds
	f.value, err = fn(ctx)
	return err
}

func (f *Future[T]) replaced(how OnFull) body {
	fn, ok := how.fallback.(func(context.Context) (T, error))
	if !ok {
		return nil
	}
	f.fn = fn
	return f
}

// await waits until the task or ctx has ended, and reports whether the task has.
func (r *result) await(ctx context.Context) bool {
	end, t := r.listen()
	select {
	case <-end:
		if t != nil {
			t.recycle()
		}
		return true
	case <-ctx.Done():
		return r.ended.Load() // with both ready the select picks at random
	}
}

// listen returns what tells that the task has ended. For the first that waits
// that is the bell, which costs nothing, and it gets the task, too; for others it
// is the channel of Done.
func (r *result) listen() (end <-chan struct{}, t *task) {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	t = r.task
	if t == nil || t.wanted {
		return r.doneLocked(), nil
	}
	t.want()
	return t.bell, t
}

// completeLocked lets go of the task.
func (r *result) completeLocked(err error) {
	r.task, r.err = nil, err
	r.ended.Store(true)
	if r.done != nil {
		close(r.done)
	}
}

// doneLocked returns the channel of Done.
func (r *result) doneLocked() chan struct{} {
	if r.done == nil {
		r.done = make(chan struct{})
		if r.task == nil {
			close(r.done)
		}
	}
	return r.done
}
