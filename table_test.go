package watertight_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
)

const small = `
version: 1
defaults: {maxCompartments: 3, idle: 1m}
policies:
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 1}
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}
`

// keys returns the hosts that have a compartment of their own, and (overflow).
func keys(g *watertight.Guard) []string {
	var ks []string
	for _, c := range g.Snapshot().Compartments {
		ks = append(ks, strings.TrimSuffix(strings.TrimPrefix(c.Key, "http://"), ":80"))
	}
	return ks
}

func TestTableDropsTheLongestAtRestAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, small)
		for _, host := range []string{"a", "b", "c", "a"} { // b has now rested longest
			admit(t, g, to(host)).Release()
			time.Sleep(time.Second)
		}
		admit(t, g, to("d")).Release()
		assert.Equal(t, []string{"a", "c", "d"}, keys(g))
	})
}

func TestTableDropsThoseIdleOnInsert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, small)
		admit(t, g, to("a")).Release()
		held := admit(t, g, to("b"))
		time.Sleep(time.Minute)
		admit(t, g, to("c")).Release()
		assert.Equal(t, []string{"a", "b", "c"}, keys(g), "idle is when it is exceeded")
		time.Sleep(time.Minute + 1)
		admit(t, g, to("d")).Release()
		assert.Equal(t, []string{"b", "d"}, keys(g), "what is in use stays")
		held.Release()
	})
}

// E53: one in use, or whose breaker is not closed, is never dropped; new keys
// share the overflow compartment then, and only then.
func TestTableOverflowsOnlyWhenNothingIsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, small)
		a, b := admit(t, g, to("a")), admit(t, g, to("b"))
		c := admit(t, g, to("c"))
		c.SettleFailure()
		c.Release() // open, hence not at rest
		x := admit(t, g, to("x"))
		assert.Equal(t, []string{"(overflow)", "a", "b", "c"}, keys(g))
		rej := refused(t, g, to("y"), bulkhead.ErrFull)
		assert.Equal(t, "(overflow)", rej.Key)
		refused(t, g, to("a"), bulkhead.ErrFull)
		refused(t, g, to("c"), breaker.ErrOpen)

		a.Release()
		y := admit(t, g, to("y")) // takes a's place, out of the overflow
		assert.Equal(t, []string{"(overflow)", "b", "c", "y"}, keys(g))
		x.Release()
		y.Release()
		b.Release()

		time.Sleep(time.Second)
		probe := admit(t, g, to("c"))
		probe.SettleStatus(200)
		probe.Release() // closed: at rest again
		for _, host := range []string{"1", "2", "3"} {
			admit(t, g, to(host)).Release()
		}
		assert.Equal(t, []string{"(overflow)", "1", "2", "3"}, keys(g))
	})
}

// Whether a breaker is closed is asked when its compartment is about to go. That
// can change its state, of which listeners hear, and they may ask anything.
func TestTableAsksBreakersWhoseListenersAskBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *watertight.Guard
		var heard []breaker.State
		g = guard(t, `
version: 1
defaults: {maxCompartments: 1}
policies:
  - {name: hosts, side: client, breaker: {minCalls: 1, openFor: 1s, halfOpen: {maxWait: 1s}}}
`, watertight.WithHooks(watertight.Hooks{
			Transition: func(_ context.Context, e watertight.TransitionEvent) {
				heard = append(heard, e.To)
				assert.NotEmpty(t, g.Snapshot().Compartments)
				if c, err := g.Admit(t.Context(), to("c")); err == nil {
					c.Release()
				}
			},
		}))
		c := admit(t, g, to("a"))
		c.SettleFailure()
		c.Release()
		time.Sleep(time.Second)
		admit(t, g, to("a")).Release() // a probe that says nothing
		time.Sleep(time.Second)
		admit(t, g, to("b")).Release()
		assert.Equal(t, []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Open}, heard)
		assert.Equal(t, []string{"(overflow)", "a"}, keys(g))
	})
}

// A call that comes to a compartment while it is asked whether it may go keeps
// it, and all others in their places.
func TestTableKeepsACompartmentThatIsEnteredWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *watertight.Guard
		var asked bool
		var entered watertight.Call
		g = guard(t, `
version: 1
defaults: {maxCompartments: 2}
policies:
  - {name: hosts, side: client, breaker: {minCalls: 1, openFor: 1s, halfOpen: {maxWait: 1s}}}
`, watertight.WithHooks(watertight.Hooks{
			Transition: func(_ context.Context, e watertight.TransitionEvent) {
				if e.Cause == breaker.CauseHalfOpenElapsed {
					asked = true
					var err error
					entered, err = g.Admit(t.Context(), to("a"))
					require.NoError(t, err)
				}
			},
		}))
		c := admit(t, g, to("a"))
		c.SettleFailure()
		c.Release()
		time.Sleep(time.Second)
		admit(t, g, to("a")).Release() // a probe that says nothing
		time.Sleep(time.Second)
		admit(t, g, to("x")).Release()
		time.Sleep(time.Minute)
		admit(t, g, to("b")).Release() // asks a, which has rested longest, and then takes the place of x
		require.True(t, asked)
		assert.Equal(t, []string{"a", "b"}, keys(g))
		entered.Release()
	})
}

// E53: any number of keys, a bounded table, no goroutine for any of them.
func TestTableStaysBounded(t *testing.T) {
	g := guard(t, `
version: 1
defaults: {maxCompartments: 1000}
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1, maxWait: 1s}, breaker: {}}
  - {name: tenants, side: server, per: host, bulkhead: {maxConcurrent: 1}}
`)
	before := runtime.NumGoroutine()
	for i := range 100_000 {
		admit(t, g, to(fmt.Sprintf("host%d", i))).Release()
	}
	assert.Len(t, g.Snapshot().Compartments, 1000)
	noMoreGoroutinesThan(t, before)

	long := on("/")
	long.Host = strings.Repeat("x", 100_000)
	held := admit(t, g, long)
	refused(t, g, long, bulkhead.ErrFull)
	held.Release()
	for _, c := range g.Snapshot().Compartments {
		assert.Less(t, len(c.Key), 300, "a key as long as the caller likes is not kept")
	}
}

// noMoreGoroutinesThan gives those that have done their work the time to end.
func noMoreGoroutinesThan(t *testing.T, before int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestHostKeys(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}}
`)
	for _, same := range [][]string{{"EXAMPLE.com", "example.com", "example.com:80", "example.com."}, {"[::1]", "[::1]:80"}} {
		held := admit(t, g, to(same[0]))
		for _, host := range same {
			refused(t, g, to(host), bulkhead.ErrFull)
		}
		https := to(same[0])
		https.Scheme = "https"
		admit(t, g, https).Release()
		held.Release()
	}
	_, err := g.Admit(t.Context(), to("example.com:81"))
	require.NoError(t, err)
}
