package watertight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// set makes a set of one policy for the server side, from the rest of its YAML.
func set(t testing.TB, rest string) *policy.Set {
	t.Helper()
	s, err := policy.Parse("test.yaml", []byte("version: 1\npolicies: [{name: p, side: server, "+rest+"}]\n"))
	require.NoError(t, err)
	return s
}

// queued begins n calls, which must all queue, and returns where they tell how they
// fared.
func queued(t *testing.T, g *watertight.Guard, r *policy.Request, n int) <-chan queuedCall {
	t.Helper()
	fared := make(chan queuedCall, n)
	for i := range n {
		go func() {
			c, err := g.Admit(t.Context(), r)
			fared <- queuedCall{i, &c, err}
		}()
		synctest.Wait()
	}
	require.Empty(t, fared)
	return fared
}

type queuedCall struct {
	place int
	call  *watertight.Call
	err   error
}

func TestReloadResizesInPlace(t *testing.T) {
	for _, per := range []string{"route", "policy"} {
		t.Run(per, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := watertight.New(set(t, "per: "+per+", bulkhead: {maxConcurrent: 2, maxWait: 1m}"))
				inside := []*watertight.Call{admit(t, g, on("/a")), admit(t, g, on("/a"))}
				fared := queued(t, g, on("/a"), 5)

				g.Reload(set(t, "per: "+per+", bulkhead: {maxConcurrent: 4, maxWait: 1m}"))
				synctest.Wait()
				require.Len(t, fared, 2, "exactly those who fit")
				for range 2 {
					q := <-fared
					require.NoError(t, q.err)
					require.Less(t, q.place, 2, "the oldest")
					inside = append(inside, q.call)
				}

				g.Reload(set(t, "per: "+per+", bulkhead: {maxConcurrent: 1, maxWait: 1m}"))
				for _, c := range inside[:3] {
					c.Release()
				}
				synctest.Wait()
				require.Empty(t, fared, "one is still inside")
				inside[3].Release()
				synctest.Wait()
				require.Len(t, fared, 1)
				require.Equal(t, 2, (<-fared).place, "they kept their places")
			})
		})
	}
}

// Keys that come later have the new limits, too.
func TestReloadHoldsForKeysToCome(t *testing.T) {
	g := watertight.New(set(t, "bulkhead: {maxConcurrent: 1}"))
	admit(t, g, on("/a"))
	g.Reload(set(t, "bulkhead: {maxConcurrent: 2}"))
	admit(t, g, on("/a"))
	refused(t, g, on("/a"), bulkhead.ErrFull)
	admit(t, g, on("/b"))
	admit(t, g, on("/b"))
	refused(t, g, on("/b"), bulkhead.ErrFull)
}

func TestReloadKeepsBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "breaker: {minCalls: 2, openFor: 10s}"))
		fail := func() {
			c := admit(t, g, on("/a"))
			c.SettleStatus(500)
			c.Release()
		}
		fail()
		g.Reload(set(t, "breaker: {minCalls: 2, openFor: 20s}"))
		fail() // the one before the reload counts
		refused(t, g, on("/a"), breaker.ErrOpen)

		g.Reload(set(t, "breaker: {minCalls: 2, openFor: 5s}"))
		time.Sleep(20*time.Second - 1)
		refused(t, g, on("/a"), breaker.ErrOpen) // the period goes on as it began
		time.Sleep(time.Nanosecond)
		c := admit(t, g, on("/a"))
		assert.Equal(t, "half_open", compartment(t, g, "p", "/a").Breaker.State)
		c.SettleStatus(500)
		c.Release()
	})
}

// What a policy loses lets everybody in; calls that are in count again when it is
// brought back.
func TestReloadTakesABulkheadAndBringsItBack(t *testing.T) {
	const both, watched = "per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1m}, breaker: {}", "per: policy, breaker: {}"
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, both))
		first := admit(t, g, on("/a"))
		fared := queued(t, g, on("/a"), 3)

		g.Reload(set(t, watched))
		synctest.Wait()
		require.Len(t, fared, 3, "nothing is left to wait for")
		require.Nil(t, compartment(t, g, "p", "").Bulkhead)
		admit(t, g, on("/a")).Release()
		for range 3 {
			q := <-fared
			require.NoError(t, q.err)
			q.call.SettleStatus(200)
			q.call.Release()
		}

		g.Reload(set(t, both))
		fared = queued(t, g, on("/a"), 1) // behind the first, which is still in
		first.Release()
		synctest.Wait()
		require.NoError(t, (<-fared).err)
		assert.EqualValues(t, 6, compartment(t, g, "p", "").Granted)
	})
}

func TestReloadTakesABreaker(t *testing.T) {
	g := watertight.New(set(t, "bulkhead: {maxConcurrent: 9}, breaker: {minCalls: 1}"))
	before := admit(t, g, on("/a"))
	g.Reload(set(t, "bulkhead: {maxConcurrent: 9}"))
	before.SettleStatus(500)
	before.Release()
	require.Nil(t, compartment(t, g, "p", "/a").Breaker)
	admit(t, g, on("/a")).Release()

	g.Reload(set(t, "bulkhead: {maxConcurrent: 9}, breaker: {minCalls: 1}"))
	s := compartment(t, g, "p", "/a").Breaker
	require.Equal(t, "closed", s.State)
	require.Zero(t, s.Calls, "it begins anew")
}

// A policy that is gone drains: who is in or waits ends as if nothing had happened,
// and is in the snapshot until then.
func TestReloadDrainsAPolicyThatIsGone(t *testing.T) {
	other, err := policy.Parse("test.yaml", []byte("version: 1\npolicies: [{name: other, side: server, bulkhead: {maxConcurrent: 1}}]\n"))
	require.NoError(t, err)
	for name, to := range map[string]*policy.Set{"another policy": other, "no policy": nil} {
		for _, per := range []string{"route", "policy"} {
			t.Run(name+", per "+per, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := watertight.New(set(t, "per: "+per+", bulkhead: {maxConcurrent: 1, maxWait: 1m}"))
					first := admit(t, g, on("/a"))
					fared := queued(t, g, on("/a"), 1)
					g.Reload(to)
					admit(t, g, on("/a")) // by another policy, or none

					key := map[string]string{"route": "/a", "policy": ""}[per]
					c := compartment(t, g, "p", key)
					require.EqualValues(t, 1, c.InFlight)
					require.Equal(t, 1, c.Bulkhead.Queued)
					first.Release()
					synctest.Wait()
					q := <-fared
					require.NoError(t, q.err)
					require.EqualValues(t, 1, compartment(t, g, "p", key).InFlight)
					q.call.Release()
					for _, c := range g.Snapshot().Compartments {
						require.NotEqual(t, "p", c.Policy)
					}
				})
			})
		}
	}
}

func TestReloadDividesInAnotherWay(t *testing.T) {
	g := watertight.New(set(t, "per: route, bulkhead: {maxConcurrent: 1}"))
	a := admit(t, g, on("/a"))
	g.Reload(set(t, "per: policy, bulkhead: {maxConcurrent: 1}"))
	b := admit(t, g, on("/a"))
	refused(t, g, on("/b"), bulkhead.ErrFull)
	require.EqualValues(t, 1, compartment(t, g, "p", "/a").InFlight)
	a.Release()
	b.Release()
	require.EqualValues(t, 1, compartment(t, g, "p", "").Granted)
}

func TestReloadExempts(t *testing.T) {
	for _, per := range []string{"", "per: policy, "} {
		g := watertight.New(set(t, per+"bulkhead: {maxConcurrent: 1}"))
		admit(t, g, on("/a"))
		g.Reload(set(t, "exempt: true"))
		admit(t, g, on("/a"))
		g.Reload(set(t, per+"bulkhead: {maxConcurrent: 1}"))
		if per != "" { // the same compartment, in which the first call still is
			refused(t, g, on("/a"), bulkhead.ErrFull)
		}
	}
}

func TestReloadBoundsTheTableAnew(t *testing.T) {
	bounded := func(max int) *policy.Set {
		s, err := policy.Parse("test.yaml", fmt.Appendf(nil, "version: 1\ndefaults: {maxCompartments: %d}\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}}]\n", max))
		require.NoError(t, err)
		return s
	}
	g := watertight.New(bounded(10))
	for i := range 10 {
		admit(t, g, on(fmt.Sprintf("/%d", i))).Release()
	}
	g.Reload(bounded(3))
	assert.Len(t, keys(g), 10, "they go when others come")
	admit(t, g, on("/new")).Release()
	assert.Equal(t, []string{"/8", "/9", "/new"}, keys(g))
}

func TestReloadOfDo(t *testing.T) {
	named := func(limit int) *policy.Set {
		s, err := policy.Parse("test.yaml", fmt.Appendf(nil, "version: 1\npolicies: [{name: db, side: client, per: host, match: [{host: db.invalid}], bulkhead: {maxConcurrent: %d}}]\n", limit))
		require.NoError(t, err)
		return s
	}
	g := watertight.New(named(1))
	within := func(context.Context) error {
		require.ErrorIs(t, g.Do(t.Context(), "db", nothing), bulkhead.ErrFull)
		g.Reload(named(2))
		return g.Do(t.Context(), "db", nothing)
	}
	require.NoError(t, g.Do(t.Context(), "db", within))
	require.EqualValues(t, 2, compartment(t, g, "db", "").Granted)

	g.Reload(nil)
	require.ErrorContains(t, g.Do(t.Context(), "db", nothing), `no policy "db"`)
}

// A side that was drained stays so, whatever is loaded.
func TestReloadWhileDraining(t *testing.T) {
	g := watertight.New(set(t, "bulkhead: {maxConcurrent: 1}"))
	require.NoError(t, g.Drain(t.Context()))
	g.Reload(set(t, "per: policy, bulkhead: {maxConcurrent: 1}"))
	refused(t, g, on("/a"), bulkhead.ErrClosed)
	g.Reload(nil)
	refused(t, g, on("/a"), bulkhead.ErrClosed)
}

// While one more waits in a bulkhead, a drain that comes after a reload refuses it
// also where its policy is gone.
func TestDrainRefusesWhoWaitsForAPolicyThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "bulkhead: {maxConcurrent: 1, maxWait: 1m}"))
		first := admit(t, g, on("/a"))
		fared := queued(t, g, on("/a"), 1)
		g.Reload(nil)
		drained := make(chan error)
		go func() { drained <- g.Drain(t.Context()) }()
		synctest.Wait()
		require.ErrorIs(t, (<-fared).err, bulkhead.ErrClosed)
		first.Release()
		require.NoError(t, <-drained)
	})
}

// A bad file changes nothing, and is told of everywhere until it is mended.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	save := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	limit := func(n int) string {
		return fmt.Sprintf("version: 1\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: %d}}]\n", n)
	}
	save(limit(1))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var events []watertight.ReloadEvent
		w, err := policy.Watch(path)
		require.NoError(t, err)
		g := watertight.New(w.Set(), watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			watertight.WithHooks(watertight.Hooks{Reload: func(e watertight.ReloadEvent) { events = append(events, e) }}))
		first := g.Snapshot().Policies
		require.Equal(t, watertight.PolicyStatus{Version: w.Set().Version(), Since: time.Now()}, first)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Follow(ctx, w)
		}()

		admit(t, g, on("/a"))
		refused(t, g, on("/a"), bulkhead.ErrFull)
		saved := time.Now()
		save("version: 1\npolicies: [{name: p, bulkhed: {maxConcurrent: 5}}]\n")
		time.Sleep(10 * time.Second)
		refused(t, g, on("/a"), bulkhead.ErrFull)
		bad := g.Snapshot().Policies
		require.Contains(t, bad.Error, `p.yaml:2:22: policy "p": unknown key "bulkhed"; did you mean "bulkhead"?`)
		require.WithinRange(t, bad.FailingSince, saved, saved.Add(5*time.Second))
		first.Failed, first.Error, first.FailingSince = 1, bad.Error, bad.FailingSince
		require.Equal(t, first, bad)

		save("version: 1\npolicies: [{name: p, bulkhad: {maxConcurrent: 5}}]\n")
		time.Sleep(10 * time.Second)
		worse := g.Snapshot().Policies
		require.Contains(t, worse.Error, "bulkhad")
		require.Equal(t, first.FailingSince, worse.FailingSince, "it has not been well meanwhile")

		save(limit(2))
		time.Sleep(10 * time.Second)
		admit(t, g, on("/a"))
		refused(t, g, on("/a"), bulkhead.ErrFull)
		good := g.Snapshot().Policies
		require.NotEqual(t, first.Version, good.Version)
		require.Equal(t, watertight.PolicyStatus{Version: good.Version, Since: good.Since, Reloads: 1, Failed: 2}, good)
		require.Equal(t, good.Version, g.Policies().Version())

		cancel()
		<-ended
		require.Len(t, events, 3)
		require.Equal(t, first.Version, events[0].Version)
		require.EqualError(t, events[0].Err, bad.Error)
		require.Equal(t, watertight.ReloadEvent{Version: good.Version}, events[2])
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), "level=INFO")
	})
}

// A breaker of which a reload makes a due change visible tells hooks, and these may
// look at the Guard.
func TestReloadCallsHooksThatLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *watertight.Guard
		seen := 0
		look := func() {
			g.Snapshot()
			seen++
		}
		g = watertight.New(set(t, "breaker: {minCalls: 1, openFor: 1s}"), watertight.WithHooks(watertight.Hooks{
			Transition: func(context.Context, watertight.TransitionEvent) { look() },
			Reload:     func(watertight.ReloadEvent) { look() },
		}))
		c := admit(t, g, on("/a"))
		c.SettleStatus(500)
		c.Release()
		time.Sleep(2 * time.Second)
		g.Reload(set(t, "breaker: {minCalls: 2, openFor: 1s}"))
		g.ReloadFailed(errors.New("bad"))
		assert.Equal(t, 3, seen)
	})
}

// Under load and a storm of reloads no permit is granted above the limit of its
// moment, no call is lost, and the counts balance.
func TestReloadUnderLoad(t *testing.T) {
	const reloads, workers = 500, 32
	var over, granted atomic.Int64
	hooks := watertight.Hooks{Grant: func(ctx context.Context, e watertight.GrantEvent) context.Context {
		granted.Add(1)
		if e.InFlight > e.Limit || e.Limit > 8 {
			over.Add(1)
		}
		return nil
	}}
	shapes := []string{
		"per: policy, bulkhead: {maxConcurrent: 8, maxQueue: 10, maxWait: 1m}",
		"per: policy, bulkhead: {maxConcurrent: 2, maxQueue: 10, maxWait: 1m}, breaker: {minCalls: 1000}",
		"per: policy, bulkhead: {maxConcurrent: 5}, breaker: {minCalls: 1000, slowCall: 1m, window: {time: 10s}}",
		"per: policy, bulkhead: {maxConcurrent: 1, maxQueue: 100, maxWait: 1m}, breaker: {minCalls: 1000, slowCall: 1h}",
	}
	sets := make([]*policy.Set, len(shapes))
	for i, s := range shapes {
		sets[i] = set(t, s)
	}
	g := watertight.New(sets[0], watertight.WithHooks(hooks), watertight.WithLogger(slog.New(slog.DiscardHandler)))
	var inside, highest atomic.Int64
	var calls, fine, full atomic.Uint64
	var work sync.WaitGroup
	var reloaded atomic.Bool
	for range workers {
		work.Go(func() {
			for !reloaded.Load() {
				calls.Add(1)
				c, err := g.Admit(t.Context(), on("/a"))
				if err != nil {
					assert.ErrorIs(t, err, bulkhead.ErrFull)
					full.Add(1)
					continue
				}
				n := inside.Add(1)
				for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
				}
				runtime.Gosched()
				c.SettleStatus(200)
				inside.Add(-1)
				c.Release()
				fine.Add(1)
			}
		})
	}
	for n := range reloads {
		g.Reload(sets[n%len(sets)])
		runtime.Gosched()
	}
	reloaded.Store(true)
	work.Wait()

	assert.Zero(t, over.Load())
	assert.LessOrEqual(t, highest.Load(), int64(8))
	c := compartment(t, g, "p", "")
	assert.EqualValues(t, fine.Load(), c.Granted)
	assert.EqualValues(t, fine.Load(), granted.Load())
	assert.EqualValues(t, full.Load(), c.Rejected["full"])
	assert.Equal(t, calls.Load(), fine.Load()+full.Load())
	assert.Positive(t, fine.Load())
	assert.Zero(t, c.InFlight)
	assert.Zero(t, c.Bulkhead.Queued)
}

// A call may be judged by a set that a reload is just taking out of force, and bring a
// key that its policy has not had: what is made for it has all that the set asks for.
func TestReloadUnderNewKeys(t *testing.T) {
	sets := make([]*policy.Set, 3)
	for i, limits := range []string{"bulkhead: {maxConcurrent: 1}, breaker: {}", "bulkhead: {maxConcurrent: 1}", "breaker: {}"} {
		s, err := policy.Parse("test.yaml", []byte("version: 1\ndefaults: {maxCompartments: 20}\npolicies: [{name: p, side: server, "+limits+"}]\n"))
		require.NoError(t, err)
		sets[i] = s
	}
	g := watertight.New(sets[0], watertight.WithLogger(slog.New(slog.DiscardHandler)))
	var reloaded atomic.Bool
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := 0; !reloaded.Load(); n++ {
				c, err := g.Admit(context.Background(), on(fmt.Sprintf("/%d/%d", i, n)))
				assert.NoError(t, err)
				c.SettleStatus(200)
				c.Release()
			}
		})
	}
	for n := range 1000 {
		g.Reload(sets[n%len(sets)])
		runtime.Gosched()
	}
	reloaded.Store(true)
	work.Wait()
	for _, c := range g.Snapshot().Compartments {
		assert.Zero(t, c.InFlight)
	}
}

// Of a client's policy with one compartment Do and HTTP calls have the same.
func TestReloadShowsWhatIsGoneOnce(t *testing.T) {
	g := guard(t, "version: 1\npolicies: [{name: db, side: client, per: policy, bulkhead: {maxConcurrent: 1}}]\n")
	c := admit(t, g, to("db.invalid"))
	g.Reload(nil)
	assert.EqualValues(t, 1, compartment(t, g, "db", "").InFlight)
	c.Release()
}

func TestReloadCountsWhoIsInsideOnBothSidesOfIt(t *testing.T) {
	for _, without := range []string{"breaker: {}", "exempt: true"} {
		g := watertight.New(set(t, "per: policy, bulkhead: {maxConcurrent: 3}"))
		inside := func() int64 { return compartment(t, g, "p", "").InFlight }
		first := admit(t, g, on("/a"))
		g.Reload(set(t, "per: policy, "+without))
		second := admit(t, g, on("/a"))
		assert.EqualValues(t, 2, inside(), "the first has a permit of what is no more")
		g.Reload(set(t, "per: policy, bulkhead: {maxConcurrent: 3}"))
		third := admit(t, g, on("/a"))
		assert.EqualValues(t, 3, inside(), "the second began without one")
		assert.Equal(t, 2, compartment(t, g, "p", "").Bulkhead.InFlight)
		for n, c := range []*watertight.Call{first, second, third} {
			c.Release()
			assert.EqualValues(t, 2-n, inside())
		}
	}
}

// Keys whose breakers are not closed fill a table. When a reload takes these, or holds
// them, the keys make room for others again.
func TestReloadMakesRoom(t *testing.T) {
	bounded := func(breaker string) *policy.Set {
		s, err := policy.Parse("test.yaml", fmt.Appendf(nil, "version: 1\ndefaults: {maxCompartments: 2}\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}%s}]\n", breaker))
		require.NoError(t, err)
		return s
	}
	for _, to := range []string{"", ", breaker: {minCalls: 1, force: closed}"} {
		g := watertight.New(bounded(", breaker: {minCalls: 1}"))
		for _, k := range []string{"/a", "/b"} {
			c := admit(t, g, on(k))
			c.SettleStatus(500)
			c.Release()
		}
		admit(t, g, on("/c")).Release()
		g.Reload(bounded(", breaker: {minCalls: 1}"))
		admit(t, g, on("/c")).Release()
		require.Equal(t, []string{"(overflow)", "/a", "/b"}, keys(g), "these are open")
		g.Reload(bounded(to))
		admit(t, g, on("/c")).Release()
		admit(t, g, on("/d")).Release()
		assert.Equal(t, []string{"(overflow)", "/c", "/d"}, keys(g))
	}
}

// A snapshot is of before a reload or of after it: whoever is inside is in it, once.
func TestReloadIsNotSeenByHalves(t *testing.T) {
	sets := []*policy.Set{set(t, "per: route, bulkhead: {maxConcurrent: 1}"), set(t, "per: policy, bulkhead: {maxConcurrent: 1}")}
	g := watertight.New(sets[0], watertight.WithLogger(slog.New(slog.DiscardHandler)))
	var begun, inside atomic.Int64
	var done atomic.Bool
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for !done.Load() {
				least, n := inside.Load(), int64(0)
				for _, c := range g.Snapshot().Compartments {
					n += c.InFlight
				}
				assert.LessOrEqual(t, least, n, "all are there")
				assert.LessOrEqual(t, n, begun.Load(), "once")
			}
		})
	}
	for i := range 150 {
		begun.Add(1)
		admit(t, g, on("/")) // stays
		inside.Add(1)
		g.Reload(sets[(i+1)%len(sets)])
	}
	done.Store(true)
	work.Wait()
}
