package watertight_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// Judge stands in for what the policy would make of a call, wherever it is settled;
// what the caller did itself weighs as ever against a failure.
func TestJudge(t *testing.T) {
	client, server := to("a"), on("/")
	const late = 150 * time.Millisecond
	status := func(s int) func(*watertight.Call) { return func(c *watertight.Call) { c.SettleStatus(s) } }
	body := func(s int, err error) func(*watertight.Call) {
		return func(c *watertight.Call) {
			c.Responded(s)
			c.SettleBody(err)
		}
	}
	failure := (*watertight.Call).SettleFailure

	for _, test := range []struct {
		name    string
		req     *policy.Request
		cancels bool // the caller, after a millisecond
		lasts   time.Duration
		judged  breaker.Outcome
		settle  func(*watertight.Call)
		want    string
	}{
		{"500, a success", client, false, 0, breaker.Success, status(500), "ok"},
		{"500, a late success", client, false, late, breaker.Success, status(500), "slow"},
		{"200, a failure", client, false, 0, breaker.Failure, status(200), "failed"},
		{"200, a late failure", client, false, late, breaker.Failure, status(200), "both"},
		{"500, ignored", client, false, late, breaker.Ignored, status(500), "neutral"},
		{"500, as the policy says", client, false, 0, 0, status(500), "failed"},
		{"200, as the policy says", client, false, 0, 0, status(200), "ok"},
		{"500, nonsense", client, false, 0, 77, status(500), "failed"},
		{"error, a success", client, false, 0, breaker.Success, failure, "ok"},
		{"error, a failure", client, false, 0, breaker.Failure, failure, "failed"},
		{"error, ignored", client, false, late, breaker.Ignored, failure, "neutral"},
		{"error, as the policy says", client, false, 0, 0, failure, "failed"},

		{"the caller cancels, a failure", client, true, 50 * time.Millisecond, breaker.Failure, failure, "neutral"},
		{"the caller cancels late, a failure", client, true, late, breaker.Failure, failure, "slow"},
		{"the caller cancels, a success", client, true, 50 * time.Millisecond, breaker.Success, failure, "ok"},
		{"the caller cancels late, ignored", client, true, late, breaker.Ignored, failure, "neutral"},
		{"the handler's client leaves late, ignored", server, true, late, breaker.Ignored, status(200), "neutral"},
		{"the handler's client leaves, a success", server, true, 50 * time.Millisecond, breaker.Success, status(200), "neutral"},

		{"settle: body, read to its end, a failure", client, false, 0, breaker.Failure, body(200, io.EOF), "failed"},
		{"settle: body, read to its end, a success", client, false, 0, breaker.Success, body(500, io.EOF), "ok"},
		{"settle: body, closed, a failure", client, false, 0, breaker.Failure, body(200, nil), "failed"},
		{"settle: body, breaks off, a success", client, false, 0, breaker.Success, body(500, io.ErrUnexpectedEOF), "failed"},
		{"settle: body, breaks off, ignored", client, false, late, breaker.Ignored, body(500, io.ErrUnexpectedEOF), "neutral"},
		{"settle: body, the caller leaves late, ignored", client, true, late, breaker.Ignored, body(500, nil), "neutral"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    breaker: {slowCall: 100ms, minCalls: 1, failureRate: 100, slowCallRate: 100, settle: body}
`)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancels {
					time.AfterFunc(time.Millisecond, cancel)
				}
				call, err := g.Admit(ctx, test.req)
				assert.NoError(t, err)
				time.Sleep(test.lasts)
				synctest.Wait()
				call.Judge(breaker.Ignored) // the last one given wins
				call.Judge(test.judged)
				test.settle(&call)
				call.Judge(breaker.Failure) // too late
				test.settle(&call)
				call.Release()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// E42: a probe that is judged to say nothing is handed back, a hundred times over.
func TestAnIgnoredProbeIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}
`)
		trip, err := g.Admit(t.Context(), to("a"))
		assert.NoError(t, err)
		trip.SettleFailure()
		trip.Release()
		time.Sleep(time.Second)
		for range 100 {
			probe, err := g.Admit(t.Context(), to("a"))
			assert.NoError(t, err)
			probe.Judge(breaker.Ignored)
			probe.SettleStatus(500)
			probe.Release()
		}
		assert.Equal(t, "half_open", compartment(t, g, "all", "").Breaker.State)
		probe, err := g.Admit(t.Context(), to("a"))
		assert.NoError(t, err)
		probe.SettleStatus(200)
		probe.Release()
		assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
	})
}

// The zero Call, and one that no breaker watches, have nothing to judge.
func TestJudgeOfNothing(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: all, per: policy, bulkhead: {maxConcurrent: 1}}]}")
	for _, call := range []*watertight.Call{{}, admit(t, g, to("a"))} {
		call.Judge(breaker.Failure)
		assert.False(t, call.Watched())
		call.SettleStatus(200)
		call.SettleFailure()
		call.Release()
	}
	c := compartment(t, g, "all", "")
	assert.EqualValues(t, 1, c.Granted)
	assert.Zero(t, c.InFlight)
	assert.Nil(t, c.Breaker)
}
