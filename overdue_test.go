package watertight_test

import (
	"context"
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

const hanging = `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 5, maxQueue: 20, maxWait: 1h}
    breaker: {slowCall: 800ms, minCalls: 10, slowCallRate: 80}
`

// An upstream that hangs opens the breaker within slowCall and an eighth of it,
// long before its clients' time-out of 30s, as soon as all permits are taken:
// more calls than that cannot be in flight, whatever minCalls says. That many
// fast calls just before make no difference, nor does a queue behind.
func TestAnUpstreamThatHangsOpensTheBreaker(t *testing.T) {
	const slowCall = 800 * time.Millisecond
	for _, test := range []struct {
		name string
		fast int
		hang int
		want error
	}{
		{"out of the blue", 0, 5, breaker.ErrOpen},
		{"after a hundred fast calls", 100, 5, breaker.ErrOpen},
		{"a permit to spare", 0, 4, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var trips []watertight.TransitionEvent
				g := guard(t, hanging, watertight.WithHooks(watertight.Hooks{
					Transition: func(_ context.Context, e watertight.TransitionEvent) { trips = append(trips, e) },
				}))
				for range test.fast {
					c := admit(t, g, to("a"))
					c.SettleStatus(200)
					c.Release()
				}
				for range test.hang {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					c, err := g.Admit(ctx, to("a"))
					require.NoError(t, err)
					go func() {
						defer cancel()
						<-ctx.Done()
						c.SettleFailure()
						c.Release()
					}()
				}
				if test.hang == 5 {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						_, err := g.Admit(ctx, to("a"))
						assert.ErrorIs(t, err, context.DeadlineExceeded, "queues behind them")
					}()
				}
				time.Sleep(slowCall)
				synctest.Wait()
				assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State, "none is overdue yet")
				time.Sleep(slowCall / 8)
				c, err := g.Admit(t.Context(), to("a"))
				require.ErrorIs(t, err, test.want)
				c.Release()
				if test.want != nil {
					require.Len(t, trips, 1)
					assert.Equal(t, breaker.CauseOverdue, trips[0].Cause)
					assert.Equal(t, test.hang, trips[0].Overdue)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// The limit of another policy's bulkhead is none for the breaker.
func TestTheBulkheadOfAnotherPolicyIsNoLimitForTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: limit, per: policy, bulkhead: {maxConcurrent: 5}}
  - {name: watch, per: policy, breaker: {slowCall: 800ms, minCalls: 10}}
`)
		for range 5 {
			admit(t, g, to("a"))
		}
		time.Sleep(time.Minute)
		assert.Equal(t, "closed", compartment(t, g, "watch", "").Breaker.State)
		refused(t, g, to("a"), bulkhead.ErrFull)
	})
}

// E50a: however long calls queue, that makes none of them overdue. With hooks and
// without, since the ways there differ.
func TestTheQueueMakesNoCallOverdue(t *testing.T) {
	for name, opts := range map[string][]watertight.Option{
		"no hooks": nil,
		"hooks":    {watertight.WithHooks(watertight.Hooks{Wait: func(context.Context, watertight.WaitEvent) {}})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, hanging, opts...)
				var held []*watertight.Call
				for range 5 {
					held = append(held, neutral(t, g, to("a")))
				}
				for range 20 {
					go func() {
						c, err := g.Admit(t.Context(), to("a"))
						if assert.NoError(t, err) {
							time.Sleep(100 * time.Millisecond)
							c.SettleStatus(200)
							c.Release()
						}
					}()
				}
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					require.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
				}
				for _, c := range held {
					c.Release()
				}
				time.Sleep(time.Second)
				b := compartment(t, g, "all", "").Breaker
				assert.Equal(t, 20, b.Calls)
				assert.Zero(t, b.SlowCallRate, "nor slow")
			})
		})
	}
}

// A call that has queued begins when it has its permit: it becomes overdue as
// any other.
func TestACallThatQueuedBecomesOverdueFromItsGrantOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, hanging)
		var held []*watertight.Call
		for range 5 {
			held = append(held, neutral(t, g, to("a")))
		}
		for range 5 {
			go func() {
				_, err := g.Admit(t.Context(), to("a"))
				assert.NoError(t, err) // and hangs
			}()
		}
		time.Sleep(time.Minute)
		for _, c := range held {
			c.Release()
		}
		time.Sleep(800 * time.Millisecond)
		assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
		time.Sleep(100 * time.Millisecond)
		refused(t, g, to("a"), breaker.ErrOpen)
	})
}

// A context that dies while Arrive runs loses, although a permit is free, and
// although the call could have queued.
func TestAContextThatDiesInArriveLoses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := guard(t, hanging, watertight.WithHooks(watertight.Hooks{
		Arrive: func(context.Context, *policy.Request) context.Context { cancel(); return nil },
	}))
	_, err := g.Admit(ctx, to("a"))
	assert.Equal(t, context.Canceled, err)
	c := compartment(t, g, "all", "")
	assert.EqualValues(t, 1, c.Left)
	assert.Zero(t, c.Granted)
	assert.Zero(t, c.Bulkhead.InFlight)
	assert.Zero(t, c.Breaker.Calls)
}

// A change of state that a call finds due when its wait for a permit is over is told
// to that call.
func TestAChangeIsToldToTheQueuedCallThatSawIt(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var seenBy []any
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1, maxWait: 1h}
    breaker: {slowCall: 1s, minCalls: 1, openFor: 10s, halfOpen: {calls: 2, maxWait: 5s}}
`, watertight.WithHooks(watertight.Hooks{
			Transition: func(ctx context.Context, _ watertight.TransitionEvent) {
				seenBy = append(seenBy, ctx.Value(key{}))
			},
		}))
		fails(t, g)
		time.Sleep(10 * time.Second)
		held := neutral(t, g, to("a")) // half-open
		seenBy = nil
		time.AfterFunc(6*time.Second, held.Release)
		_, err := g.Admit(context.WithValue(t.Context(), key{}, "queued"), to("a"))
		require.ErrorIs(t, err, breaker.ErrOpen)
		assert.Equal(t, []any{"queued"}, seenBy)
	})
}
