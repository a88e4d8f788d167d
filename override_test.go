package watertight_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// overridable has a policy for every purpose; none and spare match nothing.
const overridable = `
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: spare
    match: [{method: [NONE]}]
    per: policy
    bulkhead: {maxConcurrent: 1}
  - name: watch
    match: [{method: [NONE]}]
    per: policy
    breaker: {minCalls: 1}
  - name: servers
    side: server
    match: [{method: [NONE]}]
    bulkhead: {maxConcurrent: 1}
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1}
    breaker: {minCalls: 1}
`

func under(t *testing.T, ctx context.Context, g *watertight.Guard, r *policy.Request) *watertight.Call {
	t.Helper()
	c, err := g.Admit(ctx, r)
	require.NoError(t, err)
	t.Cleanup(c.Release)
	return &c
}

// A context lets calls of its side past every limit, and no others.
func TestWithoutLimitsIsForOneSide(t *testing.T) {
	for _, test := range []struct {
		side           policy.Side
		server, client bool
	}{
		{policy.Server, true, false},
		{policy.Client, false, true},
		{policy.Both, true, true},
	} {
		t.Run(test.side.String(), func(t *testing.T) {
			g := guard(t, overridable)
			admit(t, g, on("/a"))
			admit(t, g, to("a"))
			ctx := watertight.WithoutLimits(t.Context(), test.side)
			for r, free := range map[*policy.Request]bool{on("/a"): test.server, to("a"): test.client} {
				c, err := g.Admit(ctx, r)
				if free {
					require.NoError(t, err, r.Side)
					c.Release()
				} else {
					require.ErrorIs(t, err, bulkhead.ErrFull, r.Side)
				}
			}
		})
	}
}

// Whatever stands in its way, an unlimited call passes, is counted apart, and
// nothing hears of its outcome.
func TestWithoutLimitsPassesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the time left open stands still
		g := guard(t, overridable)
		held := admit(t, g, to("a"))
		held.SettleFailure()
		refused(t, g, to("a"), breaker.ErrOpen)
		before := compartment(t, g, "all", "")

		ctx, cancel := context.WithCancel(watertight.WithoutLimits(t.Context(), policy.Client))
		cancel() // as for an exempt call, nobody looks
		c := under(t, ctx, g, to("a"))
		assert.False(t, c.Watched())
		c.SettleFailure()
		assert.EqualValues(t, 1, compartment(t, g, "(exempt)", "").InFlight)
		assert.EqualValues(t, 1, compartment(t, g, "(exempt)", "").Granted)
		c.Release()
		assert.Zero(t, compartment(t, g, "(exempt)", "").InFlight)
		assert.Equal(t, before, compartment(t, g, "all", ""))

		held.Release()
		require.NoError(t, g.Drain(t.Context()))
		under(t, ctx, g, to("a")).Release()
		require.NoError(t, g.Do(ctx, "all", func(context.Context) error { return nil }), "so does Do")
		require.ErrorIs(t, g.Do(t.Context(), "all", func(context.Context) error { return nil }), bulkhead.ErrClosed)
		assert.EqualValues(t, 3, compartment(t, g, "(exempt)", "").Granted)
	})
}

// An outcome that Do would file goes nowhere, and a panic gives everything back.
func TestDoWithoutLimits(t *testing.T) {
	g := guard(t, overridable)
	ctx := watertight.WithoutLimits(t.Context(), policy.Client)
	boom := errors.New("boom")
	assert.Same(t, boom, g.Do(ctx, "all", func(context.Context) error { return boom }))
	assert.PanicsWithValue(t, boom, func() {
		_ = g.Do(ctx, "all", func(context.Context) error { panic(boom) })
	})
	assert.Zero(t, compartment(t, g, "(exempt)", "").InFlight)
	require.NoError(t, g.Do(t.Context(), "all", func(context.Context) error { return nil }), "the breaker is closed")
	assert.Error(t, g.Do(ctx, "none", func(context.Context) error { return nil }), "a name that there is not stays an error")
}

// A named policy stands in for those that match, with what it has.
func TestWithPolicyStandsFirst(t *testing.T) {
	g := guard(t, overridable)
	named := func(name string) context.Context {
		return watertight.WithPolicy(t.Context(), policy.Client, name)
	}

	// A bulkhead of its own; the breaker stays that of the policy that matches.
	first := under(t, named("spare"), g, to("a"))
	assert.Equal(t, 1, compartment(t, g, "spare", "").Bulkhead.InFlight)
	assert.Zero(t, compartment(t, g, "all", "").Bulkhead.InFlight)
	_, err := g.Admit(named("spare"), to("a"))
	var rejected *watertight.RejectedError
	require.ErrorAs(t, err, &rejected)
	assert.Equal(t, "spare", rejected.Policy)
	first.SettleFailure()
	refused(t, g, to("a"), breaker.ErrOpen)

	// A breaker of its own; the bulkhead stays.
	second := under(t, named("watch"), g, to("a"))
	assert.Equal(t, 1, compartment(t, g, "all", "").Bulkhead.InFlight)
	second.Release()

	// An exempt one.
	under(t, named("health"), g, to("a")).Release()
	assert.EqualValues(t, 1, compartment(t, g, "health", "").Granted)

	// On the other side nothing has changed.
	under(t, named("health"), g, on("/a"))
	_, err = g.Admit(named("health"), on("/a"))
	assert.ErrorIs(t, err, bulkhead.ErrFull)
}

// What matches nothing by itself is limited by the policy that is named, but what
// no route serves is not.
func TestWithPolicyLimitsWhatNothingMatches(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: batch
    side: server
    match: [{path: "/batch/{id}"}]
    bulkhead: {maxConcurrent: 1}
`)
	ctx := watertight.WithPolicy(t.Context(), policy.Server, "batch")
	under(t, ctx, g, on("/a"))
	assert.Equal(t, 1, compartment(t, g, "batch", "/a").Bulkhead.InFlight)
	_, err := g.Admit(ctx, on("/a"))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	under(t, ctx, g, on(""))
	assert.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted)

	// Without a router: in the compartment of its own requests, if it is one.
	unknown := func(path string) *policy.Request {
		return &policy.Request{Side: policy.Server, EscapedPath: path}
	}
	under(t, ctx, g, unknown("/batch/1"))
	refused(t, g, unknown("/batch/2"), bulkhead.ErrFull)
	under(t, ctx, g, unknown("/c"))
	assert.Equal(t, 1, compartment(t, g, "batch", "").Bulkhead.InFlight)
}

// The innermost word holds, for its side, and the empty name takes it back.
func TestInnermostOverrideHolds(t *testing.T) {
	g := guard(t, overridable)
	counted := func(ctx context.Context, r *policy.Request) string {
		before := make(map[string]uint64)
		for _, c := range g.Snapshot().Compartments {
			before[c.Policy+c.Side] = c.Granted
		}
		c, err := g.Admit(ctx, r)
		require.NoError(t, err)
		c.Release()
		var in []string
		for _, c := range g.Snapshot().Compartments {
			if c.Granted != before[c.Policy+c.Side] {
				in = append(in, c.Policy)
			}
		}
		return strings.Join(in, ",")
	}
	ctx := t.Context()
	for _, step := range []struct {
		derive         func(context.Context) context.Context
		server, client string
	}{
		{func(ctx context.Context) context.Context { return ctx }, "all", "all"},
		{func(ctx context.Context) context.Context { return watertight.WithoutLimits(ctx, policy.Both) }, "(exempt)", "(exempt)"},
		{func(ctx context.Context) context.Context { return watertight.WithPolicy(ctx, policy.Client, "spare") }, "(exempt)", "spare"},
		{func(ctx context.Context) context.Context { return watertight.WithPolicy(ctx, policy.Server, "health") }, "health", "spare"},
		{func(ctx context.Context) context.Context { return watertight.WithPolicy(ctx, policy.Server, "") }, "all", "spare"},
		{func(ctx context.Context) context.Context { return watertight.WithoutLimits(ctx, policy.Client) }, "all", "(exempt)"},
		{func(ctx context.Context) context.Context { return watertight.WithPolicy(ctx, policy.Both, "") }, "all", "all"},
	} {
		ctx = step.derive(ctx)
		assert.Equal(t, step.server, counted(ctx, on("/a")))
		assert.Equal(t, step.client, counted(ctx, to("a")))
	}
}

// A name that there is not limits as if nothing had been said, and is logged
// once, not for each request that carries it.
func TestWithPolicyOfNoSuchName(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	g := guard(t, overridable, watertight.WithLogger(logger))
	for name, r := range map[string]*policy.Request{"nobody": on("/a"), "servers": to("a")} {
		held := under(t, watertight.WithPolicy(t.Context(), policy.Both, name), g, r)
		_, err := g.Admit(watertight.WithPolicy(t.Context(), policy.Both, name), r)
		require.ErrorIs(t, err, bulkhead.ErrFull, name)
		held.Release()
	}
	assert.Equal(t, 1, strings.Count(log.String(), "WithPolicy names a policy that this side does not have"), log.String())
}

func TestOverrideForNoSide(t *testing.T) {
	assert.PanicsWithValue(t, "watertight: an override for no side: Side(7)", func() {
		watertight.WithoutLimits(t.Context(), policy.Side(7))
	})
}

// A nested handler sees what the outer one saw, and an exempt request is counted
// once however often it meets the Guard.
func TestWithoutLimitsCountsOnce(t *testing.T) {
	g := guard(t, overridable)
	g.Wrapped()
	g.Wrapped()
	outer := under(t, watertight.WithoutLimits(t.Context(), policy.Server), g, on("/a"))
	ctx, _ := outer.MarkedContext()
	under(t, ctx, g, on("/a")).Release()
	assert.EqualValues(t, 1, compartment(t, g, "(exempt)", "").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "(exempt)", "").InFlight)

	// Let in without limits, and limited again further in.
	within := under(t, watertight.WithPolicy(ctx, policy.Server, ""), g, on("/a"))
	assert.Equal(t, 1, compartment(t, g, "all", "").Bulkhead.InFlight)
	within.Release()
}

// Asking a context costs no allocation.
func TestOverridesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g := guard(t, overridable)
	for name, ctx := range map[string]context.Context{
		"none":      t.Context(),
		"unlimited": watertight.WithoutLimits(t.Context(), policy.Client),
		"named":     watertight.WithPolicy(t.Context(), policy.Client, "spare"),
	} {
		req := to("a")
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			c, err := g.Admit(ctx, req)
			if err != nil {
				t.Error(err)
			}
			c.Release()
		}), name)
	}
}
