package watertight_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

const twoKeys = `
version: 1
defaults: {maxCompartments: 2, idle: 1m}
policies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}}]
`

// tableHooks appends what it hears of tables, as text.
func tableHooks(told *[]string) watertight.Option {
	return watertight.WithHooks(watertight.Hooks{
		Evict: func(_ context.Context, e watertight.EvictEvent) {
			*told = append(*told, fmt.Sprint("evict ", e.Policy, " ", e.Side, " ", e.Key, " ", e.Cause, " ", e.Rested))
		},
		Overflow: func(_ context.Context, e watertight.OverflowEvent) {
			*told = append(*told, fmt.Sprint("overflow ", e.Policy, " ", e.Key, " ", e.Began, " ", e.Max))
		},
	})
}

func TestHooksHearOfEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		g := guard(t, twoKeys, tableHooks(&told))
		admit(t, g, on("/a")).Release()
		time.Sleep(time.Second)
		admit(t, g, on("/b")).Release()
		require.Empty(t, told)
		time.Sleep(time.Second)
		admit(t, g, on("/c")).Release()
		require.Equal(t, []string{"evict p server /a bound 2s"}, told)
		time.Sleep(time.Minute)
		admit(t, g, on("/d")).Release()
		require.Equal(t, []string{"evict p server /b idle 1m1s"}, told[1:])
		time.Sleep(time.Nanosecond)
		admit(t, g, on("/e")).Release()
		require.Equal(t, []string{"evict p server /c idle 1m0.000000001s"}, told[2:])
		require.EqualValues(t, 3, g.Snapshot().Dropped[0].Evicted)
	})
}

// A compartment rests when nothing is in flight in it, however long a hook takes to hear
// of that; while the hook runs, it stays.
func TestRestBeginsWithThePermitsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		slow := watertight.WithHooks(watertight.Hooks{
			Release: func(_ context.Context, e watertight.ReleaseEvent) {
				if e.Key == "/a" {
					time.Sleep(10 * time.Second)
				}
			},
		})
		g := guard(t, twoKeys, slow, tableHooks(&told))
		a := admit(t, g, on("/a"))
		go a.Release()
		synctest.Wait()
		b := admit(t, g, on("/b"))
		admit(t, g, on("/c")).Release()
		require.Equal(t, []string{"overflow p (overflow) true 2"}, told)
		time.Sleep(11 * time.Second)
		admit(t, g, on("/c")).Release()
		require.Equal(t, []string{"evict p server /a bound 11s", "overflow p (overflow) false 2"}, told[1:])
		b.Release()
	})
}

// Of several calls the last to give back begins the rest, though a hook keeps another
// for longer.
func TestRestBeginsWithTheLastReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		for _, order := range []string{"kept, quick", "quick, kept"} {
			told = nil
			slow := watertight.WithHooks(watertight.Hooks{
				Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context { return ctx },
				Release: func(ctx context.Context, _ watertight.ReleaseEvent) {
					if ctx.Value(keptKey{}) != nil {
						time.Sleep(10 * time.Second)
					}
				},
			})
			g := guard(t, strings.Replace(twoKeys, "maxConcurrent: 1", "maxConcurrent: 2", 1), slow, tableHooks(&told))
			kept, err := g.Admit(context.WithValue(t.Context(), keptKey{}, true), on("/a"))
			require.NoError(t, err)
			quick := admit(t, g, on("/a"))
			first, last := kept.Release, quick.Release
			if order == "quick, kept" {
				first, last = last, first
			}
			go first()
			time.Sleep(5 * time.Second)
			go last()
			time.Sleep(16 * time.Second)
			admit(t, g, on("/b")).Release()
			admit(t, g, on("/c")).Release()
			require.Equal(t, []string{"evict p server /a bound 16s"}, told, order)
		}
	})
}

type keptKey struct{}

// What begins is told once, however many keys share, and so is the end; a key that finds
// its compartment says nothing of either.
func TestHooksHearOfTheOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		g := guard(t, twoKeys, tableHooks(&told))
		a, b := admit(t, g, on("/a")), admit(t, g, on("/b"))
		require.Empty(t, told)
		c := admit(t, g, on("/c"))
		require.Equal(t, []string{"overflow p (overflow) true 2"}, told)
		_, err := g.Admit(t.Context(), on("/d"))
		require.Error(t, err)
		a.Release()
		admit(t, g, on("/a")).Release()
		require.Len(t, told, 1)
		c.Release()
		admit(t, g, on("/c")).Release()
		require.Equal(t, []string{"evict p server /a bound 0s", "overflow p (overflow) false 2"}, told[1:])
		admit(t, g, on("/e")).Release()
		require.Equal(t, []string{"evict p server /c bound 0s"}, told[3:])
		b.Release()
	})
}

// A call that has two new keys tells of both tables, with the context that Arrive made;
// of one that has left already there is only its own.
func TestTableHooksHaveTheContextOfTheCall(t *testing.T) {
	type key struct{}
	var seen []any
	g := guard(t, `
version: 1
defaults: {maxCompartments: 1}
policies:
  - {name: b, side: server, bulkhead: {maxConcurrent: 1}}
  - {name: c, side: server, breaker: {}}
`, watertight.WithHooks(watertight.Hooks{
		Arrive: func(ctx context.Context, _ *policy.Request) context.Context {
			return context.WithValue(ctx, key{}, "arrived")
		},
		Evict: func(ctx context.Context, e watertight.EvictEvent) { seen = append(seen, e.Policy, ctx.Value(key{})) },
	}))
	admit(t, g, on("/a")).Release()
	admit(t, g, on("/b")).Release()
	assert.Equal(t, []any{"c", "arrived", "b", "arrived"}, seen)
	gone, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "own"))
	cancel()
	_, err := g.Admit(gone, on("/c"))
	require.Equal(t, context.Canceled, err)
	assert.Equal(t, []any{"c", "own", "b", "own"}, seen[4:])
}

// A request that is in its compartment already may make room on its way to it.
func TestHooksHearOfWhatARequestDroppedThatIsInsideAlready(t *testing.T) {
	var told []string
	g := guard(t, twoKeys, tableHooks(&told))
	g.Wrapped()
	g.Wrapped()
	a, b := admit(t, g, on("/a")), admit(t, g, on("/b"))
	c := admit(t, g, on("/c"))
	inside, _ := c.MarkedContext()
	b.Release()
	g.Reload(parse(t, strings.Replace(twoKeys, "maxCompartments: 2", "maxCompartments: 1", 1)))
	told = nil
	further, err := g.Admit(inside, on("/c"))
	require.NoError(t, err)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "evict p server /b bound")
	further.Release()
	c.Release()
	a.Release()
}

// The hooks run without the table's lock, and each compartment that goes is told of once.
func TestTableHooksMayComeBack(t *testing.T) {
	var g *watertight.Guard
	var evicted, began, ended atomic.Int64
	g = guard(t, twoKeys, watertight.WithHooks(watertight.Hooks{
		Evict: func(ctx context.Context, e watertight.EvictEvent) {
			evicted.Add(1)
			g.Snapshot()
			if c, err := g.Admit(ctx, on(e.Key)); err == nil {
				c.Release()
			}
		},
		Overflow: func(ctx context.Context, e watertight.OverflowEvent) {
			g.Snapshot()
			if e.Began {
				began.Add(1)
			} else {
				ended.Add(1)
			}
		},
	}))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				if c, err := g.Admit(t.Context(), on(fmt.Sprint("/", (i+n)%5))); err == nil {
					c.Release()
				}
			}
		})
	}
	wg.Wait()
	var counted int64
	for _, d := range g.Snapshot().Dropped {
		counted += int64(d.Evicted)
	}
	assert.Positive(t, counted)
	assert.Equal(t, counted, evicted.Load())
	assert.Contains(t, []int64{0, 1}, began.Load()-ended.Load())
}
