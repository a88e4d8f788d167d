package watertight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A burst is calls that arrive at their times, and take theirs once they are admitted.
type burst []struct{ arrives, takes time.Duration }

// run sends the calls through a Guard, and returns what it counts.
func (b burst) run(t require.TestingT, g *watertight.Guard) (c watertight.CompartmentSnapshot) {
	var wg sync.WaitGroup
	for _, call := range b {
		wg.Go(func() {
			time.Sleep(call.arrives)
			if c, err := g.Admit(context.Background(), on("/")); err == nil {
				time.Sleep(call.takes)
				c.Release()
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Hour) // until every wait would have ended
	for _, c = range g.Snapshot().Compartments {
		if c.Policy == "p" {
			return c
		}
	}
	require.Fail(t, "no compartment")
	return c
}

// A dry run counts what the bulkhead would have refused: the same calls through one
// that enforces are refused as often.
func TestDryRunAgreesWithTheBulkhead(t *testing.T) {
	// Times that are never the same, nor their sums: at one instant either of two
	// may be first.
	instant := func(rough, i int) time.Duration { return time.Duration(rough)<<32 + time.Duration(1)<<i }
	rapid.Check(t, func(rt *rapid.T) {
		calls := make(burst, rapid.IntRange(1, 15).Draw(rt, "calls"))
		for i := range calls {
			calls[i].arrives = instant(rapid.IntRange(0, 20).Draw(rt, "arrives"), 2*i)
			calls[i].takes = instant(rapid.IntRange(0, 12).Draw(rt, "takes"), 2*i+1)
		}
		rest := fmt.Sprintf("bulkhead: {maxConcurrent: %d, maxQueue: %d, maxWait: %v}", rapid.IntRange(1, 3).Draw(rt, "limit"),
			rapid.IntRange(0, 4).Draw(rt, "queue"), rapid.SampledFrom([]time.Duration{0, 1 << 31, 7 << 31, 21 << 31, 99 << 31}).Draw(rt, "wait"))
		var refused, observed map[string]uint64
		synctest.Test(t, func(t *testing.T) {
			refused = calls.run(rt, watertight.New(set(t, "per: policy, "+rest))).Rejected
			c := calls.run(rt, watertight.New(set(t, "per: policy, mode: observe, "+rest)))
			observed = c.Observed
			require.EqualValues(rt, len(calls), c.Granted, "nothing is refused")
			require.Zero(rt, c.InFlight)
		})
		require.Equal(rt, refused["full"], observed["full"], rest)
		require.Equal(rt, refused["wait_timeout"], observed["wait_timeout"], rest)
	})
}

// The example of the reference: calls that are over before their turn would have come
// count as they would have been refused.
func TestDryRunOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls burst
		for range 50 {
			calls = append(calls, struct{ arrives, takes time.Duration }{0, 10 * time.Millisecond})
		}
		g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1, maxQueue: 30, maxWait: 95ms}"))
		c := calls.run(t, g)
		assert.Equal(t, map[string]uint64{"full": 19, "wait_timeout": 21, "open": 0}, c.Observed, "one at once, and nine more within 95ms")
		assert.EqualValues(t, 50, c.Granted)
		assert.Equal(t, &watertight.BulkheadSnapshot{Limit: 1, Peak: 50, MaxQueue: 30, MaxWaitMs: 95}, c.Bulkhead, "the limit that it would have, and who was inside")
		assert.Equal(t, "observe", c.Mode)
	})
}

// observer writes down what is observed, and fails if anything is refused.
func observer(t *testing.T, s *story) watertight.Option {
	return watertight.WithHooks(watertight.Hooks{
		Observe:    func(ctx context.Context, e watertight.RejectEvent) { s.add(ctx, e) },
		Transition: func(ctx context.Context, e watertight.TransitionEvent) { s.add(ctx, e) },
		Reject:     func(_ context.Context, e watertight.RejectEvent) { t.Errorf("rejected: %+v", e) },
		Wait:       func(_ context.Context, e watertight.WaitEvent) { t.Errorf("waited: %+v", e) },
	})
}

func TestObservingBulkheadTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}"), observer(t, &s))
		type who struct{}
		ctx := func(name string) context.Context { return context.WithValue(t.Context(), who{}, name) }
		var calls []watertight.Call
		for _, name := range []string{"granted", "queued", "full"} {
			c, err := g.Admit(ctx(name), on("/"))
			require.NoError(t, err)
			calls = append(calls, c)
		}
		require.Len(t, s.events, 1)
		full := s.events[0].(watertight.RejectEvent)
		assert.Equal(t, "full", s.ctxs[0].Value(who{}))
		assert.Equal(t, policy.ReasonFull, full.Reason)
		assert.Equal(t, []int{1, 1, 1}, []int{full.Limit, full.InFlight, full.Queued})
		assert.Equal(t, time.Second, full.RetryAfter)
		assert.ErrorIs(t, full.Err, bulkhead.ErrFull)

		time.Sleep(time.Second + 1)
		assert.EqualValues(t, 1, compartment(t, g, "p", "").Observed["wait_timeout"], "counted when it is due")
		calls[1].Release()
		require.Len(t, s.events, 2, "and told when the call has ended")
		late := s.events[1].(watertight.RejectEvent)
		assert.Equal(t, "queued", s.ctxs[1].Value(who{}))
		assert.Equal(t, policy.ReasonWaitTimeout, late.Reason)
		assert.ErrorIs(t, late.Err, bulkhead.ErrWaitTimeout)
		calls[0].Release()
		calls[2].Release()
		calls[1].Release()
		assert.Len(t, s.events, 2)
	})
}

func TestObservingBreakerGoesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := watertight.New(set(t, "per: policy, mode: observe, breaker: {minCalls: 2, openFor: 10s, halfOpen: {calls: 1}}"), observer(t, &s))
		call := func(status int) bool {
			c := admit(t, g, on("/"))
			watched := c.Watched()
			c.SettleStatus(status)
			c.Release()
			return watched
		}
		call(500)
		call(500)
		assert.Equal(t, "open", compartment(t, g, "p", "").Breaker.State)
		for range 3 {
			assert.False(t, call(200), "nobody asks what became of a call that would not have been")
		}
		time.Sleep(10 * time.Second)
		probe := admit(t, g, on("/"))
		assert.False(t, call(500), "no probe is left")
		probe.SettleStatus(200)
		probe.Release()

		c := compartment(t, g, "p", "")
		assert.Equal(t, "closed", c.Breaker.State)
		assert.Equal(t, map[string]uint64{"full": 0, "wait_timeout": 0, "open": 4}, c.Observed)
		assert.EqualValues(t, 7, c.Granted)
		assert.Zero(t, c.Rejected["open"])
		assert.Zero(t, c.InFlight)

		var tale []string
		for _, e := range s.events {
			switch e := e.(type) {
			case watertight.TransitionEvent:
				assert.Equal(t, policy.Observe, e.Mode)
				tale = append(tale, e.To.String())
			case watertight.RejectEvent:
				assert.ErrorIs(t, e.Err, breaker.ErrOpen)
				tale = append(tale, fmt.Sprint(e.Breaker, " refuses, ", e.RetryAfter))
			}
		}
		assert.Equal(t, []string{"open", "open refuses, 10s", "open refuses, 10s", "open refuses, 10s", "half_open", "half_open refuses, 1s", "closed"}, tale)
	})
}

// What one of the two would have refused the other does not hear of, if it is not in
// force either.
func TestObservedRefusalsKeepFromTheOther(t *testing.T) {
	const breakerOf = "breaker: {minCalls: 1, window: {calls: 1}, openFor: 1m}"
	synctest.Test(t, func(t *testing.T) {
		t.Log("a refusal by the bulkhead is no outcome for the breaker")
		g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1}, "+breakerOf))
		inside := admit(t, g, on("/"))
		c := admit(t, g, on("/"))
		c.SettleStatus(500)
		c.Release()
		assert.Zero(t, compartment(t, g, "p", "").Breaker.Calls)

		t.Log("one by the breaker takes no permit")
		inside.SettleStatus(500)
		inside.Release()
		for range 3 {
			admit(t, g, on("/"))
		}
		assert.Equal(t, map[string]uint64{"full": 1, "wait_timeout": 0, "open": 3}, compartment(t, g, "p", "").Observed)

		t.Log("a breaker that is in force hears of every call")
		file := "version: 1\npolicies:\n  - {name: p, per: policy, mode: observe, bulkhead: {maxConcurrent: 1}}\n  - {name: q, per: policy, " + breakerOf + "}\n"
		g = guard(t, file)
		admit(t, g, on("/"))
		c = admit(t, g, on("/"))
		assert.EqualValues(t, 1, compartment(t, g, "p", "").Observed["full"])
		c.SettleStatus(500)
		refused(t, g, on("/"), breaker.ErrOpen)

		t.Log("and a bulkhead that is in force lets nobody past it")
		file = "version: 1\npolicies:\n  - {name: p, per: policy, mode: observe, " + breakerOf + "}\n  - {name: q, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}\n"
		g = guard(t, file)
		c = admit(t, g, on("/"))
		c.SettleStatus(500)
		time.AfterFunc(time.Millisecond, c.Release)
		c = admit(t, g, on("/")) // would have been refused as open, and waits
		assert.EqualValues(t, 1, compartment(t, g, "p", "").Observed["open"])
		c.SettleStatus(500)
		refused(t, g, on("/"), bulkhead.ErrWaitTimeout)
	})
}

// A breaker that opens while a call is in the queue of a bulkhead that is in force does
// not refuse it either, if it only observes.
func TestObservedRefusalAfterTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observed []policy.Reason
		g := guard(t, `
version: 1
policies:
  - {name: p, per: policy, mode: observe, breaker: {minCalls: 1, window: {calls: 1}, openFor: 1m}}
  - {name: q, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}
`, watertight.WithHooks(watertight.Hooks{
			Observe: func(_ context.Context, e watertight.RejectEvent) { observed = append(observed, e.Reason) },
		}))
		first := admit(t, g, on("/"))
		time.AfterFunc(time.Millisecond, func() {
			first.SettleStatus(500)
			first.Release()
		})
		c := admit(t, g, on("/"))
		assert.False(t, c.Watched(), "nobody asks what became of a call that would not have been")
		c.SettleStatus(500)
		c.Release()
		assert.Equal(t, []policy.Reason{policy.ReasonOpen}, observed)
		assert.EqualValues(t, 1, compartment(t, g, "p", "").Observed["open"])
		assert.Zero(t, compartment(t, g, "p", "").Rejected["open"])
		assert.EqualValues(t, 2, compartment(t, g, "q", "").Granted)
		assert.Zero(t, compartment(t, g, "q", "").InFlight)
	})
}

func TestReloadChangesTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limits = "bulkhead: {maxConcurrent: 2, maxWait: 1s}"
		g := watertight.New(set(t, "per: policy, mode: observe, "+limits))
		var calls []*watertight.Call
		for range 4 {
			calls = append(calls, admit(t, g, on("/")))
		}
		g.Reload(set(t, "per: policy, "+limits))
		c := compartment(t, g, "p", "")
		assert.Equal(t, &watertight.BulkheadSnapshot{Limit: 2, InFlight: 4, Peak: 4, MaxQueue: 1000, MaxWaitMs: 1000}, c.Bulkhead, "who is inside counts")
		assert.Empty(t, c.Mode)
		refused(t, g, on("/"), bulkhead.ErrWaitTimeout)
		for _, c := range calls[:3] {
			c.Release()
		}
		calls = append(calls, admit(t, g, on("/")))

		fared := queued(t, g, on("/"), 1)
		g.Reload(set(t, "per: policy, mode: observe, "+limits))
		synctest.Wait()
		require.Len(t, fared, 1, "nobody waits for a policy that observes")
		for range 3 {
			admit(t, g, on("/"))
		}
		g.Reload(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 3}"))
		admit(t, g, on("/"))
		assert.Equal(t, map[string]uint64{"full": 1, "wait_timeout": 0, "open": 0}, compartment(t, g, "p", "").Observed,
			"three have permits of the dry run, one of them since it was widened")
		calls[3].Release()
		calls[4].Release()
	})
}

// While it drains, a policy that observes refuses like any other.
func TestDrainingIsNotObserved(t *testing.T) {
	g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1}, breaker: {}"))
	require.NoError(t, g.Drain(t.Context()))
	refused(t, g, on("/"), bulkhead.ErrClosed)
	assert.EqualValues(t, 1, compartment(t, g, "p", "").Rejected["draining"])
}

func TestDoObserves(t *testing.T) {
	g := guard(t, "version: 1\npolicies: [{name: db, side: client, mode: observe, bulkhead: {maxConcurrent: 1}}]\n")
	inner := false
	require.NoError(t, g.Do(t.Context(), "db", func(ctx context.Context) error {
		return g.Do(ctx, "db", func(context.Context) error { inner = true; return nil })
	}))
	assert.True(t, inner)
	assert.EqualValues(t, 1, compartment(t, g, "db", "").Observed["full"])
}

func TestSnapshotOfAnObserver(t *testing.T) {
	g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1}"))
	admit(t, g, on("/"))
	data, err := json.Marshal(compartment(t, g, "p", ""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"policy": "p", "side": "server", "per": "policy", "key": "", "granted": 1, "left": 0, "leaked": 0, "inFlight": 1,
		"rejected": {"full": 0, "wait_timeout": 0, "open": 0, "draining": 0},
		"mode": "observe", "observed": {"full": 0, "wait_timeout": 0, "open": 0},
		"bulkhead": {"limit": 1, "inFlight": 1, "queued": 0, "peak": 1, "maxQueue": 0, "maxWaitMs": 0}}`, string(data))
}

// Under the race detector: a dry run is shared by all calls, snapshots and reloads.
func TestDryRunHammer(t *testing.T) {
	g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 2, maxQueue: 3, maxWait: 1ns}"))
	var wg sync.WaitGroup
	const callers, rounds = 8, 200
	for range callers {
		wg.Go(func() {
			for range rounds {
				c, err := g.Admit(context.Background(), on("/"))
				if assert.NoError(t, err) {
					c.Release()
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 50 {
			g.Reload(set(t, fmt.Sprintf("per: policy, mode: observe, bulkhead: {maxConcurrent: %d, maxQueue: 3, maxWait: 1ns}", 1+i%3)))
			g.Snapshot()
		}
	})
	wg.Wait()
	c := compartment(t, g, "p", "")
	assert.EqualValues(t, callers*rounds, c.Granted)
	assert.Zero(t, c.InFlight)
}

// After a reload some in the queue of a dry run may wait less long than those before
// them.
func TestReloadShortensTheWaitOfADryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1, maxQueue: 2, maxWait: 1h}"))
		calls := []*watertight.Call{admit(t, g, on("/")), admit(t, g, on("/"))}
		g.Reload(set(t, "per: policy, mode: observe, bulkhead: {maxConcurrent: 1, maxQueue: 2, maxWait: 1s}"))
		observed := func() map[string]uint64 { return compartment(t, g, "p", "").Observed }
		for n := range uint64(3) {
			calls = append(calls, admit(t, g, on("/")))
			time.Sleep(time.Second)
			require.Equal(t, n, observed()["wait_timeout"])
			time.Sleep(time.Nanosecond)
			require.Equal(t, n+1, observed()["wait_timeout"])
		}
		calls[0].Release() // its permit goes to the second
		calls = append(calls, admit(t, g, on("/")))
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]uint64{"full": 0, "wait_timeout": 4, "open": 0}, observed())
		for _, c := range calls {
			c.Release()
		}
		admit(t, g, on("/")).Release()
		assert.Equal(t, map[string]uint64{"full": 0, "wait_timeout": 4, "open": 0}, observed())
	})
}

// A task that a dry run would have refused has no outcome for a breaker that does not
// enforce either, whatever became of it.
func TestDoThatWouldNotHaveBeenHasNoOutcome(t *testing.T) {
	for name, err := range map[string]error{"success": nil, "failure": errors.New("failed")} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, "version: 1\npolicies: [{name: db, side: client, mode: observe, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}]\n")
			require.NoError(t, g.Do(t.Context(), "db", func(ctx context.Context) error {
				assert.Equal(t, err, g.Do(ctx, "db", func(context.Context) error { return err }))
				assert.Zero(t, compartment(t, g, "db", "").Breaker.Calls)
				return nil
			}))
			assert.Equal(t, 1, compartment(t, g, "db", "").Breaker.Calls)
		})
	}
}
