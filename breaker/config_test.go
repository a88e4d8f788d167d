package breaker_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// E49: a threshold that is no rate is refused, as is every other nonsense, with
// the name of the field.
func TestNewPanics(t *testing.T) {
	tests := map[string]breaker.Config{
		"FailureRate: NaN":        {FailureRate: math.NaN()},
		"FailureRate: -1":         {FailureRate: -1},
		"FailureRate: 100.5":      {FailureRate: 100.5},
		"FailureRate: +Inf":       {FailureRate: math.Inf(1)},
		"FailureRate: -Inf":       {FailureRate: math.Inf(-1)},
		"SlowCallRate: NaN":       {SlowCallRate: math.NaN()},
		"SlowCallRate: -1":        {SlowCallRate: -1},
		"SlowCallRate: 101":       {SlowCallRate: 101},
		"SlowCall: -1ns":          {SlowCall: -1},
		"OverdueLimit: -1":        {OverdueLimit: -1},
		"Jitter: NaN":             {Jitter: math.NaN()},
		"Jitter: -0.1":            {Jitter: -0.1},
		"Jitter: 1":               {Jitter: 1},
		"MaxRetryAfter: -1ns":     {MaxRetryAfter: -1},
		"Window.Calls: -1":        {Window: breaker.Window{Calls: -1}},
		"Window.Time: -1s":        {Window: breaker.Window{Time: -time.Second}},
		"Window.Time: 999.999µs":  {Window: breaker.Window{Time: time.Millisecond - 1}},
		"Window with both":        {Window: breaker.Window{Calls: 1, Time: time.Second}},
		"MinCalls: -1":            {MinCalls: -1},
		"OpenFor: 0s":             {OpenFor: []time.Duration{time.Second, 0}},
		"OpenFor: -1ns":           {OpenFor: []time.Duration{-1}},
		"HalfOpen.Calls: -1":      {HalfOpen: breaker.HalfOpenConfig{Calls: -1}},
		"HalfOpen.MaxWait: -1ns":  {HalfOpen: breaker.HalfOpenConfig{MaxWait: -1}},
		"HalfOpen.MaxWaitTarget:": {HalfOpen: breaker.HalfOpenConfig{MaxWaitTarget: breaker.HalfOpen}},
		"InitialState: State(7)":  {InitialState: breaker.ForcedOpen + 1},
	}
	for want, config := range tests {
		t.Run(want, func(t *testing.T) {
			defer func() {
				assert.Contains(t, recover(), "breaker: bad "+want)
			}()
			breaker.New(config)
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Run("trips at 50% of at least 20 calls, for 30s, then 10 probes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{})
			end(t, b, 10, breaker.Failure, 0)
			end(t, b, 9, breaker.Success, 0)
			assert.Equal(t, breaker.Closed, b.State())
			end(t, b, 1, breaker.Success, 0)
			assert.Equal(t, breaker.Open, b.State())
			assert.Equal(t, 30*time.Second, b.Snapshot().OpenRemaining)
			time.Sleep(30 * time.Second)
			for range 10 {
				let(t, b)
			}
			refuse(t, b)
			time.Sleep(30*time.Second - 1)
			assert.Equal(t, breaker.HalfOpen, b.State())
			time.Sleep(time.Nanosecond)
			assert.Equal(t, breaker.Open, b.State(), "all ten have been given up")
		})
	})
	t.Run("a window of 100 calls", func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		end(t, b, 101, breaker.Success, 0)
		assert.Equal(t, 100, b.Snapshot().Calls)
	})
	t.Run("a slow call rate of 80%", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{SlowCall: time.Second})
			end(t, b, 4, breaker.Success, 0)
			end(t, b, 15, breaker.Success, 2*time.Second)
			assert.Equal(t, breaker.Closed, b.State())
			end(t, b, 1, breaker.Success, 2*time.Second)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("the minimum is cut to a count window, not to a time window", func(t *testing.T) {
		b := breaker.New(breaker.Config{Window: breaker.Window{Calls: 5}})
		end(t, b, 5, breaker.Failure, 0)
		assert.Equal(t, breaker.Open, b.State())

		b = breaker.New(breaker.Config{Window: breaker.Window{Time: 5 * time.Second}, MinCalls: 150})
		end(t, b, 149, breaker.Failure, 0)
		assert.Equal(t, breaker.Closed, b.State())
	})
}

func TestNewCopiesOpenFor(t *testing.T) {
	waits := []time.Duration{time.Minute}
	b := breaker.New(breaker.Config{OpenFor: waits})
	waits[0] = 0
	require.NoError(t, b.Transition(breaker.Open, 0))
	assert.Greater(t, b.Snapshot().OpenRemaining, 50*time.Second)
}

func TestInitialState(t *testing.T) {
	for s := breaker.Closed; s <= breaker.ForcedOpen; s++ {
		var changes []breaker.Transition
		b := breaker.New(breaker.Config{
			InitialState: s,
			OnTransition: func(tr breaker.Transition) { changes = append(changes, tr) },
		})
		assert.Equal(t, s, b.State())
		assert.Empty(t, changes, "to begin is no change")
	}
}
