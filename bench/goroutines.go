package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// work does ops operations. ctx can be cancelled, as that of a request can.
type work = func(ctx context.Context, ops int)

// spread has the work done by perCore goroutines for each processor, or by one
// goroutine alone if perCore is 0.
func spread(m *meter, ops, perCore int, do work) {
	if perCore == 0 {
		alone(m, ops, do)
	} else {
		together(m, ops, perCore, do)
	}
}

func alone(m *meter, ops int, do work) {
	ctx, cancel := cancellable()
	defer cancel()
	m.start()
	do(ctx, ops)
	m.stop()
}

// together releases its goroutines at once.
func together(m *meter, ops, perCore int, do work) {
	n := perCore * runtime.GOMAXPROCS(0)
	ctx, cancel := cancellable()
	defer cancel()
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			do(ctx, (i+1)*ops/n-i*ops/n)
		})
	}
	ready.Wait()
	m.start()
	close(start)
	done.Wait()
	m.stop()
}

// rawPair is what no guard that is shared by goroutines can do without.
func rawPair(perCore int) rival {
	return rival{"atomic add and its undo", func(m *meter, ops int) {
		var n atomic.Int64
		spread(m, ops, perCore, func(_ context.Context, ops int) {
			for range ops {
				n.Add(1)
				n.Add(-1)
			}
		})
	}}
}
