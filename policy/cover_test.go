package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// unused returns the names of the policies that a set warns are never used, or a part
// of which, their bulkhead or breaker, never is.
func unused(set *policy.Set, part string) (names []string) {
	for _, w := range set.Warnings() {
		if name, _, ok := strings.Cut(w.Msg, ": "+part+" is never used: "); ok {
			names = append(names, strings.Trim(strings.TrimPrefix(name, "policy "), `"`))
		}
	}
	return names
}

// What is said to be never used decides about no request.
func TestWhatIsNeverUsedDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(policies, 2, 6).Draw(t, "policies")
		// Often enough one has the conditions of another, or some of them.
		if rapid.Bool().Draw(t, "same") {
			list[len(list)-1].Match = list[0].Match
		}
		for i := range list {
			list[i].Name = string(rune('a' + i))
		}
		set, err := policy.New(policy.Config{Policies: list})
		if err != nil {
			t.Skip("a client has no routes")
		}
		names, bulkheads, breakers := unused(set, "it"), unused(set, "its bulkhead"), unused(set, "its breaker")
		if len(names)+len(bulkheads)+len(breakers) == 0 {
			return
		}
		for range 30 {
			d := set.Match(requests.Draw(t, "request"))
			for _, r := range []*policy.Rule{d.Bulkhead, d.Breaker, d.Exempt} {
				if r != nil {
					require.NotContains(t, names, r.Name)
				}
			}
			if d.Bulkhead != nil {
				require.NotContains(t, bulkheads, d.Bulkhead.Name)
			}
			if d.Breaker != nil {
				require.NotContains(t, breakers, d.Breaker.Name)
			}
		}
	})
}

func TestCoveredPolicies(t *testing.T) {
	for _, tt := range []struct {
		first, later string // entries of match
		covered      bool
	}{
		{"{path: /a/}", "{path: /a/b}", true},
		{"{path: /a/}", "{path: /a}", false},
		{"{path: /a/}", "{path: '/a/{id}'}", true},
		{"{path: /a/}", "{path: '/a/{$}'}", true},
		{"{path: /a/}", "{path: '/a/{rest...}'}", true},
		{"{path: '/a/{id}'}", "{path: /a/b}", true},
		{"{path: '/a/{id}'}", "{path: /a/}", false},
		{"{path: '/a/{id}'}", "{path: '/a/{$}'}", false},
		{"{path: /a/b}", "{path: '/a/{id}'}", false},
		{"{path: /}", "{path: /a}", true},
		{"{path: /}", "{path: {prefix: /a}}", true},
		{"{path: /}", "{path: {exact: /a, suffix: a}}", true},
		{"{path: /}", "{path: {exact: '*'}}", false},
		{"{path: /}", "{path: {suffix: a}}", false},
		{"{path: /a/}", "{path: {prefix: /a/b}}", false}, // /a%2Fb
		{"{path: {prefix: /a}}", "{path: /a/b}", true},
		{"{path: {prefix: /a}}", "{path: '/a/{id}'}", true},
		{"{path: {prefix: /a/b}}", "{path: '/a/{id}'}", false},
		{"{path: {prefix: /a}}", "{path: {prefix: /ab}}", true},
		{"{path: {prefix: /ab}}", "{path: {prefix: /a}}", false},
		{"{path: {prefix: /a}}", "{path: {exact: /ab, suffix: b}}", true},
		{"{path: {suffix: .csv}}", "{path: {suffix: x.csv}}", true},
		{"{path: {suffix: .csv}}", "{path: /a.csv}", true},
		{"{path: {contains: b}}", "{path: {prefix: /abc}}", true},
		{"{path: {contains: b}}", "{path: {contains: abc}}", true},
		{"{path: {regexp: b}}", "{path: /abc}", true},
		{"{path: {regexp: b}}", "{path: {prefix: /abc}}", false},
		{"{path: {regexp: ^b$}}", "{path: {regexp: ^b$}}", false}, // no example is known
		{"{path: /a}", "{path: /a, method: [GET]}", true},
		{"{path: /a, method: [GET]}", "{path: /a}", false},
		{"{path: /a, method: [GET, PUT]}", "{path: /a, method: [PUT]}", true},
		{"{host: a.test}", "{host: 'a.test:80'}", true},
		{"{host: 'a.test:80'}", "{host: a.test}", false},
		{"{host: '*.test'}", "{host: a.test}", true},
		{"{host: '*.test'}", "{host: '*.a.test'}", true},
		{"{host: '*.test'}", "{host: '*.test'}", true},
		{"{host: '*.test'}", "{host: test}", false},
		{"{host: a.test}", "{path: /a}", false},
		{"{route: /a}", "{route: /a, method: [GET]}", true},
		{"{route: /a}", "{route: GET /a}", true},
		{"{route: /a}", "{route: GET a.test/a}", true},
		{"{route: GET /a}", "{route: GET a.test/a}", true},
		{"{route: GET /a}", "{route: /a}", false},
		{"{route: GET /a}", "{route: PUT /a}", false},
		{"{route: a.test/a}", "{route: /a}", false},
		{"{headers: {A: {prefix: b}}}", "{headers: {a: {exact: bc}, C: {exact: d}}}", true},
		{"{headers: {A: {prefix: b}}}", "{headers: {C: {exact: bc}}}", false},
		{"{query: {a: {exact: b}}}", "{query: {a: {exact: b}}, path: /a}", true},
		{"{path: /a, not: {method: [PUT]}}", "{path: /a}", false},
		{"{path: /a, not: {method: [PUT]}}", "{path: /a, not: {method: [PUT]}}", true},
		{"{path: /a}", "{path: /a, not: {method: [PUT]}}", true},
		{"{path: /b}, {path: /a}", "{path: /a}", true},
		{"{path: /a}", "{path: /a}, {path: /b}", false},
		{"{path: /a}, {path: /b}", "{path: /a}, {path: /b}", true},
	} {
		file := fmt.Sprintf("version: 1\npolicies:\n  - {name: first, side: server, match: [%s], bulkhead: {maxConcurrent: 1}}\n  - {name: later, side: server, match: [%s], bulkhead: {maxConcurrent: 1}}\n", tt.first, tt.later)
		set, err := policy.Parse("f", []byte(file))
		require.NoError(t, err, file)
		assert.Equal(t, tt.covered, len(unused(set, "it")) > 0, "%s before %s", tt.first, tt.later)
	}
	set, err := policy.Parse("f", []byte(`version: 1
policies:
  - {name: a, side: server, match: [{path: /a}], bulkhead: {maxConcurrent: 1}}
  - {name: b, side: client, match: [{path: /a}], exempt: true}
  - {name: c, match: [{path: /a}], bulkhead: {maxConcurrent: 1}}
  - {name: d, match: [{path: /a}], breaker: {}}
  - {name: e, match: [{path: /a}], bulkhead: {maxConcurrent: 1}, breaker: {}}
`))
	require.NoError(t, err)
	var got []string
	for _, w := range set.Warnings() {
		got = append(got, w.Error())
	}
	assert.Equal(t, []string{
		`f:5:12: policy "c": it is never used: policy "b" in line 4 takes all that it matches; move it up, or leave it out`,
		`f:7:12: policy "e": it is never used: policy "d" in line 6 takes all that it matches; move it up, or leave it out`,
	}, got)
}
