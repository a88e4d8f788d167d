package watertight_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

const costly = `
version: 1
policies:
  - {name: fixed, side: server, match: [{path: /fixed}], per: policy, bulkhead: {maxConcurrent: 100, maxWait: 1s}}
  - {name: keyed, side: server, match: [{path: /keyed}], bulkhead: {maxConcurrent: 100}, breaker: {slowCall: 1s}}
  - {name: full, side: server, match: [{path: /full}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: tenants, side: server, match: [{path: /tenants}], per: "header:X-Tenant", bulkhead: {maxConcurrent: 100}}
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 100, maxWait: 1s}, breaker: {slowCall: 1s}}
`

var costs = []struct {
	name string
	req  *policy.Request
}{
	{"unmatched", on("/none")},
	{"bulkhead, per policy", on("/fixed")},
	{"bulkhead and breaker, per route", on("/keyed")},
	{"bulkhead, per header", by(on("/tenants"), "acme")},
	{"bulkhead and breaker, per host", to("up.internal:8080")},
}

// Invariant 3, for the Guard as a whole: an admission without hooks allocates
// nothing.
func TestAdmitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	g := guard(t, costly)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, cost := range costs {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			c, err := g.Admit(ctx, cost.req)
			if err != nil {
				t.Fatal(err)
			}
			c.SettleStatus(200)
			c.Release()
		}), cost.name)
	}
}

func BenchmarkAdmit(b *testing.B) {
	g := guard(b, costly)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for _, cost := range costs {
		b.Run(cost.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, _ := g.Admit(ctx, cost.req)
				c.SettleStatus(200)
				c.Release()
			}
		})
		b.Run(cost.name+", all cores", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c, _ := g.Admit(ctx, cost.req)
					c.SettleStatus(200)
					c.Release()
				}
			})
		})
	}
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		held, err := g.Admit(ctx, on("/full"))
		require.NoError(b, err)
		defer held.Release()
		for b.Loop() {
			if _, err := g.Admit(ctx, on("/full")); err == nil {
				b.Fatal("admitted beyond the limit")
			}
		}
	})
}

// E14, E16, E68, invariant 1: whatever becomes of the calls, the books balance,
// nothing is left inside, and the limit was never exceeded.
func TestTheBooksBalance(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    side: server
    bulkhead: {maxConcurrent: 4, maxQueue: 8, maxWait: 1ms}
    breaker: {minCalls: 50, failureRate: 60, openFor: 1ms, slowCall: 500us, halfOpen: {calls: 3}}
`)
	var arrived, granted, left, inside, worst atomic.Int64
	var refusals [8]atomic.Int64
	var wg, busy sync.WaitGroup
	// Held until a call has found everything full; or the breaker open, which on a slow
	// machine may come first. Its probes would then find no permit, and it stay as it is.
	var held [4]watertight.Call
	for i := range held {
		c, err := g.Admit(t.Context(), on("/"))
		require.NoError(t, err)
		c.Answering(200) // so that the breaker does not open because of it
		held[i] = c
		arrived.Add(1)
		granted.Add(1)
	}
	var finished atomic.Bool
	busy.Go(func() {
		for refusals[policy.ReasonFull].Load()+refusals[policy.ReasonOpen].Load() == 0 && !finished.Load() {
			runtime.Gosched()
		}
		for i := range held {
			held[i].Release()
		}
	})
	for range 64 {
		wg.Go(func() {
			for i := 0; i < 300 || refusals[policy.ReasonFull].Load() == 0; i++ {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
				}
				arrived.Add(1)
				c, err := g.Admit(ctx, on("/"))
				var rejected *watertight.RejectedError
				switch {
				case err == nil:
					granted.Add(1)
					if n := inside.Add(1); n > worst.Load() {
						worst.Store(n)
					}
					spin(time.Duration(rand.IntN(300)) * time.Microsecond)
					inside.Add(-1)
					switch rand.IntN(3) {
					case 0:
						c.SettleStatus(200)
					case 1:
						c.SettleFailure()
					}
					c.Release()
				case errors.As(err, &rejected):
					refusals[rejected.Reason].Add(1)
				default:
					left.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	finished.Store(true)
	busy.Wait()

	c := compartment(t, g, "all", "")
	assert.LessOrEqual(t, worst.Load(), int64(4))
	assert.EqualValues(t, granted.Load(), c.Granted)
	assert.EqualValues(t, left.Load(), c.Left)
	sum := granted.Load() + left.Load()
	for _, r := range []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining} {
		assert.EqualValues(t, refusals[r].Load(), c.Rejected[r.String()], r.String())
		sum += refusals[r].Load()
	}
	assert.Equal(t, arrived.Load(), sum)
	assert.Zero(t, c.Bulkhead.InFlight)
	assert.Zero(t, c.Bulkhead.Queued)
	assert.NotZero(t, granted.Load())
	assert.NotZero(t, refusals[policy.ReasonFull].Load(), "the load must reach the limit")
	require.NoError(t, g.Drain(t.Context()), "nobody is inside")
}

// spin keeps a permit for a while. A timer might take far longer; and without a
// turn for the others they would not meet on one processor.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		runtime.Gosched()
	}
}
