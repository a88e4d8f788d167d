package bulkhead_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// E70: a timer that is still set keeps its bulkhead from being garbage, here
// for an hour. Nobody waits any more, so nothing may.
func TestNothingKeepsABulkheadThatHasQueued(t *testing.T) {
	old := make([]weak.Pointer[bulkhead.Bulkhead], 100)
	for i := range old {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
		held := hold(t, b)[0]
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, err := b.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			p.Release()
		}()
		for b.Snapshot().Queued == 0 {
			runtime.Gosched()
		}
		held.Release()
		<-done
		old[i] = weak.Make(b)
	}
	kept := 0
	runtime.GC()
	for _, p := range old {
		if p.Value() != nil {
			kept++
		}
	}
	// The runtime removes stopped timers in heaps when there are enough of them.
	require.Less(t, kept, len(old)/2)
}
