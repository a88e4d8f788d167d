package breaker_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
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
	{"oneRate", breaker.Config{Window: breaker.Window{Calls: 100}}},
}

func openForAnHour() *breaker.Breaker {
	return breaker.New(breaker.Config{InitialState: breaker.Open, OpenFor: []time.Duration{time.Hour}})
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
	brk := openForAnHour()
	ctx := context.Background()
	for b.Loop() {
		if _, err := brk.Allow(ctx); err == nil {
			b.Fatal("let in")
		}
	}
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

// BenchmarkRatio compares with a raw atomic add and its undo, in the same run and with
// as many goroutines. Each line is x-raw, how many times the raw pair it takes. The
// clock is read once for the whole of it, except in "clock", which is a reading alone.
//
// "locking" is the rival of the gate: the same breaker, with Allow taking the lock.
func BenchmarkRatio(b *testing.B) {
	ctx := context.Background()
	closed := func(c breaker.Config) func(int) {
		brk := breaker.New(c)
		now := time.Now()
		return func(n int) {
			for range n {
				call, _ := brk.AllowAt(ctx, now)
				call.DoneAt(ctx, breaker.Success, now)
			}
		}
	}
	failing := benchConfigs[0].config
	failing.FailureRate = 100
	rows := []struct {
		name string
		op   func(n int)
	}{
		{"closed/count", closed(benchConfigs[0].config)},
		{"closed/time", closed(benchConfigs[1].config)},
		{"closed/oneRate", closed(benchConfigs[2].config)},
		{"closed/count/everyThirdFails", func() func(int) {
			brk := breaker.New(failing)
			now := time.Now()
			return func(n int) {
				for i := range n {
					o := breaker.Success
					if i%3 == 0 {
						o = breaker.Failure
					}
					call, _ := brk.AllowAt(ctx, now)
					call.DoneAt(ctx, o, now)
				}
			}
		}()},
		{"closed/count/locking", func() func(int) {
			brk := breaker.New(benchConfigs[0].config)
			now := time.Now()
			return func(n int) {
				for range n {
					brk.AllowLocking(ctx, now).DoneAt(ctx, breaker.Success, now)
				}
			}
		}()},
		{"open", func() func(int) {
			brk := openForAnHour()
			now := time.Now()
			return func(n int) {
				for range n {
					_, _ = brk.AllowAt(ctx, now)
				}
			}
		}()},
		{"clock", func(n int) {
			base := time.Now()
			for range n {
				_ = time.Since(base)
			}
		}},
	}
	var pair atomic.Int64
	raw := func(n int) {
		for range n {
			pair.Add(1)
			pair.Add(-1)
		}
	}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) { ratio(b, raw, row.op, 1) })
		b.Run(row.name+"/contended", func(b *testing.B) { ratio(b, raw, row.op, 16*runtime.GOMAXPROCS(0)) })
	}
}

// ratio runs raw and op in turns, and reports the best of each: what the machine does
// besides only ever makes a turn longer.
func ratio(b *testing.B, raw, op func(int), goroutines int) {
	const turns, chunk = 40, 20000
	turn := func(f func(int)) time.Duration {
		var all sync.WaitGroup
		begin := time.Now()
		for range goroutines {
			all.Go(func() { f(chunk / goroutines) })
		}
		all.Wait()
		return time.Since(begin)
	}
	var bestRaw, bestOp time.Duration = time.Hour, time.Hour
	for b.Loop() {
		for range turns {
			bestRaw = min(bestRaw, turn(raw))
			bestOp = min(bestOp, turn(op))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bestOp)/float64(bestRaw), "x-raw")
	b.ReportMetric(float64(bestOp)/chunk, "ns")
}
