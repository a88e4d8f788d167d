package breaker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// E49: what counts at the edges of a threshold. Each row makes well and then bad
// calls; a call is bad in what the row's rule looks at.
func TestThresholdEdges(t *testing.T) {
	rules := map[string]struct {
		config func(rate float64) breaker.Config
		bad    func(*testing.T, *breaker.Breaker)
		cause  breaker.Cause
	}{
		"failure rate": {
			config: func(rate float64) breaker.Config {
				return breaker.Config{FailureRate: rate, SlowCall: time.Second}
			},
			bad:   func(t *testing.T, b *breaker.Breaker) { end(t, b, 1, breaker.Failure, 0) },
			cause: breaker.CauseFailureRate,
		},
		"slow call rate": {
			config: func(rate float64) breaker.Config {
				return breaker.Config{SlowCallRate: rate, SlowCall: time.Second}
			},
			bad:   func(t *testing.T, b *breaker.Breaker) { end(t, b, 1, breaker.Success, time.Second+1) },
			cause: breaker.CauseSlowCallRate,
		},
	}
	tests := []struct {
		name      string
		rate      float64
		minCalls  int
		well, bad int
		trips     bool
	}{
		{"100% of 10: the 10th trips", 100, 10, 0, 10, true},
		{"100% of 9: under the minimum", 100, 10, 0, 9, false},
		{"100% with one well", 100, 10, 1, 9, false},
		{"equal trips", 50, 10, 5, 5, true},
		{"one less does not", 50, 10, 6, 4, false},
		{"equal to a tenth of a percent", 0.1, 1000, 999, 1, true},
		{"equal to a rate that binary has not", 70, 10, 3, 7, true},
		{"a third is under 33.34", 33.34, 3, 2, 1, false},
		{"a third is over 33.33", 33.33, 3, 2, 1, true},
		{"the smallest rate trips at the first", 1e-300, 1, 0, 1, true},
		{"and not before it", 1e-300, 1, 100, 0, false},
	}
	windows := map[string]breaker.Window{
		"count": {Calls: 1000},
		"time":  {Time: time.Hour},
	}
	for ruleName, rule := range rules {
		for windowName, window := range windows {
			for _, test := range tests {
				t.Run(ruleName+"/"+windowName+"/"+test.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var changes []breaker.Transition
						c := rule.config(test.rate)
						c.Window, c.MinCalls = window, test.minCalls
						c.OnTransition = func(tr breaker.Transition) { changes = append(changes, tr) }
						b := breaker.New(c)
						end(t, b, test.well, breaker.Success, 0)
						for range test.bad {
							require.Equal(t, breaker.Closed, b.State(), "too early")
							rule.bad(t, b)
						}
						if !test.trips {
							assert.Equal(t, breaker.Closed, b.State())
							return
						}
						assert.Equal(t, breaker.Open, b.State())
						require.Len(t, changes, 1)
						assert.Equal(t, rule.cause, changes[0].Cause)
						assert.Equal(t, test.well+test.bad, changes[0].Calls)
					})
				})
			}
		}
	}
}

// E49: a call both slow and failed is one in the total.
func TestSlowAndFailedIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{SlowCall: time.Second, MinCalls: 4, FailureRate: 60})
		end(t, b, 1, breaker.Failure, 2*time.Second)
		end(t, b, 3, breaker.Success, 0)
		s := b.Snapshot()
		assert.Equal(t, 4, s.Calls)
		assert.EqualValues(t, 25, s.FailureRate)
		assert.EqualValues(t, 25, s.SlowCallRate)
	})
}

func TestSlowRuleOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{MinCalls: 1, SlowCallRate: 1})
		end(t, b, 10, breaker.Success, time.Hour)
		assert.Equal(t, breaker.Closed, b.State())
		assert.Zero(t, b.Snapshot().Slow)
	})
}

// E48: what is old is forgotten, exactly, and without anybody looking.
func TestTimeWindowForgets(t *testing.T) {
	config := breaker.Config{Window: breaker.Window{Time: 10 * time.Second}, MinCalls: 10}
	t.Run("idle for just over the window", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(config)
			end(t, b, 9, breaker.Failure, 0)
			time.Sleep(10001 * time.Millisecond)
			end(t, b, 1, breaker.Failure, 0)
			assert.Equal(t, breaker.Closed, b.State())
			assert.Equal(t, 1, b.Snapshot().Calls)
		})
	})
	t.Run("idle for just under the window", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(config)
			end(t, b, 9, breaker.Failure, 0)
			time.Sleep(9999 * time.Millisecond)
			end(t, b, 1, breaker.Failure, 0)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("a burst over the edge of a bucket trips", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(config)
			time.Sleep(999 * time.Millisecond)
			end(t, b, 6, breaker.Success, 0)
			time.Sleep(2 * time.Millisecond)
			end(t, b, 6, breaker.Failure, 0)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("a burst over the end of the window trips", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(config)
			time.Sleep(9999 * time.Millisecond)
			end(t, b, 6, breaker.Success, 0)
			time.Sleep(2 * time.Millisecond)
			end(t, b, 6, breaker.Failure, 0)
			assert.Equal(t, breaker.Open, b.State())
		})
	})
	t.Run("read after the window has passed without calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := config
			c.MinCalls, c.FailureRate = 1, 60
			b := breaker.New(c)
			end(t, b, 1, breaker.Success, 0)
			end(t, b, 1, breaker.Failure, 0)
			require.EqualValues(t, 50, b.Snapshot().FailureRate)
			time.Sleep(10 * time.Second)
			s := b.Snapshot()
			assert.EqualValues(t, -1, s.FailureRate)
			assert.Zero(t, s.Calls)
		})
	})
	t.Run("idle for centuries", func(t *testing.T) {
		// A loop over the gap would not end: 250 years are 4e14 buckets.
		synctest.Test(t, func(t *testing.T) {
			c := config
			c.Window.Time = time.Millisecond
			b := breaker.New(c)
			end(t, b, 9, breaker.Failure, 0)
			time.Sleep(250 * 365 * 24 * time.Hour)
			end(t, b, 1, breaker.Failure, 0)
			assert.Equal(t, 1, b.Snapshot().Calls)
		})
	})
}

// E48: what half-open has seen is not in the window of the closed state after it.
func TestClosedStartsEmpty(t *testing.T) {
	for _, window := range []breaker.Window{{Calls: 10}, {Time: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{
				Window:   window,
				MinCalls: 4,
				OpenFor:  []time.Duration{time.Second},
				HalfOpen: breaker.HalfOpenConfig{Calls: 4},
			})
			end(t, b, 4, breaker.Failure, 0)
			time.Sleep(time.Second)
			end(t, b, 1, breaker.Failure, 0)
			end(t, b, 3, breaker.Success, 0)
			require.Equal(t, breaker.Closed, b.State())
			assert.Zero(t, b.Snapshot().Calls)
			end(t, b, 3, breaker.Failure, 0)
			assert.Equal(t, breaker.Closed, b.State())
			end(t, b, 1, breaker.Failure, 0)
			assert.Equal(t, breaker.Open, b.State())
		})
	}
}

// Every window keeps an outcome for at most its length, and for less by at most a
// bucket, wherever in its bucket the outcome falls.
func TestTimeWindowLength(t *testing.T) {
	lengths := []time.Duration{
		time.Millisecond, 1234567 * time.Nanosecond, 500 * time.Millisecond, 999999999, time.Second, 1500 * time.Millisecond,
		2 * time.Second, 3 * time.Second, 7 * time.Second, 9 * time.Second, 9500 * time.Millisecond, 10 * time.Second,
		11 * time.Second, time.Minute, 2 * time.Minute, 121 * time.Second, time.Hour, 24 * time.Hour,
	}
	for _, length := range lengths {
		w := breaker.Window{Time: length}
		n, width := w.Buckets()
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			assert.LessOrEqual(t, n, 120)
			assert.GreaterOrEqual(t, n, 10)
			if length%time.Second == 0 && length <= 2*time.Minute {
				assert.Zero(t, time.Second%width, "whole seconds are edges of buckets")
				assert.Equal(t, length, time.Duration(n)*width)
			}
			for _, at := range []time.Duration{0, 1, width / 2, width - 1, width, length - 1, length + width/3} {
				synctest.Test(t, func(t *testing.T) {
					b := breaker.New(breaker.Config{Window: w})
					time.Sleep(at)
					end(t, b, 1, breaker.Success, 0)
					time.Sleep(length - width - 60)
					assert.Equal(t, 1, b.Snapshot().Calls, "too early")
					time.Sleep(width + 60)
					assert.Equal(t, 0, b.Snapshot().Calls, "too late")
				})
			}
		})
	}
}
