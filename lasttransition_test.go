package watertight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

func TestSnapshotTellsOfTheBreakersLatestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := policy.Parse("test.yaml", []byte(`
version: 1
policies:
  - {name: payments, side: client, per: policy, breaker: {failureRate: 50, minCalls: 2, openFor: 5s, halfOpen: {calls: 3}}}
`))
		require.NoError(t, err)
		g := New(set)
		fail := func(context.Context) error { return errors.New("down") }
		look := func() *BreakerSnapshot { return g.Snapshot().Compartments[0].Breaker }

		require.Error(t, g.Do(t.Context(), "payments", fail))
		assert.Nil(t, look().Last)
		assert.Equal(t, 1, look().Failed)
		assert.Equal(t, 0, look().Slow)
		assert.Equal(t, 3, look().Probes)

		time.Sleep(time.Second)
		require.Error(t, g.Do(t.Context(), "payments", fail))
		tripped := time.Now()
		last := look().Last
		require.NotNil(t, last)
		assert.Equal(t, TransitionSnapshot{
			Time: tripped, Policy: "payments", Side: "client", From: "closed", To: "open", Cause: "failure_rate",
			FailureRate: 100, SlowCallRate: 0, Calls: 2, OpenForMs: 5000,
		}, *last)

		time.Sleep(5 * time.Second)
		require.Error(t, g.Do(t.Context(), "payments", fail)) // a probe
		assert.Equal(t, "half_open", look().State)
		assert.Equal(t, "half_open", look().Last.To)
		assert.Equal(t, "open", last.To, "what was handed out before stays as it was")

		// Others' changes push it out of what all breakers share, but not out of here.
		for range historyLength {
			g.history.add(Compartment{Policy: "other"}, breaker.Transition{})
		}
		for _, tr := range g.Snapshot().Transitions {
			require.Equal(t, "other", tr.Policy)
		}
		assert.Equal(t, "half_open", look().Last.To)
	})
}

func TestSnapshotTellsOfDrainAndClose(t *testing.T) {
	g := New(nil)
	s := g.Snapshot()
	assert.False(t, s.Draining)
	assert.False(t, s.Closed)
	require.NoError(t, g.Drain(t.Context()))
	s = g.Snapshot()
	assert.True(t, s.Draining)
	assert.False(t, s.Closed)
	g.Close()
	assert.True(t, g.Snapshot().Closed)
}
