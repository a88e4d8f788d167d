package watertight_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

type nameKey struct{}

// called returns a context by which a call is known to the hooks of an accuser.
func called(ctx context.Context, name any) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// An accuser is a set of hooks that keeps the names of calls, of those that have one,
// and the transitions.
type accuser struct {
	mu    sync.Mutex
	heard []watertight.FaultEvent
	turns []watertight.TransitionEvent
}

func (a *accuser) hooks() watertight.Hooks {
	return watertight.Hooks{
		Fault: func(ctx context.Context, e watertight.FaultEvent) any {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.heard = append(a.heard, e)
			return ctx.Value(nameKey{})
		},
		Transition: func(_ context.Context, e watertight.TransitionEvent) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.turns = append(a.turns, e)
		},
	}
}

// trips returns what the trips so far were owed to.
func (a *accuser) trips() [][]watertight.Fault {
	var all [][]watertight.Fault
	for _, e := range a.turns {
		if e.To == breaker.Open {
			all = append(all, e.Faults)
		}
	}
	return all
}

const faulty = `
version: 1
policies:
  - name: up
    side: client
    breaker: {failureRate: 50, slowCall: 1s, slowCallRate: 50, window: {calls: 4}, minCalls: 4, openFor: 5s, halfOpen: {calls: 2, probeTimeout: 4s}}
`

// A trip names the calls that it is owed to, the one that tipped the scales last.
func TestTripNamesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		g := guard(t, faulty, watertight.WithHooks(a.hooks()))
		call := func(name string, took time.Duration, status int) {
			c, err := g.Admit(called(t.Context(), name), to("up"))
			require.NoError(t, err)
			defer c.Release()
			time.Sleep(took)
			c.SettleStatus(status)
		}
		call("long ago", 0, 500) // out of the window by the time of the trip
		for range 3 {
			call("fine", 0, 200)
		}
		call("first", 100*time.Millisecond, 500)
		call("slow", 1001*time.Millisecond, 200)
		call("both", 1002*time.Millisecond, 503)
		assert.Equal(t, [][]watertight.Fault{{
			{Failed: true, Took: 100 * time.Millisecond, Kept: "first"},
			{Failed: true, Slow: true, Took: 1002 * time.Millisecond, Kept: "both"},
		}}, a.trips())
		up := watertight.Compartment{Policy: "up", Side: policy.Client, Per: policy.PerHost, Key: "http://up:80"}
		for _, e := range a.heard {
			assert.Equal(t, up, e.Compartment)
			assert.Nil(t, e.Kept)
		}
		assert.Len(t, a.heard, 4)

		time.Sleep(5 * time.Second)
		call("bad probe", 0, 500)
		call("good probe", 0, 200)
		assert.Equal(t, []watertight.Fault{{Failed: true, Kept: "bad probe"}}, a.trips()[1])

		time.Sleep(5 * time.Second)
		call("good probe", 0, 200)
		call("good probe", 0, 200)
		require.Equal(t, breaker.Closed, a.turns[len(a.turns)-1].To)
		for _, e := range a.turns {
			if e.To != breaker.Open {
				assert.Empty(t, e.Faults)
			}
		}
		for range 4 {
			call("slow", 2*time.Second, 200)
		}
		slow := watertight.Fault{Slow: true, Took: 2 * time.Second, Kept: "slow"}
		assert.Equal(t, []watertight.Fault{slow, slow, slow, slow}, a.trips()[2])
	})
}

// A trip by calls that hang names those, though they have not ended.
func TestTripNamesCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		g := guard(t, faulty, watertight.WithHooks(a.hooks()))
		admit := func(name any) (watertight.Call, error) { return g.Admit(called(t.Context(), name), to("up")) }
		var calls []watertight.Call
		for i := range 4 {
			c, err := admit(i)
			require.NoError(t, err)
			calls = append(calls, c)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		_, err := admit("refused")
		require.ErrorIs(t, err, breaker.ErrOpen)
		require.Len(t, a.trips(), 1)
		for i, f := range a.trips()[0] {
			assert.Equal(t, watertight.Fault{Overdue: true, Took: 1500*time.Millisecond - time.Duration(i)*100*time.Millisecond, Kept: i}, f)
		}

		// They still hang when the probes do; those are the ones that count.
		time.Sleep(5 * time.Second)
		probe, err := admit("probe")
		require.NoError(t, err)
		other, err := admit("other probe")
		require.NoError(t, err)
		other.SettleStatus(200)
		other.Release()
		time.Sleep(1100 * time.Millisecond)
		_, err = admit("refused")
		require.ErrorIs(t, err, breaker.ErrOpen)
		assert.Equal(t, []watertight.Fault{{Overdue: true, Took: 1100 * time.Millisecond, Kept: "probe"}}, a.trips()[1])
		probe.Release()
		for i := range calls {
			calls[i].SettleFailure()
			calls[i].Release()
		}
		assert.Len(t, a.trips(), 2, "what ends late moves nothing")
	})
}

// A probe that is given up is a reason, too, where nothing is slow.
func TestTripNamesTheProbeThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		g := guard(t, `
version: 1
policies:
  - {name: up, side: client, breaker: {minCalls: 1, openFor: 5s, halfOpen: {calls: 1, probeTimeout: 4s}}}
`, watertight.WithHooks(a.hooks()))
		_ = g.Do(called(t.Context(), "call"), "up", func(context.Context) error { return errors.New("refused") })
		time.Sleep(5 * time.Second)
		_ = g.Do(called(t.Context(), "probe"), "up", func(ctx context.Context) error {
			time.Sleep(6 * time.Second)
			g.Snapshot()
			return nil
		})
		assert.Equal(t, [][]watertight.Fault{
			{{Failed: true, Kept: "call"}},
			{{Overdue: true, Took: 4 * time.Second, Kept: "probe"}},
		}, a.trips())
	})
}

func admitAs(t *testing.T, g *watertight.Guard, name any) *watertight.Call {
	t.Helper()
	c, err := g.Admit(called(t.Context(), name), to("up"))
	require.NoError(t, err)
	return &c
}

// What a trip names is bounded, and so are those that are kept for one.
func TestTripNamesAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a accuser
		g := guard(t, `
version: 1
policies:
  - {name: up, side: client, breaker: {minCalls: 20, slowCall: 1s, openFor: 5s}}
`, watertight.WithHooks(a.hooks()))
		for i := range 20 {
			c := admitAs(t, g, i)
			c.SettleStatus(500)
			c.Release()
		}
		var names []any
		for _, f := range a.trips()[0] {
			names = append(names, f.Kept)
		}
		assert.Equal(t, []any{12, 13, 14, 15, 16, 17, 18, 19}, names)

		time.Sleep(5 * time.Second)
		for range 10 {
			c := admit(t, g, to("up"))
			c.SettleStatus(200)
			c.Release()
		}
		for i := range 20 {
			admitAs(t, g, i)
		}
		time.Sleep(2 * time.Second)
		g.Snapshot()
		require.Len(t, a.trips(), 2)
		assert.Len(t, a.trips()[1], 8)
	})
}

// Each set gets what it has kept itself, under the context that it made.
func TestEachSetHasItsOwnFaults(t *testing.T) {
	var heard [3][]watertight.Fault
	set := func(i int, keep bool) watertight.Hooks {
		return watertight.Hooks{
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context { return called(ctx, i) },
			Release: func(ctx context.Context, _ watertight.ReleaseEvent) {
				assert.Equal(t, i, ctx.Value(nameKey{}))
			},
			Fault: func(ctx context.Context, e watertight.FaultEvent) any {
				if !keep {
					return nil
				}
				return ctx.Value(nameKey{})
			},
			Transition: func(_ context.Context, e watertight.TransitionEvent) { heard[i] = e.Faults },
		}
	}
	const both = `
version: 1
policies:
  - {name: up, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}
`
	g := guard(t, both, watertight.WithHooks(set(0, true)), watertight.WithHooks(set(1, false)), watertight.WithHooks(set(2, true)))
	require.Error(t, g.Do(t.Context(), "up", func(context.Context) error { return errors.New("refused") }))
	for i := range heard {
		for j := range heard[i] {
			heard[i][j].Took = 0
		}
	}
	assert.Equal(t, [3][]watertight.Fault{{{Failed: true, Kept: 0}}, nil, {{Failed: true, Kept: 2}}}, heard)
}

// What is known outlives a reload, but not the breaker.
func TestFaultsAndReload(t *testing.T) {
	fail := func(g *watertight.Guard, name string) {
		_ = g.Do(called(t.Context(), name), "up", func(context.Context) error { return errors.New("refused") })
	}
	load := func(breaker string) *policy.Set {
		set, err := policy.Parse("test.yaml", []byte("version: 1\npolicies: [{name: up, side: client, breaker: {"+breaker+"}}]"))
		require.NoError(t, err)
		return set
	}
	names := func(fs []watertight.Fault) (names []any) {
		for _, f := range fs {
			names = append(names, f.Kept)
		}
		return names
	}
	var a accuser
	g := watertight.New(load("minCalls: 3"), watertight.WithHooks(a.hooks()))
	fail(g, "before")
	g.Reload(load("minCalls: 2"))
	fail(g, "after")
	require.Len(t, a.trips(), 1)
	assert.Equal(t, []any{"before", "after"}, names(a.trips()[0]))

	a = accuser{}
	g = watertight.New(load("minCalls: 3"), watertight.WithHooks(a.hooks()))
	fail(g, "before")
	g.Reload(load("minCalls: 2, force: closed"))
	g.Reload(load("minCalls: 2"))
	fail(g, "after")
	fail(g, "after")
	require.Len(t, a.trips(), 1)
	assert.Equal(t, []any{"after", "after"}, names(a.trips()[0]))
}

// A hook that panics loses its call, and nothing else.
func TestPanickingFaultHook(t *testing.T) {
	var a accuser
	hooks := a.hooks()
	hooks.Fault = func(context.Context, watertight.FaultEvent) any { panic("a bug") }
	g := guard(t, faulty, watertight.WithHooks(hooks))
	for range 4 {
		_ = g.Do(t.Context(), "up", func(context.Context) error { return errors.New("refused") })
	}
	assert.Equal(t, [][]watertight.Fault{nil}, a.trips())
}

// A ledger is the naive model of what trips are owed to: it keeps all calls of a
// period, and looks at them only when there is a trip.
type ledger struct {
	window int
	period int      // number of the transitions so far
	filed  []*entry // in this period
	inside []*entry
}

type entry struct {
	name   int
	known  bool // to the hooks
	period int
	start  time.Time
	end    time.Time
	failed bool
	slow   bool
	call   watertight.Call
}

// places returns how many calls in flight stand where the breaker's few are remembered.
func (l *ledger) places(all bool) (n int) {
	for _, c := range l.inside {
		if all || c.known {
			n++
		}
	}
	return n
}

func (l *ledger) trip(e watertight.TransitionEvent, slowCall, probeTimeout time.Duration) []watertight.Fault {
	probes := e.From == breaker.HalfOpen
	in := l.filed
	if !probes && len(in) > l.window {
		in = in[len(in)-l.window:]
	}
	var found []watertight.Fault
	for _, c := range in {
		var counts bool
		switch e.Cause {
		case breaker.CauseFailureRate:
			counts = c.failed
		case breaker.CauseSlowCallRate:
			counts = c.slow
		case breaker.CauseOverdue:
			counts = c.slow && probes
		}
		if counts && c.known && !c.end.After(e.At) {
			found = append(found, watertight.Fault{Failed: c.failed, Slow: c.slow, Took: c.end.Sub(c.start), Kept: c.name})
		}
	}
	for _, c := range l.inside {
		took := e.At.Sub(c.start)
		overdue := e.Cause == breaker.CauseOverdue && took > slowCall || probes && took >= probeTimeout
		if c.known && c.period == l.period && overdue {
			found = append(found, watertight.Fault{Overdue: true, Took: took, Kept: c.name})
		}
	}
	return found[max(0, len(found)-8):]
}

func TestFaultsAgainstModel(t *testing.T) {
	const slowCall, probeTimeout = time.Second, 3 * time.Second
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			l := ledger{window: rapid.IntRange(4, 16).Draw(rt, "window")}
			set, err := policy.New(policy.Config{Policies: []policy.Policy{{Name: "up", Side: policy.Client, Breaker: &policy.Breaker{
				SlowCall: slowCall, SlowCallRate: 40, FailureRate: 40, MinCalls: 4, Window: policy.Window{Calls: l.window},
				OpenFor: 2 * time.Second, HalfOpen: policy.HalfOpen{Calls: 3, ProbeTimeout: probeTimeout},
			}}}})
			require.NoError(rt, err)
			trips := 0
			var keeps func(context.Context) bool
			if rapid.Bool().Draw(rt, "asked when they begin") {
				keeps = func(ctx context.Context) bool { return ctx.Value(nameKey{}) != nil }
			}
			g := watertight.New(set, watertight.WithHooks(watertight.Hooks{
				FaultKeeps: keeps,
				Fault:      func(ctx context.Context, _ watertight.FaultEvent) any { return ctx.Value(nameKey{}) },
				Transition: func(_ context.Context, e watertight.TransitionEvent) {
					if e.To == breaker.Open {
						trips++
						want := l.trip(e, slowCall, probeTimeout)
						require.Equal(rt, append([]watertight.Fault{}, want...), append([]watertight.Fault{}, e.Faults...), "%s to %s by %s", e.From, e.To, e.Cause)
					}
					l.period++
					l.filed = nil
				},
			}))
			next := 0
			rt.Repeat(map[string]func(*rapid.T){
				"begin": func(rt *rapid.T) {
					if l.places(keeps == nil) == 8 {
						return // no more are sure to be known
					}
					e := &entry{name: next, known: rapid.IntRange(0, 3).Draw(rt, "known") > 0, start: time.Now()}
					next++
					ctx := context.Background()
					if e.known {
						ctx = called(ctx, e.name)
					}
					if e.call, err = g.Admit(ctx, to("up")); err == nil {
						e.period = l.period
						l.inside = append(l.inside, e)
					}
				},
				"end": func(rt *rapid.T) {
					if len(l.inside) == 0 {
						return // nobody is inside
					}
					i := rapid.IntRange(0, len(l.inside)-1).Draw(rt, "which")
					e := l.inside[i]
					l.inside = slices.Delete(l.inside, i, i+1)
					status := rapid.SampledFrom([]int{200, 200, 500, 0}).Draw(rt, "status")
					e.end = time.Now()
					e.failed, e.slow = status == 500, e.end.Sub(e.start) > slowCall
					if status != 0 {
						// Before: the call is one of the reasons of the trip that it causes.
						if e.period == l.period {
							l.filed = append(l.filed, e)
						}
						e.call.SettleStatus(status)
					}
					e.call.Release()
				},
				"sleep": func(rt *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 2500).Draw(rt, "ms")) * time.Millisecond)
				},
				"look": func(*rapid.T) { g.Snapshot() },
			})
			for len(l.inside) > 0 {
				e := l.inside[0]
				l.inside = l.inside[1:]
				e.call.Release()
			}
		})
	})
}
