package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// MatchNamed decides as a set does in which the policy stands first and matches
// everything.
func TestMatchNamedIsMatchWithThePolicyFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		matches := [][]policy.Match{
			nil,
			{{Path: "/a"}},
			{{Path: "/{x}"}, {Host: "here"}},
			{{Method: []string{"POST"}}},
		}
		var cfg policy.Config
		for i := range rapid.IntRange(1, 6).Draw(t, "policies") {
			p := policy.Policy{
				Name:  string(rune('a' + i)),
				Side:  rapid.SampledFrom([]policy.Side{policy.Both, policy.Server, policy.Client}).Draw(t, "side"),
				Match: rapid.SampledFrom(matches).Draw(t, "match"),
			}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				p.Exempt = true
			case 1:
				p.Bulkhead = &policy.Bulkhead{MaxConcurrent: 1}
			case 2:
				p.Breaker = &policy.Breaker{}
			case 3:
				p.Bulkhead, p.Breaker = &policy.Bulkhead{MaxConcurrent: 1}, &policy.Breaker{}
			}
			cfg.Policies = append(cfg.Policies, p)
		}
		at := rapid.IntRange(0, len(cfg.Policies)-1).Draw(t, "named")
		named := cfg.Policies[at]
		model := policy.Config{Policies: []policy.Policy{named}}
		model.Policies[0].Match = nil
		model.Policies = append(append(model.Policies, cfg.Policies[:at]...), cfg.Policies[at+1:]...)

		set, err := policy.New(cfg)
		require.NoError(t, err)
		want, err := policy.New(model)
		require.NoError(t, err)
		req := &policy.Request{
			Side:        rapid.SampledFrom([]policy.Side{policy.Server, policy.Client}).Draw(t, "of"),
			Method:      rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"),
			EscapedPath: rapid.SampledFrom([]string{"/a", "/b", "/b/c"}).Draw(t, "path"),
			Host:        rapid.SampledFrom([]string{"here", "there"}).Draw(t, "host"),
		}
		got, ok := set.MatchNamed(named.Name, req)
		assert.Equal(t, named.Side == policy.Both || named.Side == req.Side, ok)
		if !ok {
			assert.Zero(t, got)
			return
		}
		d := want.Match(req)
		assert.Equal(t, decided(d), decided(got))

		// Patterns are those of the policies themselves.
		usual := set.Match(req)
		for _, r := range []struct {
			rule    *policy.Rule
			pattern string
		}{{got.Bulkhead, got.BulkheadPattern}, {got.Breaker, got.BreakerPattern}} {
			switch {
			case r.rule == nil:
				assert.Empty(t, r.pattern)
			case r.rule == usual.Bulkhead:
				assert.Equal(t, usual.BulkheadPattern, r.pattern)
			case r.rule == usual.Breaker:
				assert.Equal(t, usual.BreakerPattern, r.pattern)
			}
		}
	})
}

func decided(d policy.Decision) (names [3]string) {
	for i, r := range []*policy.Rule{d.Bulkhead, d.Breaker, d.Exempt} {
		if r != nil {
			names[i] = r.Name
		}
	}
	return names
}

func TestMatchNamedOfNoName(t *testing.T) {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{Name: "a", Exempt: true}}})
	require.NoError(t, err)
	for _, test := range []struct {
		name string
		side policy.Side
		ok   bool
	}{
		{"a", policy.Server, true},
		{"a", policy.Client, true},
		{"a", policy.Both, false}, // no request is on both
		{"b", policy.Server, false},
		{"", policy.Server, false},
	} {
		_, ok := set.MatchNamed(test.name, &policy.Request{Side: test.side})
		assert.Equal(t, test.ok, ok, "%q on %v", test.name, test.side)
	}
}

// In a ServiceComb file a name may be that of a policy on each side.
func TestMatchNamedOfBothSides(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte(`
servicecomb:
  matchGroup:
    pay: |
      matches: [{apiPath: {prefix: /pay}}]
  bulkhead:
    pay: |
      maxConcurrentCalls: 3
  instanceBulkhead:
    pay: |
      maxConcurrentCalls: 5
`))
	require.NoError(t, err)
	for side, limit := range map[policy.Side]int{policy.Server: 3, policy.Client: 5} {
		d, ok := set.MatchNamed("pay", &policy.Request{Side: side, Host: "x", EscapedPath: "/else"})
		require.True(t, ok, side)
		require.Equal(t, limit, d.Bulkhead.Bulkhead.MaxConcurrent)
	}
}
