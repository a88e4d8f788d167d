package breaker_test

import (
	"context"
	"runtime"
	"slices"
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
// as many goroutines. Each line says how many times the raw pair it takes. The clock
// is read once for the whole of it, except in "clock", which is a reading alone.
//
// "locking" is the rival of the gate: the same breaker, with the lock taken both times.
// "lockingEnd" takes it only at the end, like a call that lasts into another slot.
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
					brk.AllowLocking(ctx, now).DoneLocking(ctx, breaker.Success, now)
				}
			}
		}()},
		{"closed/count/lockingEnd", func() func(int) {
			brk := breaker.New(benchConfigs[0].config)
			now := time.Now()
			return func(n int) {
				for range n {
					call, _ := brk.AllowAt(ctx, now)
					call.DoneLocking(ctx, breaker.Success, now)
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

// ratio runs raw and op in turns. It reports the best of each, since what the machine
// does besides only makes a turn longer; and the median of the ratios of neighbours,
// which is what counts where goroutines contend, since a best turn is one without
// contention.
func ratio(b *testing.B, raw, op func(int), goroutines int) {
	// Long enough, where there are many goroutines, for them to run at the same time.
	turns, chunk := 41, 20000
	if goroutines > 1 {
		turns, chunk = 11, 20000*goroutines
	}
	turn := func(f func(int)) float64 {
		var all sync.WaitGroup
		begin := time.Now()
		for range goroutines {
			all.Go(func() { f(chunk / goroutines) })
		}
		all.Wait()
		return float64(time.Since(begin)) / float64(chunk)
	}
	var raws, ops, ratios []float64
	for b.Loop() {
		for range turns {
			r, o := turn(raw), turn(op)
			raws, ops, ratios = append(raws, r), append(ops, o), append(ratios, o/r)
		}
	}
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(slices.Min(ops), "best-ns")
	b.ReportMetric(slices.Min(ops)/slices.Min(raws), "best-x-raw")
	b.ReportMetric(ratios[len(ratios)/2], "median-x-raw")
}
