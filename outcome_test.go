package watertight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

const watched = `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 10, maxWait: 1h}
    breaker: {slowCall: 100ms, minCalls: 1, failureRate: 100, slowCallRate: 100, failureStatus: [500-599, 429]}
`

// E41, E50: what counts, by how the call ended and by whose doing.
func TestOutcome(t *testing.T) {
	const neutral = "neutral"
	client, server := to("a"), on("/")
	status := func(s int) func(*watertight.Call) { return func(c *watertight.Call) { c.SettleStatus(s) } }
	failure := (*watertight.Call).SettleFailure
	// The caller's context, as it is when the call settles.
	cancelled := func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		return ctx
	}
	deadline := func(d time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
	}
	live := (*testing.T).Context

	for _, test := range []struct {
		name   string
		req    *policy.Request
		ctx    func(*testing.T) context.Context
		lasts  time.Duration
		settle func(*watertight.Call)
		want   string // failed, slow, both, ok, neutral
	}{
		{"200", client, live, 10 * time.Millisecond, status(200), "ok"},
		{"200 exactly at slowCall", client, live, 100 * time.Millisecond, status(200), "ok"},
		{"200 late", client, live, 101 * time.Millisecond, status(200), "slow"},
		{"500", client, live, 10 * time.Millisecond, status(500), "failed"},
		{"599 late", client, live, 101 * time.Millisecond, status(599), "both"},
		{"429 by failureStatus", client, live, 10 * time.Millisecond, status(429), "failed"},
		{"408 is an answer", client, live, 10 * time.Millisecond, status(408), "ok"},
		{"101", client, live, 10 * time.Millisecond, status(101), "ok"},
		{"error", client, live, 10 * time.Millisecond, failure, "failed"},
		{"error late", client, live, 150 * time.Millisecond, failure, "both"},
		{"caller cancels early", client, cancelled, 50 * time.Millisecond, failure, neutral},
		{"caller cancels at slowCall", client, cancelled, 100 * time.Millisecond, failure, "slow"},
		{"caller cancels late", client, cancelled, 150 * time.Millisecond, failure, "slow"},
		{"caller cancels, the answer came all the same", client, cancelled, 50 * time.Millisecond, status(500), "failed"},
		{"caller's deadline", client, deadline(50 * time.Millisecond), 50 * time.Millisecond, failure, "failed"},
		{"caller's deadline late", client, deadline(150 * time.Millisecond), 150 * time.Millisecond, failure, "both"},
		{"handler 200", server, live, 10 * time.Millisecond, status(200), "ok"},
		{"handler 503", server, live, 10 * time.Millisecond, status(503), "failed"},
		{"handler panics", server, live, 10 * time.Millisecond, failure, "failed"},
		{"handler's client leaves early", server, cancelled, 50 * time.Millisecond, status(200), neutral},
		{"handler's client leaves early, 500", server, cancelled, 50 * time.Millisecond, status(500), neutral},
		{"handler's client leaves late", server, cancelled, 150 * time.Millisecond, status(500), "slow"},
		{"handler at its deadline", server, deadline(50 * time.Millisecond), 50 * time.Millisecond, status(200), "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, watched)
				call, err := g.Admit(test.ctx(t), test.req)
				assert.NoError(t, err)
				time.Sleep(test.lasts)
				synctest.Wait()
				test.settle(&call)
				test.settle(&call) // the first counts
				call.Release()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// filed tells what the breaker of the watched policy made of its only call.
func filed(t *testing.T, g *watertight.Guard) string {
	b := compartment(t, g, "all", "").Breaker
	switch {
	case b.Calls == 0:
		return "neutral"
	case b.FailureRate == 100 && b.SlowCallRate == 100:
		return "both"
	case b.FailureRate == 100:
		return "failed"
	case b.SlowCallRate == 100:
		return "slow"
	}
	return "ok"
}

// E50a: the queue is our own doing and never the host's slowness; and a
// deadline that the queue ate up is not the host's failure.
func TestTheQueueIsNotThePartOfTheCall(t *testing.T) {
	for _, test := range []struct {
		name    string
		queued  time.Duration
		timeout time.Duration
		want    string
	}{
		{"no deadline", 300 * time.Millisecond, time.Hour, "ok"},
		{"less than half of the deadline was left", 51 * time.Millisecond, 100 * time.Millisecond, "neutral"},
		{"half of the deadline was left", 50 * time.Millisecond, 100 * time.Millisecond, "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, watched)
				var held []*watertight.Call
				for range 10 {
					held = append(held, neutral(t, g, to("a")))
				}
				time.AfterFunc(test.queued, func() {
					for _, c := range held {
						c.Release()
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				call, err := g.Admit(ctx, to("a"))
				assert.NoError(t, err)
				if test.timeout == time.Hour {
					time.Sleep(10 * time.Millisecond)
					call.SettleStatus(200)
				} else {
					<-ctx.Done()
					call.SettleFailure()
				}
				call.Release()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// neutral admits a call that is no outcome, and that the breaker has done with,
// while it holds its permit.
func neutral(t *testing.T, g *watertight.Guard, r *policy.Request) *watertight.Call {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := g.Admit(ctx, r)
	assert.NoError(t, err)
	cancel()
	c.SettleFailure()
	return &c
}

// Where the rules for a caller's end turn, to the nanosecond. The call queues,
// then runs until it settles.
func TestACallersEndIsWeighedToTheNanosecond(t *testing.T) {
	const ms = time.Millisecond
	deadline := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	cancel := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(d, cancel)
			return ctx, cancel
		}
	}
	for _, test := range []struct {
		name   string
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		queued time.Duration
		ran    time.Duration
		want   string
	}{
		{"half of the deadline queued", deadline(80 * ms), 40 * ms, 40 * ms, "failed"},
		{"a little more", deadline(80 * ms), 40*ms + 1, 40*ms - 1, "neutral"},
		{"a little less", deadline(80 * ms), 40*ms - 1, 40*ms + 1, "failed"},
		{"noticed long after the deadline", deadline(80 * ms), 40*ms + 1, time.Hour, "neutral"},
		{"noticed long after, half of it queued", deadline(80 * ms), 40 * ms, time.Hour, "both"},
		{"no queue, a short deadline", deadline(1), 0, 1, "failed"},
		{"a deadline of slowCall", deadline(100 * ms), 0, 100 * ms, "failed"},
		{"a deadline above slowCall", deadline(100*ms + 1), 0, 100*ms + 1, "both"},
		{"a deadline without a monotonic reading", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now().Add(80*ms).Round(0))
		}, 40*ms + 1, 40*ms - 1, "neutral"},
		{"a deadline that its context does not tell", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return lateContext{ctx, time.Now().Add(80 * ms)}, func() {}
		}, 40 * ms, 40 * ms, "failed"},
		{"a deadline ahead of its context", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return aheadContext{ctx, time.Now().Add(80 * ms)}, func() {}
		}, 40*ms + 1, 40*ms - 1, "neutral"},
		{"another one that its context does not tell", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return lateContext{ctx, time.Now().Add(80 * ms)}, func() {}
		}, 40*ms + 1, 40*ms - 1, "neutral"},
		{"cancelled just before slowCall", cancel(20 * ms), 10 * ms, 100*ms - 1, "neutral"},
		{"cancelled at slowCall", cancel(20 * ms), 10 * ms, 100 * ms, "slow"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, watched)
				time.Sleep(time.Hour) // a Guard lives longer than a call
				if test.queued > 0 {
					for range 10 {
						time.AfterFunc(test.queued, admit(t, g, to("a")).Release)
					}
				}
				ctx, cancel := test.ctx(t.Context())
				defer cancel()
				call, err := g.Admit(ctx, to("a"))
				assert.NoError(t, err)
				time.Sleep(test.ran)
				synctest.Wait()
				call.SettleFailure()
				call.Release()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// A lateContext ends at a time that it does not tell.
type lateContext struct {
	context.Context
	at time.Time
}

func (c lateContext) Err() error {
	if !time.Now().Before(c.at) {
		return context.DeadlineExceeded
	}
	return nil
}

// An aheadContext tells a deadline, but has not ended yet.
type aheadContext struct {
	context.Context
	at time.Time
}

func (c aheadContext) Deadline() (time.Time, bool) { return c.at, true }

func TestWithoutASlowRuleACancelIsNeutralHoweverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1}}
`)
		ctx, cancel := context.WithCancel(t.Context())
		call, err := g.Admit(ctx, to("a"))
		assert.NoError(t, err)
		time.Sleep(time.Hour)
		cancel()
		call.SettleFailure()
		call.Release()
		assert.Equal(t, "neutral", filed(t, g))
	})
}

// E42: a probe without an outcome is handed back.
func TestAProbeThatSettlesNothingIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}
`)
		first := admit(t, g, to("a"))
		first.SettleFailure()
		first.Release()
		time.Sleep(time.Second)
		for range 100 {
			admit(t, g, to("a")).Release() // never settled

			ctx, cancel := context.WithCancel(t.Context())
			probe, err := g.Admit(ctx, to("a"))
			assert.NoError(t, err)
			cancel()
			probe.SettleFailure()
			probe.Release()
		}
		assert.Equal(t, "half_open", compartment(t, g, "all", "").Breaker.State)
		good := admit(t, g, to("a"))
		good.SettleStatus(200)
		good.Release()
		assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
	})
}

// E47: a late answer never moves a newer period.
func TestLateResultsDoNotMoveANewerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}
`)
		late := admit(t, g, to("a"))
		bad := admit(t, g, to("a"))
		bad.SettleFailure()
		bad.Release()
		time.Sleep(time.Second)
		probe := admit(t, g, to("a"))
		late.SettleStatus(200)
		late.Release()
		assert.Equal(t, "half_open", compartment(t, g, "all", "").Breaker.State)
		probe.SettleStatus(500)
		probe.Release()
		assert.Equal(t, "open", compartment(t, g, "all", "").Breaker.State)
	})
}
