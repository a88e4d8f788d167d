package policy_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// FuzzParse holds files against what all that follows relies on: every problem
// has a place, and what has none fits the primitives.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "version: 1\npolicies: []\n",
		"version: 1\npolicies: [{name: a, match: [{path: '/{a}/{b...}', host: '*.a:1', route: GET /a, method: [GET], headers: {A: {exact: b}}}], breaker: {}}]\n",
		"version: 1\ndefaults: {maxCompartments: 1, idle: 1s}\npolicies: [{name: a, side: server, per: host, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}, reject: {status: {full: 429}, retryAfter: 0}}]\n",
		"version: 1\npolicies: [{name: a, breaker: {failureRate: 1e1, slowCall: 1s, slowCallRate: 100, window: {time: 1ms}, minCalls: 1, openFor: {initial: 1ns, max: 1h, multiplier: 1.1, jitter: 0.5, retryAfter: 1m}, halfOpen: {calls: 1, probeTimeout: 0, maxWait: 1h}, failureStatus: [500-599, 429], settle: body}}]\n",
		"version: 1\npolicies: [{name: a, per: 'header:X-T', mode: observe, match: [{path: {prefix: /a, suffix: b, contains: c, regexp: '^/a.*b$'}, query: {a: {exact: ''}}, not: [{path: {exact: /a/b}}, {headers: {A: {prefix: ''}}}]}, {not: {route: /a}}], breaker: {}}]\n",
		"version: 1\npolicies: &a [*a, {name: a, exempt: true}, {<<: *a}]\n",
		"version: 1\npolices: [{nam: a\n", "? [a]\n: {b: c}\n---\n", "\xff\xfe\x00", "!!binary a: !!int b\n", "%YAML 1.1\n---\na: 010\n",
		"version: 1\npolicies: [{name: a, exempt: true, exempt: yes}, {name: a}]\nbudget: {}\nservicecomb.x: y\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := policy.Parse("f", data)
		if err != nil {
			checkProblems(t, err.(policy.Errors))
			return
		}
		checkProblems(t, set.Warnings())
		names := map[string]bool{}
		for i, r := range set.Rules() {
			require.Equal(t, i, r.Index)
			require.NotEmpty(t, r.Name)
			// In a ServiceComb file each side has names of its own.
			require.False(t, names[r.Name] || names[r.Side.String()+r.Name], "name %q twice", r.Name)
			names[r.Side.String()+r.Name] = true
			names[r.Name] = r.Side == policy.Both
			require.Equal(t, r.Exempt, r.Bulkhead == nil && r.Breaker == nil)
			require.Equal(t, r.Per == policy.PerHeader, r.Header != "")
			for reason := policy.ReasonFull; reason <= policy.ReasonCanceled; reason++ {
				require.True(t, r.RejectStatus(reason) >= 400 && r.RejectStatus(reason) <= 599)
			}
			require.False(t, r.RetryAfter < 0)
			fits(t, r)
		}
		for _, r := range []*policy.Request{
			{Side: policy.Server, Host: "a:1", EscapedPath: "/a/%2F", RawQuery: "a=%41+b&b", Route: "GET /a", Header: http.Header{"A": {"b"}}},
			{Side: policy.Client, Host: "b.a:1", EscapedPath: "/a/b"},
		} {
			require.Equal(t, policy.MatchLinear(set, r), set.Match(r))
		}
	})
}

func checkProblems(t *testing.T, problems []*policy.Error) {
	for _, p := range problems {
		require.Equal(t, "f", p.File)
		require.GreaterOrEqual(t, p.Line, 1, p.Msg)
		require.GreaterOrEqual(t, p.Column, 1, p.Msg)
		require.NotEmpty(t, p.Msg)
		require.False(t, strings.ContainsAny(p.Msg, "\n\r"), "%q is not one line", p.Msg)
	}
	require.True(t, slices.IsSortedFunc(problems, func(a, b *policy.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	}))
}

// fits checks that the primitives accept the settings: they panic if they do not.
func fits(t *testing.T, r *policy.Rule) {
	if b := r.Bulkhead; b != nil {
		assert.NotPanics(t, func() {
			bulkhead.New(bulkhead.Config{Limit: b.MaxConcurrent, Backlog: b.MaxQueue, MaxWait: b.MaxWait})
		})
	}
	if b := r.Breaker; b != nil {
		assert.NotPanics(t, func() {
			breaker.New(breaker.Config{
				FailureRate:  b.FailureRate,
				SlowCall:     b.SlowCall,
				SlowCallRate: b.SlowCallRate,
				Window:       breaker.Window{Calls: b.Window.Calls, Time: b.Window.Time},
				MinCalls:     b.MinCalls,
				OpenFor:      breaker.Growing(b.OpenFor, b.Backoff.Max, b.Backoff.Multiplier),
				Jitter:       b.Backoff.Jitter,

				MaxRetryAfter: b.Backoff.RetryAfter,
				HalfOpen: breaker.HalfOpenConfig{
					Calls:        b.HalfOpen.Calls,
					ProbeTimeout: b.HalfOpen.ProbeTimeout,
					MaxWait:      b.HalfOpen.MaxWait,
				},
			})
		})
	}
}

// FuzzMatch holds what a request can be made of against the model.
func FuzzMatch(f *testing.F) {
	for i := range 20 {
		r := requests.Example(i)
		f.Add(i, r.Host, r.EscapedPath, r.RawQuery, "a", r.Scheme)
	}
	f.Add(1, "a.test:80", "/a/%2F/%zz", "a=%4&;&b+=%41", "\x00", "")
	f.Add(2, "[::1", "", "%61=a&a", strings.Repeat("a", 300), "ws")
	f.Add(5, "A.TEST", "00", "0", "0", "")
	f.Fuzz(func(t *testing.T, seed int, host, path, query, header, scheme string) {
		list := make([]policy.Policy, 12)
		for i := range list {
			list[i] = policies.Example(abs(seed)%10_000*100 + i)
			list[i].Name = fmt.Sprint(i)
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		for _, side := range []policy.Side{policy.Server, policy.Client} {
			r := &policy.Request{Side: side, Scheme: scheme, Host: host, EscapedPath: path, RawQuery: query, Header: http.Header{"X-Plan": {header}, "X-Tenant": {"a"}}}
			d := set.Match(r)
			require.Equal(t, policy.MatchLinear(set, r), d)
			if plain(scheme, host) {
				require.Equal(t, model(list).match(r), outcome(d))
			}
		}
	})
}

// plain reports whether the model knows what these are.
func plain(scheme, host string) bool {
	return (scheme == "http" || scheme == "https") && !strings.ContainsAny(host, "[]:") && !strings.HasSuffix(host, "..")
}

func abs(n int) int { return max(n, -n, 0) }
