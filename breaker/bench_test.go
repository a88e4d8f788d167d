package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/watertight-go/watertight/breaker"
)

var benchConfigs = []struct {
	name   string
	config breaker.Config
}{
	{"count", breaker.Config{Window: breaker.Window{Calls: 100}, SlowCall: time.Second}},
	{"time", breaker.Config{Window: breaker.Window{Time: 10 * time.Second}, SlowCall: time.Second}},
}

// BenchmarkClosed is what a breaker costs a request that it lets in.
func BenchmarkClosed(b *testing.B) {
	for _, bench := range benchConfigs {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			brk := breaker.New(bench.config)
			ctx := context.Background()
			for b.Loop() {
				call, _ := brk.Allow(ctx)
				call.Done(ctx, breaker.Success)
			}
		})
	}
}

// BenchmarkClosedParallel is the same, with all processors at one breaker.
func BenchmarkClosedParallel(b *testing.B) {
	for _, bench := range benchConfigs {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			brk := breaker.New(bench.config)
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				for pb.Next() {
					call, _ := brk.Allow(ctx)
					call.Done(ctx, breaker.Success)
				}
			})
		})
	}
}

// BenchmarkOpen is what a breaker costs a request that it refuses.
func BenchmarkOpen(b *testing.B) {
	b.ReportAllocs()
	brk := breaker.New(breaker.Config{InitialState: breaker.Open, OpenFor: []time.Duration{time.Hour}})
	ctx := context.Background()
	for b.Loop() {
		if _, err := brk.Allow(ctx); err == nil {
			b.Fatal("let in")
		}
	}
}

func BenchmarkOpenParallel(b *testing.B) {
	b.ReportAllocs()
	brk := breaker.New(breaker.Config{InitialState: breaker.Open, OpenFor: []time.Duration{time.Hour}})
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			if _, err := brk.Allow(ctx); err == nil {
				b.Error("let in")
				return
			}
		}
	})
}

// BenchmarkProbe is a probe let in and cancelled, with nine more in flight.
func BenchmarkProbe(b *testing.B) {
	b.ReportAllocs()
	brk := breaker.New(breaker.Config{InitialState: breaker.HalfOpen, HalfOpen: breaker.HalfOpenConfig{ProbeTimeout: -1}})
	ctx := context.Background()
	for range 9 {
		_, _ = brk.Allow(ctx)
	}
	for b.Loop() {
		call, err := brk.Allow(ctx)
		if err != nil {
			b.Fatal(err)
		}
		call.Cancel()
	}
}
