package bulkhead_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
)

func nothing(context.Context) (int, error) { return 1, nil }

// BenchmarkPoolRival is what a pool cannot do without: a goroutine that waits
// for work and answers, over two unbuffered channels.
func BenchmarkPoolRival(b *testing.B) {
	b.ReportAllocs()
	work, answers := make(chan int), make(chan int)
	go func() {
		defer close(answers)
		for n := range work {
			answers <- n
		}
	}()
	for b.Loop() {
		work <- 1
		<-answers
	}
	close(work)
	<-answers
}

func BenchmarkPoolSubmitWait(b *testing.B) {
	for name, cfg := range map[string]bulkhead.PoolConfig{
		"core":      {Core: 1, Max: 1},
		"keepAlive": {Max: 1, KeepAlive: time.Minute},
		"freshEach": {Max: 1},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p := bulkhead.NewPool(cfg)
			defer p.Close()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			for b.Loop() {
				f, err := bulkhead.Submit(p, ctx, nothing)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPoolDo(b *testing.B) {
	b.ReportAllocs()
	p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
	defer p.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for b.Loop() {
		if err := p.Do(ctx, func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// Sixteen submitters a processor, and as many workers as processors: nearly
// every task waits, and is watched for the end of its context.
func BenchmarkPoolQueued(b *testing.B) {
	b.ReportAllocs()
	p := bulkhead.NewPool(bulkhead.PoolConfig{Core: 2, Max: 2, Backlog: 1 << 20})
	defer p.Close()
	var sum atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for pb.Next() {
			f, err := bulkhead.Submit(p, ctx, nothing)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := f.Wait(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			sum.Add(int64(n))
		}
	})
}

func BenchmarkPoolRefused(b *testing.B) {
	b.ReportAllocs()
	p := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	release := make(chan struct{})
	if _, err := bulkhead.Submit(p, b.Context(), func(context.Context) (int, error) { <-release; return 0, nil }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := bulkhead.Submit(p, b.Context(), nothing); err != bulkhead.ErrFull {
			b.Fatal(err)
		}
	}
	close(release)
}
