package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

func seconds(n ...float64) []time.Duration {
	var d []time.Duration
	for _, n := range n {
		d = append(d, time.Duration(n*float64(time.Second)))
	}
	return d
}

func TestGrowing(t *testing.T) {
	const forever = 1<<63 - 1
	assert.Equal(t, seconds(5, 10, 20, 40, 80, 120), breaker.Growing(5*time.Second, 2*time.Minute, 2))
	assert.Equal(t, seconds(1, 1.5, 2.25, 2.5), breaker.Growing(time.Second, 2500*time.Millisecond, 1.5))
	assert.Equal(t, seconds(1, 10, 100), breaker.Growing(time.Second, 100*time.Second, 10), "no entry twice")
	assert.Equal(t, seconds(7), breaker.Growing(7*time.Second, 7*time.Second, 2))
	assert.Equal(t, []time.Duration{forever}, breaker.Growing(forever, forever, 2))
	assert.Equal(t, []time.Duration{1, forever}, breaker.Growing(1, forever, 1e300))

	for want, try := range map[string]func(){
		"initial open period: 0s":             func() { breaker.Growing(0, 1, 2) },
		"longest open period: 1ns":            func() { breaker.Growing(2, 1, 2) },
		"multiplier of the open period: 1":    func() { breaker.Growing(1, 2, 1) },
		"multiplier of the open period: 1.01": func() { breaker.Growing(1, forever, 1.01) },
	} {
		assert.PanicsWithValue(t, "breaker: bad "+want, try)
	}
}

// openings trips the breaker n times without its closing in between, and returns how
// long it was open each time.
func openings(t *testing.T, b *breaker.Breaker, n int) []time.Duration {
	t.Helper()
	var open []time.Duration
	for range n {
		end(t, b, 1, breaker.Failure, 0)
		open = append(open, b.Remaining())
		time.Sleep(b.Remaining())
	}
	return open
}

func TestGrowingOpenPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openFor1s(breaker.HalfOpenConfig{Calls: 1})
		c.OpenFor = breaker.Growing(time.Second, 5*time.Second, 2)
		b := breaker.New(c)
		assert.Equal(t, seconds(1, 2, 4, 5, 5), openings(t, b, 5))
		end(t, b, 1, breaker.Success, 0)
		require.Equal(t, breaker.Closed, b.State())
		assert.Equal(t, seconds(1, 2), openings(t, b, 2), "from the beginning once it has closed")
	})
}

func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openFor1s(breaker.HalfOpenConfig{Calls: 1})
		c.OpenFor = seconds(10, 20)
		c.Jitter = 0.2
		shortest, longest, atLongest := seconds(1000, 1000), seconds(0, 0), 0
		for range 500 {
			for i, d := range openings(t, breaker.New(c), 2) {
				shortest[i] = min(shortest[i], d)
				longest[i] = max(longest[i], d)
				if d == 20*time.Second {
					atLongest++
				}
			}
		}
		assert.Less(t, atLongest, 10, "those that were cut have not all become the same")
		// Each bound is missed by a tenth of the range with a chance of 0.9^500.
		for i, want := range [][2]time.Duration{
			{8 * time.Second, 12 * time.Second},
			{16 * time.Second, 20 * time.Second}, // not over the longest
		} {
			tenth := (want[1] - want[0]) / 10
			assert.GreaterOrEqual(t, shortest[i], want[0])
			assert.Less(t, shortest[i], want[0]+tenth)
			assert.LessOrEqual(t, longest[i], want[1])
			assert.Greater(t, longest[i], want[1]-tenth)
		}
	})
}

// Whatever the numbers, a period has a length.
func TestJitterExtremes(t *testing.T) {
	const forever time.Duration = 1<<63 - 1
	for _, open := range []time.Duration{1, 2, forever} {
		for range 100 {
			b := breaker.New(breaker.Config{InitialState: breaker.Open, OpenFor: []time.Duration{open}, Jitter: 0.999})
			call, err := b.AllowAt(t.Context(), b.At(0))
			require.ErrorIs(t, err, breaker.ErrOpen)
			require.Positive(t, call.Remaining())
			require.LessOrEqual(t, call.Remaining(), open)
		}
	}
}

// Nobody saw the rounds that are skipped; those that are not have their jitter.
func TestLongIdleRoundsWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []breaker.Transition
		b := breaker.New(breaker.Config{
			InitialState: breaker.Open,
			OpenFor:      seconds(1),
			Jitter:       0.9,
			HalfOpen:     breaker.HalfOpenConfig{MaxWait: time.Second},
			AutoHalfOpen: true,
			OnTransition: func(tr breaker.Transition) { changes = append(changes, tr) },
		})
		time.Sleep(10000 * time.Hour)
		b.State()
		assert.Greater(t, len(changes), 100)
		assert.Less(t, len(changes), 400)
		for i, tr := range changes[1:] {
			require.Equal(t, changes[i].To, tr.From)
			require.False(t, tr.At.Before(changes[i].At))
		}
		assert.Less(t, time.Since(changes[len(changes)-1].At), time.Second)
	})
}

func TestRetryAfter(t *testing.T) {
	conf := breaker.Config{
		MinCalls:      2,
		FailureRate:   100,
		OpenFor:       seconds(10, 20),
		MaxRetryAfter: time.Minute,
		HalfOpen:      breaker.HalfOpenConfig{Calls: 1},
	}
	fail := func(t *testing.T, b *breaker.Breaker, retryAfter ...time.Duration) {
		t.Helper()
		call := let(t, b)
		for _, d := range retryAfter {
			call.RetryAfter(d)
		}
		call.Done(t.Context(), breaker.Failure)
	}
	tests := map[string]struct {
		config func(*breaker.Config)
		do     func(*testing.T, *breaker.Breaker)
		want   time.Duration
	}{
		"longer than configured": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, 17*time.Second)
		}, 17 * time.Second},
		"shorter than configured": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, time.Second)
		}, time.Second},
		"capped": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, 1<<63-1)
		}, time.Minute},
		"said by an earlier call": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b, 17*time.Second)
			time.Sleep(5 * time.Second)
			fail(t, b)
		}, 12 * time.Second},
		"said by a call that did not fail": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			call := let(t, b)
			call.RetryAfter(17 * time.Second)
			call.Cancel()
			fail(t, b)
		}, 17 * time.Second},
		"over before it trips": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b, 17*time.Second)
			time.Sleep(17 * time.Second)
			fail(t, b)
		}, 10 * time.Second},
		"the latest is heeded": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b, 50*time.Second)
			fail(t, b, 17*time.Second)
		}, 17 * time.Second},
		"nothing asked": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, 0, -time.Second)
		}, 10 * time.Second},
		"not heeded": {func(c *breaker.Config) { c.MaxRetryAfter = 0 }, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, 17*time.Second)
		}, 10 * time.Second},
		"without jitter": {func(c *breaker.Config) { c.Jitter = 0.9 }, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, 17*time.Second)
		}, 17 * time.Second},
		"by a probe": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b)
			time.Sleep(10 * time.Second)
			fail(t, b, 17*time.Second)
		}, 17 * time.Second},
		"counts as an attempt": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b)
			fail(t, b, time.Second)
			time.Sleep(time.Second)
			fail(t, b)
		}, 20 * time.Second},
		"in an earlier period": {nil, func(t *testing.T, b *breaker.Breaker) {
			call := let(t, b)
			call.RetryAfter(50 * time.Second)
			b.Reset()
			call.RetryAfter(50 * time.Second)
			fail(t, b)
			fail(t, b)
		}, 10 * time.Second},
		"a hand knows better": {nil, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b, 17*time.Second)
			require.NoError(t, b.Transition(breaker.Open, 0))
		}, 10 * time.Second},
		"by overdue calls": {func(c *breaker.Config) { c.SlowCall = 800 * time.Millisecond }, func(t *testing.T, b *breaker.Breaker) {
			fail(t, b, 17*time.Second)
			time.Sleep(time.Second)
			hang(t, b, 2)
			time.Sleep(900 * time.Millisecond)
		}, 15100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := conf
				if test.config != nil {
					test.config(&c)
				}
				var last breaker.Transition
				c.OnTransition = func(tr breaker.Transition) { last = tr }
				b := breaker.New(c)
				test.do(t, b)
				assert.Equal(t, breaker.Open, b.State())
				assert.Equal(t, test.want, b.Remaining())
				assert.Equal(t, test.want, last.OpenFor)
			})
		})
	}
}

func TestRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(openFor1s(breaker.HalfOpenConfig{}))
		assert.Zero(t, b.Remaining())
		require.NoError(t, b.Transition(breaker.Open, time.Minute))
		time.Sleep(time.Second)
		assert.Equal(t, 59*time.Second, b.Remaining())
		time.Sleep(time.Hour)
		assert.Zero(t, b.Remaining(), "open until somebody calls")
		assert.Equal(t, breaker.Open, b.State())
		require.NoError(t, b.Transition(breaker.ForcedOpen, time.Minute))
		assert.Zero(t, b.Remaining())
	})
}
