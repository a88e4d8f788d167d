package watertight_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// E53: a breaker that is open is not forgotten, however the call that tripped
// it, another that leaves and a new key that needs room fall together.
func TestTableNeverForgetsAnOpenBreaker(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	set, err := policy.New(policy.Config{
		Defaults: policy.Defaults{MaxCompartments: 2},
		Policies: []policy.Policy{{Name: "hosts", Breaker: &policy.Breaker{MinCalls: 1}}},
	})
	require.NoError(t, err)
	rounds := 20_000
	if raceEnabled {
		rounds = 2_000
	}
	bad, others := to("bad"), []*policy.Request{to("a"), to("b")}
	for round := range rounds {
		g := watertight.New(set)
		var tripped, forgotten atomic.Bool
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					late := tripped.Load()
					c, err := g.Admit(context.Background(), bad)
					if err != nil {
						return
					}
					c.Release()
					if late {
						forgotten.Store(true)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for i := 0; !tripped.Load() || i < 4; i++ { // never two of them at once, so that there is always room
				c, err := g.Admit(context.Background(), others[i%len(others)])
				assert.NoError(t, err)
				c.Release()
			}
		})
		for range round % 200 {
			_ = g.Ready()
		}
		trips, err := g.Admit(context.Background(), bad)
		require.NoError(t, err)
		trips.SettleFailure()
		trips.Release()
		tripped.Store(true)
		wg.Wait()
		for _, other := range others {
			admit(t, g, other).Release()
		}
		require.False(t, forgotten.Load(), "admitted in spite of an open breaker in round %d", round)
		refused(t, g, bad, breaker.ErrOpen)
	}
}

// E53, invariants 1 and 5: as long as fewer keys are in use than there is room
// for, each has its own limit, exactly, whoever is dropped meanwhile.
func TestTableKeepsLimitsExactWhileItDropsAndInserts(t *testing.T) {
	const keys, room, limit, goroutines = 32, 8, 2, 8
	g := guard(t, `
version: 1
defaults: {maxCompartments: 8}
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 2}, breaker: {slowCall: 1h}}
`)
	var inside [keys]atomic.Int64
	var granted, full atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range 5_000 {
				key := rand.IntN(keys)
				c, err := g.Admit(context.Background(), to(fmt.Sprint("host", key)))
				if err != nil {
					full.Add(1)
					continue
				}
				granted.Add(1)
				if n := inside[key].Add(1); n > limit {
					t.Errorf("%d calls inside of one key", n)
				}
				if rand.IntN(8) == 0 {
					runtime.Gosched()
				}
				inside[key].Add(-1)
				c.SettleStatus(200)
				c.Release()
			}
		})
	}
	looked := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case <-stop:
				return
			default:
			}
			cs := g.Snapshot().Compartments
			assert.LessOrEqual(t, len(cs), room)
			for _, c := range cs {
				assert.LessOrEqual(t, c.Bulkhead.InFlight, limit)
				assert.GreaterOrEqual(t, c.Bulkhead.InFlight, 0)
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-looked
	assert.EqualValues(t, goroutines*5_000, granted.Load()+full.Load())
	cs := g.Snapshot().Compartments
	require.Len(t, cs, room)
	for _, c := range cs {
		assert.NotEqual(t, "(overflow)", c.Key)
		assert.Zero(t, c.InFlight)
	}
}

// E53: a hundred thousand keys at once, held beyond the bound: the table stays
// bounded, the overflow takes the rest, and nothing is left of either when all
// have gone.
func TestTableBearsAFloodOfKeys(t *testing.T) {
	const goroutines, each, room = 50, 2_000, 100
	g := guard(t, `
version: 1
defaults: {maxCompartments: 100}
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 3, maxQueue: 5, maxWait: 1ms}, breaker: {slowCall: 1h}}
`)
	before := runtime.NumGoroutine()
	var stay []*watertight.Call // most of the room, taken all the time
	for i := range room * 9 / 10 {
		stay = append(stay, admit(t, g, to(fmt.Sprint("stays", i))))
	}
	var granted, refusedCalls, left atomic.Int64
	var wg sync.WaitGroup
	for n := range goroutines {
		wg.Go(func() {
			var held []watertight.Call
			for i := range each {
				ctx, cancel := context.WithCancel(context.Background())
				if i%50 == 0 {
					cancel()
				}
				c, err := g.Admit(ctx, to(fmt.Sprintf("host-%d-%d", n, i)))
				cancel()
				var rejected *watertight.RejectedError
				switch {
				case err == nil:
					granted.Add(1)
					held = append(held, c)
				case errors.As(err, &rejected):
					refusedCalls.Add(1)
					assert.Contains(t, []string{"(overflow)", fmt.Sprintf("http://host-%d-%d:80", n, i)}, rejected.Key)
				default:
					left.Add(1)
				}
				runtime.Gosched()
				if len(held) > 3 {
					for i := range held {
						held[i].SettleStatus(200)
						held[i].Release()
					}
					held = held[:0]
				}
				if i%200 == 0 {
					assert.LessOrEqual(t, len(g.Snapshot().Compartments), room+1)
				}
			}
			for i := range held {
				held[i].Release()
			}
		})
	}
	wg.Wait()
	for i, c := range stay {
		assert.Equal(t, 1, compartment(t, g, "hosts", fmt.Sprintf("http://stays%d:80", i)).Bulkhead.InFlight)
		c.Release()
	}
	assert.EqualValues(t, goroutines*each, granted.Load()+refusedCalls.Load()+left.Load())
	assert.NotZero(t, refusedCalls.Load(), "the flood must fill the overflow compartment")
	for _, c := range g.Snapshot().Compartments {
		assert.Zero(t, c.Bulkhead.InFlight, c.Key)
		assert.Zero(t, c.Bulkhead.Queued, c.Key)
		assert.LessOrEqual(t, c.Bulkhead.Peak, 3)
	}
	noMoreGoroutinesThan(t, before)
	require.NoError(t, g.Drain(t.Context()), "nobody is inside")
}
