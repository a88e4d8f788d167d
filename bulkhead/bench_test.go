package bulkhead_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
)

func BenchmarkUncontended(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	bh := bulkhead.New(bulkhead.Config{Limit: 10, Backlog: 10, MaxWait: time.Second})
	for b.Loop() {
		p, err := bh.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

func BenchmarkUncontendedInfo(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	bh := bulkhead.New(bulkhead.Config{Limit: 10, Backlog: 10, MaxWait: time.Second})
	var info bulkhead.Info
	for b.Loop() {
		p, err := bh.AcquireInfo(ctx, &info)
		if err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

// BenchmarkMutexUncontended and BenchmarkMutexParallel are the rival that the
// word has to beat to be worth its argument: the same decision and the same
// counts under a mutex. Rivals from elsewhere are in the bench module.
func BenchmarkMutexUncontended(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := mutexRival{limit: 10}
	for b.Loop() {
		if !r.acquire(ctx) {
			b.Fatal("refused")
		}
		r.release()
	}
}

func BenchmarkMutexParallel(b *testing.B) {
	b.ReportAllocs()
	ctx := b.Context()
	r := mutexRival{limit: 1 << 20}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !r.acquire(ctx) {
				b.Error("refused")
				return
			}
			r.release()
		}
	})
}

type mutexRival struct {
	mu                          sync.Mutex
	limit, inFlight, peak       int
	closed                      bool
	granted, full, shut, queued uint64
}

func (r *mutexRival) acquire(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	ok := false
	switch {
	case r.closed:
		r.shut++
	case r.inFlight < r.limit:
		r.inFlight++
		r.peak = max(r.peak, r.inFlight)
		r.granted++
		ok = true
	default:
		r.full++
	}
	r.mu.Unlock()
	return ok
}

func (r *mutexRival) release() {
	r.mu.Lock()
	if r.inFlight == 0 || r.queued > 0 {
		panic("not reached here")
	}
	r.inFlight--
	r.mu.Unlock()
}

// Every processor at once, with permits for all: what the shared word costs.
func BenchmarkParallel(b *testing.B) {
	b.ReportAllocs()
	ctx := b.Context()
	bh := bulkhead.New(bulkhead.Config{Limit: 1 << 20, Backlog: 10, MaxWait: time.Second})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := bh.Acquire(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			p.Release()
		}
	})
}

func BenchmarkRefused(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	bh := bulkhead.New(bulkhead.Config{Limit: 1})
	hold(b, bh)
	for b.Loop() {
		if _, err := bh.Acquire(ctx); err != bulkhead.ErrFull {
			b.Fatal(err)
		}
	}
}

// One permit among 32 goroutines: nearly every acquire queues and nearly every
// release hands over.
func BenchmarkHandOver(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	bh := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1 << 20, MaxWait: time.Hour})
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := bh.Acquire(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			p.Release()
		}
	})
}
