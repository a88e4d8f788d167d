package watertight_test

import (
	"context"
	"encoding/json"
	"log/slog"
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
)

const pictured = `
version: 1
policies:
  - {name: health, match: [{path: /healthz}], exempt: true}
  - {name: watch, side: client, per: policy, breaker: {minCalls: 2, window: {calls: 4}, openFor: 1500ms, slowCall: 1s}}
  - {name: all, bulkhead: {maxConcurrent: 2, maxQueue: 1, maxWait: 1s}}
`

// What others read, they read by these names.
func TestSnapshotJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, pictured, watertight.WithLogger(slog.New(slog.DiscardHandler)))
		picture := func() string {
			text, err := json.Marshal(g.Snapshot())
			require.NoError(t, err)
			return string(text)
		}
		began := time.Now().Format(time.RFC3339) // wherever the test runs
		policies := `"policies": {"version": "` + g.Policies().Version() + `", "since": "` + began + `", "reloads": 0, "failed": 0}`
		assert.JSONEq(t, `{"version": 1, `+policies+`, "compartments": [], "transitions": [], "draining": false, "closed": false}`, picture())

		a, b := admit(t, g, to("a")), admit(t, g, to("a"))
		go func() {
			_, err := g.Admit(t.Context(), to("a"))
			assert.ErrorIs(t, err, breaker.ErrOpen)
		}()
		synctest.Wait()
		refused(t, g, to("a"), bulkhead.ErrFull)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Admit(dead, to("a"))
		require.ErrorIs(t, err, context.Canceled)
		health := admit(t, g, on("/healthz"))
		slash := admit(t, g, on("/"))
		a.SettleFailure()
		b.SettleStatus(200)
		time.Sleep(999*time.Millisecond + 1)

		assert.JSONEq(t, `{"version": 1, `+policies+`, "compartments": [
			{"policy": "health", "side": "server", "per": "policy", "key": "", "granted": 1,
				"rejected": {"full": 0, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 0, "leaked": 0, "inFlight": 1},
			{"policy": "watch", "side": "client", "per": "policy", "key": "", "granted": 0,
				"rejected": {"full": 0, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 0, "leaked": 0, "trips": 1, "inFlight": 0,
				"breaker": {"state": "open", "failureRate": 50, "slowCallRate": 0, "calls": 2, "openRemainingMs": 501, "overdue": 0, "probesLeft": 0, "attempt": 1,
					"maxFailureRate": 50, "maxSlowCallRate": 80, "slowCallMs": 1000, "minCalls": 2, "probes": 10, "failed": 1, "slow": 0, "last":
						{"time": "`+began+`", "policy": "watch", "side": "client", "key": "", "from": "closed", "to": "open", "cause": "failure_rate",
							"failureRate": 50, "slowCallRate": 0, "calls": 2, "overdue": 0, "openForMs": 1500}}},
			{"policy": "all", "side": "server", "per": "route", "key": "/", "granted": 1,
				"rejected": {"full": 0, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 0, "leaked": 0, "inFlight": 1,
				"bulkhead": {"limit": 2, "inFlight": 1, "queued": 0, "peak": 1, "maxQueue": 1, "maxWaitMs": 1000}},
			{"policy": "all", "side": "client", "per": "host", "key": "http://a:80", "granted": 2,
				"rejected": {"full": 1, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 1, "leaked": 0, "inFlight": 2,
				"bulkhead": {"limit": 2, "inFlight": 2, "queued": 1, "peak": 2, "maxQueue": 1, "maxWaitMs": 1000, "pressedSince": "`+began+`"}}
		], "transitions": [
			{"time": "`+began+`", "policy": "watch", "side": "client", "key": "", "from": "closed", "to": "open", "cause": "failure_rate",
				"failureRate": 50, "slowCallRate": 0, "calls": 2, "overdue": 0, "openForMs": 1500}
		], "draining": false, "closed": false}`, picture())

		slash.Release()
		health.Release()
		b.Leak()
		a.Release()
		synctest.Wait()
		all := compartment(t, g, "all", "http://a:80")
		assert.EqualValues(t, 1, all.Leaked)
		assert.EqualValues(t, 1, compartment(t, g, "watch", "").Rejected["open"])
	})
}

// Rounded up, so that 0 means now.
func TestSnapshotTellsTheTimeLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, pictured)
		for range 2 {
			c := admit(t, g, to("a"))
			c.SettleFailure()
			c.Release()
		}
		left := func() int64 { return compartment(t, g, "watch", "").Breaker.OpenRemainingMs }
		assert.EqualValues(t, 1500, left())
		time.Sleep(time.Nanosecond)
		assert.EqualValues(t, 1500, left())
		time.Sleep(1499*time.Millisecond - 1)
		assert.EqualValues(t, 1, left())
		time.Sleep(time.Millisecond - 1)
		assert.EqualValues(t, 1, left())
		time.Sleep(time.Nanosecond)
		assert.EqualValues(t, 0, left())
		assert.Equal(t, "open", compartment(t, g, "watch", "").Breaker.State, "until a call asks")
		probe := admit(t, g, to("a"))
		assert.Equal(t, "half_open", compartment(t, g, "watch", "").Breaker.State)
		probe.Release()
	})
}

func TestSnapshotOrder(t *testing.T) {
	g := guard(t, pictured)
	for _, host := range []string{"b", "a", "c"} {
		admit(t, g, to(host)).Release()
	}
	admit(t, g, on("/z")).Release()
	admit(t, g, on("/y")).Release()
	none := on("")
	admit(t, g, none).Release()
	admit(t, g, on("/healthz")).Release()
	var order []string
	for _, c := range g.Snapshot().Compartments {
		order = append(order, c.Policy+" "+c.Side+" "+c.Key)
	}
	assert.Equal(t, []string{
		"health server ",
		"watch client ",
		"all server /y", "all server /z",
		"all client http://a:80", "all client http://b:80", "all client http://c:80",
		"(unmatched) server ",
	}, order)
}

// A compartment shows as soon as a call has met it, also one whose breaker
// watches while another's bulkhead counts.
func TestSnapshotShowsWhatCallsHaveMet(t *testing.T) {
	policies := func(g *watertight.Guard) (names []string) {
		for _, c := range g.Snapshot().Compartments {
			names = append(names, c.Policy+" "+c.Side)
		}
		return names
	}
	g := guard(t, pictured)
	assert.Empty(t, policies(g))
	c := admit(t, g, to("a"))
	assert.Equal(t, []string{"watch client", "all client"}, policies(g))
	c.Release()
	assert.Equal(t, []string{"watch client", "all client"}, policies(g))

	dead, cancel := context.WithCancel(t.Context())
	cancel()
	g = guard(t, `
version: 1
policies: [{name: all, per: policy, breaker: {}}]
`)
	_, err := g.Admit(dead, to("a"))
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"all client"}, policies(g))
	require.NoError(t, g.Drain(t.Context()))
	refused(t, g, on("/"), bulkhead.ErrClosed)
	assert.Equal(t, []string{"all server", "all client"}, policies(g))
}

// Looking is no use of a compartment: it neither keeps one from being dropped nor
// changes whose turn it is.
func TestSnapshotKeepsNothingInTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, small)
		for _, host := range []string{"a", "b", "c"} {
			admit(t, g, to(host)).Release()
			time.Sleep(time.Second)
		}
		for range 3 {
			_ = g.Snapshot()
		}
		admit(t, g, to("d")).Release()
		assert.Equal(t, []string{"b", "c", "d"}, keys(g))
		time.Sleep(time.Minute)
		_ = g.Snapshot()
		time.Sleep(time.Nanosecond)
		admit(t, g, to("e")).Release()
		assert.Equal(t, []string{"e"}, keys(g))
	})
}

// E68: figures read in the middle of things are never impossible, and counts
// never fall.
func TestSnapshotUnderLoad(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: all, side: server, per: policy, bulkhead: {maxConcurrent: 3, maxQueue: 2, maxWait: 1ms}, breaker: {slowCall: 1h}}
`)
	const goroutines, each = 8, 1_000
	var wg sync.WaitGroup
	var running atomic.Int64
	for n := range goroutines {
		running.Add(1)
		wg.Go(func() {
			defer running.Add(-1)
			for i := range each {
				r := on("/")
				if i%4 == n%4 {
					r = on("/healthz")
				}
				if c, err := g.Admit(context.Background(), r); err == nil {
					_ = g.Ready()
					c.SettleStatus(200)
					c.Release()
				}
			}
		})
	}
	before := make(map[string]watertight.CompartmentSnapshot)
	sum := func(c watertight.CompartmentSnapshot) uint64 {
		n := c.Granted + c.Left
		for _, r := range c.Rejected {
			n += r
		}
		return n
	}
	for running.Load() > 0 {
		for _, c := range g.Snapshot().Compartments {
			b := before[c.Policy]
			require.GreaterOrEqual(t, c.Granted, b.Granted)
			require.GreaterOrEqual(t, sum(c), sum(b))
			require.GreaterOrEqual(t, c.InFlight, int64(0))
			if c.Bulkhead != nil {
				require.EqualValues(t, c.InFlight, c.Bulkhead.InFlight)
				require.LessOrEqual(t, c.Bulkhead.InFlight, 3)
				require.LessOrEqual(t, c.Bulkhead.Peak, 3)
				require.LessOrEqual(t, c.Bulkhead.Queued, 2)
				require.True(t, c.Bulkhead.Queued == 0 || c.Bulkhead.InFlight == 3, "nobody waits for a free permit")
			}
			before[c.Policy] = c
		}
	}
	wg.Wait()
	var total uint64
	for _, c := range g.Snapshot().Compartments {
		assert.Zero(t, c.InFlight)
		total += sum(c)
	}
	assert.EqualValues(t, goroutines*each, total)
}
