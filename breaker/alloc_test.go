package breaker_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// What a request does to a breaker allocates nothing, let in or refused.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Log("the race detector allocates; nothing is measured")
		return
	}
	ctx := context.Background()
	listener := func(breaker.Transition) {}
	windows := map[string]breaker.Window{"count": {Calls: 100}, "time": {Time: 10 * time.Second}}
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			b := breaker.New(breaker.Config{Window: window, SlowCall: time.Second, MaxRetryAfter: time.Minute, OnTransition: listener})
			assert.Zero(t, testing.AllocsPerRun(1000, func() {
				call, err := b.Allow(ctx)
				if err != nil {
					t.Error(err)
				}
				call = call.Pause(context.Background()).Restart(context.Background())
				if call.Stale() {
					t.Error("stale")
				}
				call = call.Responded(ctx)
				call.RetryAfter(time.Second)
				call.Done(ctx, breaker.Success)
			}), "let in")
			assert.Zero(t, testing.AllocsPerRun(1000, func() {
				call, _ := b.Allow(ctx)
				call.Cancel()
			}), "cancelled")
			assert.Zero(t, testing.AllocsPerRun(1000, func() { b.Snapshot() }), "snapshot")
			require.NoError(t, b.Transition(breaker.Open, time.Hour))
			assert.Zero(t, testing.AllocsPerRun(1000, func() {
				if call, err := b.Allow(ctx); err == nil || call.Remaining() == 0 {
					t.Error("let in")
				}
			}), "refused")
		})
	}
}

// A breaker is small, since there is one for each key: with both rates over 100 calls,
// the overdue rule and nobody listening, at most half a kilobyte.
func TestMemory(t *testing.T) {
	if raceDetector {
		t.Log("the race detector allocates; nothing is measured")
		return
	}
	const n = 10000
	all := make([]*breaker.Breaker, n)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for i := range all {
		all[i] = breaker.New(breaker.Config{SlowCall: time.Second, Window: breaker.Window{Calls: 100}})
	}
	each := (held() - before) / n
	t.Logf("%d bytes each", each)
	assert.LessOrEqual(t, each, uint64(512))
	assert.Positive(t, each)
	runtime.KeepAlive(all)
}
