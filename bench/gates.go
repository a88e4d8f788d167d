package main

import (
	"context"
	"net/http"
	"time"

	failsafe "github.com/failsafe-go/failsafe-go/bulkhead"
	chi "github.com/go-chi/chi/v5/middleware"
	"golang.org/x/sync/semaphore"

	"github.com/watertight-go/watertight/bulkhead"
)

// A gate lets a limited number of callers in at once. The loops are inside the
// methods, so that the calls of the thing measured are direct.
type gate interface {
	// pass enters and leaves, ops times. There must be room.
	pass(ctx context.Context, ops int)
	// refused tries to enter and is turned away, ops times. It must be full,
	// and opened for nobody to wait. Rivals without a bound on those who wait do
	// it by a call that asks no context.
	refused(ctx context.Context, ops int)
	// visit enters, calls inside and leaves, until inside says that it is
	// enough. It waits as long as it must.
	visit(ctx context.Context, inside func() (enough bool))
}

// maxWait is never reached. What counts is that somebody watches it.
const maxWait = time.Hour

// gates make one with so many permits and so many places to wait.
var gates = []struct {
	name string
	open func(limit, backlog int) gate
}{
	{"watertight", openOurs},
	{"watertight, with Info", openOursInfo},
	{"failsafe-go bulkhead", openFailsafe},
	{"x/sync semaphore (no max wait)", openWeighted},
	{"buffered channel", openChannel},
	{"chi Throttle", openThrottle},
}

func must(ok bool) {
	if !ok {
		panic("the gate did not do what it was to do")
	}
}

type ours struct{ *bulkhead.Bulkhead }

func openOurs(limit, backlog int) gate {
	return ours{bulkhead.New(bulkhead.Config{Limit: limit, Backlog: backlog, MaxWait: maxWait})}
}

func (g ours) pass(ctx context.Context, ops int) {
	for range ops {
		p, err := g.Acquire(ctx)
		must(err == nil)
		p.Release()
	}
}

func (g ours) refused(ctx context.Context, ops int) {
	for range ops {
		_, err := g.Acquire(ctx)
		must(err == bulkhead.ErrFull)
	}
}

func (g ours) visit(ctx context.Context, inside func() bool) {
	for enough := false; !enough; {
		p, err := g.Acquire(ctx)
		must(err == nil)
		enough = inside()
		p.Release()
	}
}

type oursInfo struct{ *bulkhead.Bulkhead }

func openOursInfo(limit, backlog int) gate {
	return oursInfo{bulkhead.New(bulkhead.Config{Limit: limit, Backlog: backlog, MaxWait: maxWait})}
}

func (g oursInfo) pass(ctx context.Context, ops int) {
	var info bulkhead.Info
	for range ops {
		p, err := g.AcquireInfo(ctx, &info)
		must(err == nil)
		p.Release()
	}
}

func (g oursInfo) refused(ctx context.Context, ops int) {
	var info bulkhead.Info
	for range ops {
		_, err := g.AcquireInfo(ctx, &info)
		must(err == bulkhead.ErrFull)
	}
}

func (g oursInfo) visit(ctx context.Context, inside func() bool) {
	var info bulkhead.Info
	for enough := false; !enough; {
		p, err := g.AcquireInfo(ctx, &info)
		must(err == nil)
		enough = inside()
		p.Release()
	}
}

type failsafeGo struct{ failsafe.Bulkhead[any] }

func openFailsafe(limit, _ int) gate { return failsafeGo{failsafe.New[any](uint(limit))} }

func (g failsafeGo) pass(ctx context.Context, ops int) {
	for range ops {
		must(g.AcquirePermitWithMaxWait(ctx, maxWait) == nil)
		g.ReleasePermit()
	}
}

func (g failsafeGo) refused(_ context.Context, ops int) {
	for range ops {
		must(!g.TryAcquirePermit())
	}
}

func (g failsafeGo) visit(ctx context.Context, inside func() bool) {
	for enough := false; !enough; {
		must(g.AcquirePermitWithMaxWait(ctx, maxWait) == nil)
		enough = inside()
		g.ReleasePermit()
	}
}

type weighted struct{ *semaphore.Weighted }

func openWeighted(limit, _ int) gate { return weighted{semaphore.NewWeighted(int64(limit))} }

func (g weighted) pass(ctx context.Context, ops int) {
	for range ops {
		must(g.Acquire(ctx, 1) == nil)
		g.Release(1)
	}
}

func (g weighted) refused(_ context.Context, ops int) {
	for range ops {
		must(!g.TryAcquire(1))
	}
}

func (g weighted) visit(ctx context.Context, inside func() bool) {
	for enough := false; !enough; {
		must(g.Acquire(ctx, 1) == nil)
		enough = inside()
		g.Release(1)
	}
}

type channel chan struct{}

func openChannel(limit, _ int) gate { return make(channel, limit) }

func (g channel) enter(ctx context.Context) bool {
	select {
	case g <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case g <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

func (g channel) pass(ctx context.Context, ops int) {
	for range ops {
		must(g.enter(ctx))
		<-g
	}
}

func (g channel) refused(_ context.Context, ops int) {
	for range ops {
		select {
		case g <- struct{}{}:
			must(false)
		default:
		}
	}
}

func (g channel) visit(ctx context.Context, inside func() bool) {
	for enough := false; !enough; {
		must(g.enter(ctx))
		enough = inside()
		<-g
	}
}

// throttle has nothing but a handler to offer, so its caller is a request.
type throttle struct{ http.Handler }

func openThrottle(limit, backlog int) gate {
	return throttle{chi.ThrottleBacklog(limit, backlog, maxWait)(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			if w := w.(*visitor); w.inside != nil {
				w.enough = w.inside()
			}
			w.(*visitor).admitted = true
		}))}
}

// A visitor is the ResponseWriter of such a request.
type visitor struct {
	header           http.Header
	inside           func() bool
	enough, admitted bool
}

func (v *visitor) Header() http.Header         { return v.header }
func (v *visitor) Write(p []byte) (int, error) { return len(p), nil }
func (v *visitor) WriteHeader(int)             {}

func (g throttle) pass(ctx context.Context, ops int) {
	r := request(ctx, "/")
	for range ops {
		var v visitor
		g.ServeHTTP(&v, r)
		must(v.admitted)
	}
}

func (g throttle) refused(ctx context.Context, ops int) {
	r, v := request(ctx, "/"), visitor{header: http.Header{}}
	for range ops {
		g.ServeHTTP(&v, r)
		must(!v.admitted)
	}
}

func (g throttle) visit(ctx context.Context, inside func() bool) {
	r := request(ctx, "/")
	for enough := false; !enough; {
		v := visitor{inside: inside}
		g.ServeHTTP(&v, r)
		must(v.admitted)
		enough = v.enough
	}
}
