package breaker_test

import (
	"context"
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
			b := breaker.New(breaker.Config{Window: window, SlowCall: time.Second, OnTransition: listener})
			assert.Zero(t, testing.AllocsPerRun(1000, func() {
				call, err := b.Allow(ctx)
				if err != nil {
					t.Error(err)
				}
				call = call.Restart()
				if call.Stale() {
					t.Error("stale")
				}
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
