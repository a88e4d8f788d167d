package watertight_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// E67, E68: what hooks are told, from many goroutines, is what the snapshot
// counts: no event is missing, none is told twice, and each Release gets the
// context of its own Grant.
func TestHooksAddUp(t *testing.T) {
	type grantKey struct{}
	var arrived, granted, released, open atomic.Int64
	var waits, rejects sync.Map // result or reason -> *atomic.Int64
	count := func(m *sync.Map, what string) *atomic.Int64 {
		n, _ := m.LoadOrStore(what, new(atomic.Int64))
		return n.(*atomic.Int64)
	}
	g := guard(t, `
version: 1
policies:
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 2, maxQueue: 4, maxWait: 1ms}
    breaker: {minCalls: 20, failureRate: 60, openFor: 100us, halfOpen: {calls: 3}}
`, watertight.WithHooks(watertight.Hooks{
		Arrive: func(context.Context, *policy.Request) context.Context { arrived.Add(1); return nil },
		Wait: func(_ context.Context, e watertight.WaitEvent) {
			count(&waits, e.Result).Add(1)
			assert.Positive(t, e.Position)
			assert.False(t, e.Arrived.IsZero())
		},
		Grant: func(ctx context.Context, e watertight.GrantEvent) context.Context {
			granted.Add(1)
			assert.LessOrEqual(t, e.InFlight, e.Limit)
			return context.WithValue(ctx, grantKey{}, new(atomic.Bool))
		},
		Release: func(ctx context.Context, _ watertight.ReleaseEvent) {
			released.Add(1)
			assert.True(t, ctx.Value(grantKey{}).(*atomic.Bool).CompareAndSwap(false, true), "released once")
		},
		Reject: func(_ context.Context, e watertight.RejectEvent) {
			count(&rejects, e.Reason.String()).Add(1)
			if e.Reason == policy.ReasonOpen {
				open.Add(1)
			}
		},
	}))
	hosts := []string{"a", "b", "c"}
	var left atomic.Int64
	var turns atomic.Int64
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 300 {
				ctx, cancel := context.WithCancel(context.Background())
				switch rand.IntN(8) {
				case 0:
					cancel()
				case 1:
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
				}
				c, err := g.Admit(ctx, to(hosts[rand.IntN(len(hosts))]))
				if err != nil && err == ctx.Err() {
					left.Add(1)
				}
				if err == nil {
					for range rand.IntN(20) {
						runtime.Gosched()
					}
					if turn := turns.Add(1); turn/100%3 == 0 { // a while of failures
						c.SettleFailure()
					} else {
						c.SettleStatus(200)
					}
					c.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()

	var sumGranted, sumLeft uint64
	sumRejected := make(map[string]uint64)
	for _, c := range g.Snapshot().Compartments {
		sumGranted += c.Granted
		sumLeft += c.Left
		for reason, n := range c.Rejected {
			sumRejected[reason] += n
		}
		assert.Zero(t, c.InFlight)
	}
	assert.EqualValues(t, sumGranted, granted.Load())
	assert.EqualValues(t, sumGranted, released.Load())
	assert.EqualValues(t, sumLeft, left.Load())
	for reason, n := range sumRejected {
		assert.EqualValues(t, n, count(&rejects, reason).Load(), reason)
	}
	// Of the callers that left, those are told of who queued. Nothing at all is of
	// those that were gone when they came.
	told := sumGranted + sumRejected["full"] + sumRejected["wait_timeout"] + sumRejected["open"]
	assert.EqualValues(t, 24*300, told+sumLeft)
	assert.GreaterOrEqual(t, uint64(arrived.Load()), told)
	assert.LessOrEqual(t, uint64(arrived.Load()), told+sumLeft)
	assert.LessOrEqual(t, uint64(count(&waits, "canceled").Load()), sumLeft)
	assert.EqualValues(t, sumRejected["wait_timeout"], count(&waits, "wait_timeout").Load())
	assert.Positive(t, count(&waits, "granted").Load(), "the load must make some wait")
	assert.Positive(t, open.Load(), "and the breaker open")
}
