package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

func mustParse(t *testing.T, file string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(file))
	require.NoError(t, err)
	return set
}

func TestDefaults(t *testing.T) {
	set := mustParse(t, `
version: 1
policies:
  - name: a
    bulkhead: {maxConcurrent: 7}
    breaker: {}
  - name: b
    bulkhead: {maxConcurrent: 7, maxWait: 1s}
    breaker: {slowCall: 1s}
  - name: c
    exempt: true
`)
	assert.Equal(t, policy.Defaults{MaxCompartments: 10000, Idle: 10 * time.Minute}, set.Defaults())
	rules := set.Rules()
	require.Len(t, rules, 3)

	a := rules[0]
	assert.Equal(t, 0, a.Index)
	assert.Equal(t, "a", a.Name)
	assert.Equal(t, policy.Both, a.Side)
	assert.Equal(t, policy.PerRoute, a.PerOn(policy.Server))
	assert.Equal(t, policy.PerHost, a.PerOn(policy.Client))
	assert.False(t, a.Exempt)
	assert.Equal(t, policy.BulkheadSettings{MaxConcurrent: 7}, *a.Bulkhead)
	assert.Equal(t, 50.0, a.Breaker.FailureRate)
	assert.Zero(t, a.Breaker.SlowCall)
	assert.Equal(t, policy.Window{Calls: 100}, a.Breaker.Window)
	assert.Equal(t, 20, a.Breaker.MinCalls)
	assert.Equal(t, 30*time.Second, a.Breaker.OpenFor)
	assert.Equal(t, policy.Backoff{Max: 30 * time.Second, Multiplier: 2}, a.Breaker.Backoff, "grows not at all")
	assert.Equal(t, policy.SettleHeaders, a.Breaker.Settle)
	assert.Equal(t, policy.HalfOpen{Calls: 10, ProbeTimeout: 30 * time.Second}, a.Breaker.HalfOpen)
	assert.Equal(t, []policy.StatusRange{{From: 500, To: 599}}, a.Breaker.FailureStatus)
	assert.Equal(t, time.Second, a.RetryAfter)
	for reason, want := range map[policy.Reason]int{
		policy.ReasonFull: 503, policy.ReasonWaitTimeout: 408, policy.ReasonOpen: 503, policy.ReasonDraining: 503, policy.ReasonCanceled: 503,
	} {
		assert.Equal(t, want, a.RejectStatus(reason), reason.String())
	}

	assert.Equal(t, policy.BulkheadSettings{MaxConcurrent: 7, MaxQueue: 1000, MaxWait: time.Second}, *rules[1].Bulkhead)
	assert.Equal(t, 80.0, rules[1].Breaker.SlowCallRate)

	assert.True(t, rules[2].Exempt)
	assert.Nil(t, rules[2].Bulkhead)
	assert.Nil(t, rules[2].Breaker)
}

func TestEveryKey(t *testing.T) {
	set := mustParse(t, `
version: 1
defaults: {maxCompartments: 5, idle: 1h}
policies:
  - name: all keys
    side: both
    match:
      - method: [GET, HEAD]
        path: /a/{id}
        host: "*.example.com:8080"
        headers:
          x-plan: {exact: free}
      - route: GET /a/{id}
    per: host
    bulkhead: {maxConcurrent: 1, maxQueue: 2, maxWait: 3ms}
    breaker:
      failureRate: 0.5e2
      slowCall: 4ms
      slowCallRate: 99.5
      window: {time: 5s}
      minCalls: 6
      openFor: {initial: 7s, max: 8m, multiplier: 1.5, jitter: 0.25, retryAfter: 9m}
      halfOpen: {calls: 8, probeTimeout: 0, maxWait: 9s}
      failureStatus: [429, 500-503, "505"]
      settle: body
      force: closed
    reject:
      status: {full: 429, wait_timeout: 503, open: 599, draining: 400, canceled: 499}
      retryAfter: 0
`)
	assert.Empty(t, set.Warnings())
	assert.Equal(t, policy.Defaults{MaxCompartments: 5, Idle: time.Hour}, set.Defaults())
	r := set.Rules()[0]
	assert.Equal(t, policy.PerHost, r.PerOn(policy.Server))
	assert.Equal(t, policy.BulkheadSettings{MaxConcurrent: 1, MaxQueue: 2, MaxWait: 3 * time.Millisecond}, *r.Bulkhead)
	b := r.Breaker
	assert.Equal(t, 50.0, b.FailureRate)
	assert.Equal(t, 4*time.Millisecond, b.SlowCall)
	assert.Equal(t, 99.5, b.SlowCallRate)
	assert.Equal(t, policy.Window{Time: 5 * time.Second}, b.Window)
	assert.Equal(t, 6, b.MinCalls)
	assert.Equal(t, 7*time.Second, b.OpenFor)
	assert.Equal(t, policy.Backoff{Max: 8 * time.Minute, Multiplier: 1.5, Jitter: 0.25, RetryAfter: 9 * time.Minute}, b.Backoff)
	assert.Equal(t, policy.SettleBody, b.Settle)
	assert.Equal(t, policy.ForceClosed, b.Force)
	assert.Equal(t, 8, b.HalfOpen.Calls)
	assert.Negative(t, b.HalfOpen.ProbeTimeout, "0 in a file turns it off")
	assert.Equal(t, 9*time.Second, b.HalfOpen.MaxWait)
	for status, want := range map[int]bool{-1: false, 0: false, 428: false, 429: true, 499: false, 500: true, 503: true, 504: false, 505: true, 599: false, 1 << 40: false} {
		assert.Equal(t, want, b.IsFailure(status), "status %d", status)
	}
	for reason, want := range map[policy.Reason]int{
		policy.ReasonFull: 429, policy.ReasonWaitTimeout: 503, policy.ReasonOpen: 599, policy.ReasonDraining: 400, policy.ReasonCanceled: 499, policy.Reason(99): 503,
	} {
		assert.Equal(t, want, r.RejectStatus(reason), reason.String())
	}
	assert.Zero(t, r.RetryAfter)
}

func TestUsesRoutes(t *testing.T) {
	for _, tt := range []struct {
		policies string
		want     bool
	}{
		{`[]`, false},
		{`[{name: a, bulkhead: {maxConcurrent: 1}}]`, true},
		{`[{name: a, side: client, bulkhead: {maxConcurrent: 1}}]`, false},
		{`[{name: a, per: host, breaker: {}}]`, false},
		{`[{name: a, per: policy, breaker: {}}]`, false},
		{`[{name: a, per: policy, match: [{route: /a}], breaker: {}}]`, true},
		{`[{name: a, exempt: true, match: [{path: /a}]}]`, false},
		{`[{name: a, exempt: true, match: [{route: /a}]}]`, true},
		{`[{name: a, per: policy, breaker: {}}, {name: b, per: route, breaker: {}}]`, true},
	} {
		set := mustParse(t, "version: 1\npolicies: "+tt.policies)
		assert.Equal(t, tt.want, set.UsesRoutes(), tt.policies)
	}
}

func TestAliases(t *testing.T) {
	set := mustParse(t, `
version: 1
policies:
  - name: a
    bulkhead: &small {maxConcurrent: 3, maxWait: &wait 10ms}
  - name: b
    bulkhead: *small
    reject: {retryAfter: *wait}
`)
	assert.Equal(t, 3, set.Rules()[1].Bulkhead.MaxConcurrent)
	assert.Equal(t, 10*time.Millisecond, set.Rules()[1].RetryAfter)
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")

	_, err := policy.Load(path)
	assert.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("version: 1\npolicies: [{name: a, breaker: {}}]\n"), 0o600))
	set, err := policy.Load(path)
	require.NoError(t, err)
	assert.Equal(t, "a", set.Rules()[0].Name)

	require.NoError(t, os.WriteFile(path, []byte("version: 1\npolicies: [{name: a, braker: {}}]\n"), 0o600))
	_, err = policy.Load(path)
	assert.EqualError(t, err, path+`:2:22: policy "a": unknown key "braker"; did you mean "breaker"?`)
	var problems policy.Errors
	require.ErrorAs(t, err, &problems)
	assert.Equal(t, policy.Error{File: path, Line: 2, Column: 22, Msg: `policy "a": unknown key "braker"; did you mean "breaker"?`}, *problems[0])
	var first *policy.Error
	require.ErrorAs(t, err, &first)
	assert.Equal(t, 22, first.Column)

	_, err = policy.Load(filepath.Dir(path))
	require.Error(t, err, "a directory")
	assert.False(t, errors.As(err, &problems))

	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("# a comment\n"), 1<<19), 0o600))
	_, err = policy.Load(path)
	assert.EqualError(t, err, path+":1:1: a policy file may have at most 4194304 bytes")
}

// E49: the ends of a range are in it.
func TestEndsOfRanges(t *testing.T) {
	mustParse(t, `
version: 1
defaults: {maxCompartments: 1000000000, idle: 8760h}
policies:
  - name: least
    match: [{path: /a}]
    bulkhead: {maxConcurrent: 1, maxQueue: 0, maxWait: 0}
    breaker:
      failureRate: 0.0001
      slowCall: 1ns
      slowCallRate: 1
      window: {time: 1ms}
      minCalls: 1
      openFor: {initial: 1ns, max: 8760h, multiplier: 1.1, jitter: 0, retryAfter: 0}
      halfOpen: {calls: 1, probeTimeout: 0, maxWait: 0}
      failureStatus: [100, 999, 100-999]
    reject: {status: {full: 400}, retryAfter: 0}
  - name: most
    bulkhead: {maxConcurrent: 1000000000, maxQueue: 1000000000, maxWait: 8760h}
    breaker:
      failureRate: 100
      slowCall: 8760h
      slowCallRate: 100.0
      window: {calls: 1000000}
      minCalls: 1000000
      openFor: {initial: 8760h, max: 8760h, multiplier: 100, jitter: 0.999, retryAfter: 8760h}
      halfOpen: {calls: 1000000, probeTimeout: 8760h, maxWait: 8760h}
    reject: {status: {full: 599}, retryAfter: 8760h}
`)
}

func TestPerOn(t *testing.T) {
	set := mustParse(t, `
version: 1
policies:
  - {name: default, breaker: {}, match: [{path: /a}]}
  - {name: policy, per: policy, breaker: {}, match: [{path: /a}]}
  - {name: route, per: route, breaker: {}, match: [{path: /a}]}
  - {name: host, per: host, breaker: {}, match: [{path: /a}]}
  - {name: header, per: "header:x-tenant", breaker: {}, match: [{path: /a}]}
`)
	for i, want := range [][2]policy.Per{
		{policy.PerRoute, policy.PerHost},
		{policy.PerPolicy, policy.PerPolicy},
		{policy.PerRoute, policy.PerHost},
		{policy.PerHost, policy.PerHost},
		{policy.PerHeader, policy.PerHeader},
	} {
		r := set.Rules()[i]
		assert.Equal(t, want, [2]policy.Per{r.PerOn(policy.Server), r.PerOn(policy.Client)}, r.Name)
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "both server client Side(3)", fmt.Sprint(policy.Both, " ", policy.Server, " ", policy.Client, " ", policy.Side(3)))
	assert.Equal(t, "default policy route host header Per(5)", fmt.Sprint(policy.PerDefault, " ", policy.PerPolicy, " ", policy.PerRoute, " ", policy.PerHost, " ", policy.PerHeader, " ", policy.Per(5)))
	assert.Equal(t, "enforce observe Mode(2)", fmt.Sprint(policy.Enforce, " ", policy.Observe, " ", policy.Mode(2)))
	assert.Equal(t, "headers body Settle(2)", fmt.Sprint(policy.SettleHeaders, " ", policy.SettleBody, " ", policy.Settle(2)))
	assert.Equal(t, "full wait_timeout open draining canceled Reason(5)", fmt.Sprint(policy.ReasonFull, " ", policy.ReasonWaitTimeout, " ", policy.ReasonOpen, " ", policy.ReasonDraining, " ", policy.ReasonCanceled, " ", policy.Reason(5)))
	assert.Equal(t, "503 503 500-599", fmt.Sprint(policy.StatusRange{From: 503}, " ", policy.StatusRange{From: 503, To: 503}, " ", policy.StatusRange{From: 500, To: 599}))
}
