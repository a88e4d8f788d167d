package bulkhead_test

import (
	"context"
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

// BenchmarkChannel is the simplest rival, a buffered channel: no queue bound,
// no resize, no counts, and a dead context that is admitted half of the time.
func BenchmarkChannel(b *testing.B) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	permits := make(chan struct{}, 10)
	for b.Loop() {
		select {
		case permits <- struct{}{}:
		case <-ctx.Done():
			b.Fatal(ctx.Err())
		}
		<-permits
	}
}

// Every processor at once, with permits for all: what the mutex costs.
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
