package watertight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

func failAs(g *watertight.Guard, name any) {
	c, err := g.Admit(called(context.Background(), name), to("up"))
	if err == nil {
		c.SettleStatus(500)
		c.Release()
	}
}

func parse(t *testing.T, yaml string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return set
}

// sleepsOnce has the Transition hook take so long over the first.
func sleepsOnce(h watertight.Hooks, d time.Duration) watertight.Hooks {
	tell := h.Transition
	var once sync.Once
	h.Transition = func(ctx context.Context, e watertight.TransitionEvent) {
		once.Do(func() { time.Sleep(d) })
		tell(ctx, e)
	}
	return h
}

// While a hook takes its time over one trip, the next period comes to its own; what its
// trip is owed to is known when it is told at last.
func TestTripThatIsToldLateNamesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		hooks := sleepsOnce(a.hooks(), 10*time.Second)
		g := guard(t, `
version: 1
policies:
  - {name: up, side: client, breaker: {minCalls: 2, failureRate: 100, openFor: 2s, halfOpen: {calls: 2, probeTimeout: 3s}}}
`, watertight.WithHooks(hooks))
		failAs(g, "call")
		go failAs(g, "other call")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		failAs(g, "probe")
		hangs := admitAs(t, g, "hanging probe")
		time.Sleep(3 * time.Second)
		g.Snapshot()
		time.Sleep(2 * time.Second)
		failAs(g, "late probe")
		failAs(g, "latest probe")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, [][]watertight.Fault{
			{{Failed: true, Kept: "call"}, {Failed: true, Kept: "other call"}},
			{{Failed: true, Kept: "probe"}, {Overdue: true, Took: 3 * time.Second, Kept: "hanging probe"}},
			{{Failed: true, Kept: "late probe"}, {Failed: true, Kept: "latest probe"}},
		}, a.trips())
		hangs.Release()
	})
}

// A hook that ends the goroutine keeps nothing from the breaker.
func TestFaultHookThatEndsTheGoroutine(t *testing.T) {
	for cause, took := range map[breaker.Cause]time.Duration{breaker.CauseFailureRate: 0, breaker.CauseSlowCallRate: time.Second} {
		t.Run(cause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - {name: up, side: client, breaker: {minCalls: 1, slowCall: 1s, openFor: 5s}}
`, watertight.WithHooks(watertight.Hooks{Fault: func(context.Context, watertight.FaultEvent) any {
					runtime.Goexit()
					return nil
				}}))
				go func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					_ = g.Do(ctx, "up", func(context.Context) error {
						if took > 0 {
							time.Sleep(took)
							cancel()
						}
						return errors.New("refused")
					})
				}()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				b := g.Snapshot().Compartments[0].Breaker
				require.NotNil(t, b.Last)
				assert.Equal(t, cause.String(), b.Last.Cause)
			})
		})
	}
}

// What a breaker is told, and tells, that a reload has replaced is no matter of the one
// in its place.
func TestFaultsOfABreakerThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const plain = "version: 1\npolicies: [{name: up, side: client, breaker: {minCalls: 2, openFor: 1s}}]"
		const held = "version: 1\npolicies: [{name: up, side: client, breaker: {minCalls: 2, openFor: 1s, force: closed}}]"
		var a accuser
		hooks := sleepsOnce(a.hooks(), time.Minute)
		g := guard(t, plain, watertight.WithHooks(hooks))
		old := admitAs(t, g, "old")
		failAs(g, "call")
		go failAs(g, "call") // trips, and tells of it after the reloads
		synctest.Wait()
		last := func() *watertight.TransitionSnapshot {
			for _, c := range g.Snapshot().Compartments {
				if c.Breaker != nil {
					return c.Breaker.Last
				}
			}
			return nil
		}
		require.NotNil(t, last())
		g.Reload(parse(t, held))
		assert.Nil(t, last(), "this one has not changed")
		g.Reload(parse(t, plain))
		time.Sleep(time.Second)
		failAs(g, "new")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Nil(t, last())
		old.SettleFailure()
		old.Release()
		failAs(g, "new")
		require.Len(t, a.trips(), 2)
		assert.Equal(t, []watertight.Fault{{Failed: true, Kept: "new"}, {Failed: true, Kept: "new"}}, a.trips()[1])
	})
}

// Of many calls in flight those are remembered of which a hook would keep something.
func TestTripNamesTheFewThatAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		hooks := a.hooks()
		hooks.FaultKeeps = func(ctx context.Context) bool { return ctx.Value(nameKey{}) != nil }
		g := guard(t, `
version: 1
policies:
  - {name: up, side: client, breaker: {minCalls: 10, slowCall: 1s, openFor: 5s}}
`, watertight.WithHooks(hooks))
		for range 20 {
			admit(t, g, to("up"))
		}
		admitAs(t, g, "known")
		time.Sleep(2 * time.Second)
		g.Snapshot()
		assert.Equal(t, [][]watertight.Fault{{{Overdue: true, Took: 2 * time.Second, Kept: "known"}}}, a.trips())
	})
}

// Sets are asked one by one, each with its own context; one that panics keeps nothing,
// and has the call as others have it.
func TestFaultKeeps(t *testing.T) {
	no := func(context.Context) bool { return false }
	yes := func(ctx context.Context) bool { return ctx.Value(nameKey{}) == "granted" }
	oops := func(context.Context) bool { panic("a bug") }
	for name, tt := range map[string]struct {
		keeps []func(context.Context) bool
		named int
	}{
		"no":                   {[]func(context.Context) bool{no}, 0},
		"one panics":           {[]func(context.Context) bool{oops}, 0},
		"yes":                  {[]func(context.Context) bool{yes}, 1},
		"not asked":            {[]func(context.Context) bool{nil}, 1},
		"the latter":           {[]func(context.Context) bool{no, yes}, 1},
		"the other one panics": {[]func(context.Context) bool{oops, yes}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opts []watertight.Option
				named := make([]int, len(tt.keeps))
				for i, keeps := range tt.keeps {
					opts = append(opts, watertight.WithHooks(watertight.Hooks{
						Grant:      func(ctx context.Context, _ watertight.GrantEvent) context.Context { return called(ctx, "granted") },
						Fault:      func(ctx context.Context, _ watertight.FaultEvent) any { return ctx.Value(nameKey{}) },
						FaultKeeps: keeps,
						Transition: func(_ context.Context, e watertight.TransitionEvent) { named[i] = len(e.Faults) },
					}))
				}
				g := guard(t, `
version: 1
policies:
  - {name: up, side: client, bulkhead: {maxConcurrent: 9}, breaker: {minCalls: 1, slowCall: 1s, openFor: 5s}}
`, opts...)
				c := admit(t, g, to("up"))
				time.Sleep(2 * time.Second)
				g.Snapshot()
				assert.Equal(t, tt.named, named[len(named)-1])
				c.Release()
			})
		})
	}
}

// A reload that makes a probe late names it, as does one that comes when it is.
func TestTripByAReloadNamesTheProbe(t *testing.T) {
	const yaml = "version: 1\npolicies: [{name: up, side: client, breaker: {minCalls: 1, openFor: 2s, halfOpen: {calls: 1, probeTimeout: %s}}}]"
	for _, tt := range []struct {
		before, after string
		took          time.Duration
	}{
		{"60s", "2s", 3 * time.Second},
		{"2s", "60s", 2 * time.Second},
	} {
		t.Run(tt.before+" to "+tt.after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a accuser
				g := guard(t, fmt.Sprintf(yaml, tt.before), watertight.WithHooks(a.hooks()))
				failAs(g, "call")
				time.Sleep(2 * time.Second)
				probe := admitAs(t, g, "probe")
				time.Sleep(3 * time.Second)
				g.Reload(parse(t, fmt.Sprintf(yaml, tt.after)))
				require.Len(t, a.trips(), 2)
				assert.Equal(t, []watertight.Fault{{Overdue: true, Took: tt.took, Kept: "probe"}}, a.trips()[1])
				probe.Release()
			})
		})
	}
}
