package bulkhead

import "context"

// Do hands fn to the pool, waits until it has run, and returns its error. It
// leaves when ctx ends, and returns ctx.Err() itself: fn, if it runs by then,
// goes on, and counts as active until it ends. That is what keeps a hanging
// dependency within Max goroutines however many callers give up on it. What fn
// returns or panics with after that is counted and otherwise lost. fn is to watch
// the ctx that it gets, which is this one.
//
// If fn was not run, the error is [ErrFull], [ErrWaitTimeout], [ErrClosed],
// [ErrDiscarded] or ctx.Err(), as for [Submit]; if it panicked or called
// [runtime.Goexit], a [*PanicError]. If fn ends as ctx does, its own error is
// the better news and is returned.
//
// Do panics if fn is nil. ctx must not be nil; the pool holds it until fn has
// ended.
func (p *Pool) Do(ctx context.Context, fn func(context.Context) error) error {
	return p.do(ctx, nil, fn)
}

// DoInfo does what [Pool.Do] does and says in *info how fn fared, as
// [SubmitInfo] does: it is not written to any more once fn has begun or DoInfo
// has returned.
func (p *Pool) DoInfo(ctx context.Context, info *Info, fn func(context.Context) error) error {
	*info = Info{}
	return p.do(ctx, info, fn)
}

func (p *Pool) do(ctx context.Context, info *Info, fn func(context.Context) error) error {
	if fn == nil {
		panic("bulkhead: Do of a nil function")
	}
	w, err := p.claim(ctx, info)
	if err != nil {
		return err
	}
	t := w.newTask(ctx, info, plain(fn))
	t.want()
	if w != nil {
		w.hand(t)
	} else if err := p.enter(ctx, t); err != nil {
		return err
	}
	select {
	case <-t.bell:
		err := t.err
		t.recycle()
		return err
	case <-ctx.Done():
		return p.abandon(t, ctx.Err())
	}
}

// abandon settles what the caller of Do gets whose ctx has ended with err.
func (p *Pool) abandon(t *task, err error) error {
	if p.leave(t, err) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.state == taskEnded {
		return t.err
	}
	t.orphan = true
	p.orphans++
	return err
}

// A plain body has no value.
type plain func(context.Context) error

func (fn plain) run(ctx context.Context) error { return fn(ctx) }

func (fn plain) replaced(how OnFull) body { return plain(how.plain) }
