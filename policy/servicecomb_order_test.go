package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	drawnPaths = rapid.SampledFrom([]string{"", "/", "/a", "/a/", "/ab", "/a/b", "b", ".b"})
	drawnKinds = rapid.SampledFrom([]operatorKind{operatorExact, operatorPrefix, operatorSuffix, operatorContains})
	drawnOps   = rapid.Custom(func(t *rapid.T) operator {
		return operator{kind: drawnKinds.Draw(t, "kind"), text: drawnPaths.Draw(t, "text")}
	})
	drawnGroups = rapid.Custom(func(t *rapid.T) *combGroup {
		return &combGroup{entries: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) combEntry {
			e := combEntry{
				never:   rapid.IntRange(0, 9).Draw(t, "never") == 0,
				path:    rapid.SliceOfN(drawnOps, 0, 2).Draw(t, "path"),
				methods: rapid.SliceOfN(rapid.SampledFrom([]string{"GET", "PUT"}), 0, 2).Draw(t, "methods"),
				service: rapid.SampledFrom([]string{"", "", "s", "t"}).Draw(t, "service"),
			}
			if rapid.Bool().Draw(t, "header") {
				e.headers = []valueCondition{{"X", rapid.SliceOfN(drawnOps, 1, 1).Draw(t, "value")}}
			}
			return e
		}), 1, 3).Draw(t, "entries")}
	})
)

// The short way finds the same ties as a look at each pair.
func TestTiesAgainstEachPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*combPolicy
		for _, g := range rapid.SliceOfN(drawnGroups, 0, 6).Draw(t, "groups") {
			all = append(all, &combPolicy{group: g})
		}
		want := make([]int, len(all))
		for i := range all {
			want[i] = -1
			for j := range all[:i] {
				if want[i] < 0 && all[i].group.meets(all[j].group) {
					want[i] = j
				}
			}
		}
		require.Equal(t, want, ties(all))
	})
}

// If two groups are said not to meet, no request is in both.
func TestGroupsThatDoNotMeet(t *testing.T) {
	requests := rapid.Custom(func(t *rapid.T) *parts {
		p := new(parts)
		p.take(&Request{
			Method: rapid.SampledFrom([]string{"GET", "PUT", "POST"}).Draw(t, "method"),
			Path:   strings.Join(rapid.SliceOfN(drawnPaths, 1, 3).Draw(t, "path"), ""),
			Header: map[string][]string{
				"X":                      {drawnPaths.Draw(t, "value")},
				"X-Cse-Src-Microservice": {rapid.SampledFrom([]string{"s", "t"}).Draw(t, "caller")},
			},
		})
		return p
	})
	matches := func(g *combGroup, p *parts) bool {
		for i := range g.entries {
			e := g.entries[i].compile(Server)
			if !g.entries[i].never && e.match(p) {
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawnGroups.Draw(t, "a"), drawnGroups.Draw(t, "b")
		require.Equal(t, a.meets(b), b.meets(a))
		for range 20 {
			p := requests.Draw(t, "request")
			if matches(a, p) && matches(b, p) {
				require.True(t, a.meets(b))
			}
		}
	})
}

// One list has both orders in it, and no name twice.
func TestJoin(t *testing.T) {
	names := rapid.Permutation([]string{"a", "b", "c", "d", "e"})
	policies := func(t *rapid.T, label string, set func(*combPolicy)) (all []*combPolicy) {
		for _, name := range names.Draw(t, label)[:rapid.IntRange(0, 5).Draw(t, "how many")] {
			p := &combPolicy{section: section{name: name}, group: &combGroup{}}
			set(p)
			all = append(all, p)
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		bulkheads := policies(t, "bulkheads", func(p *combPolicy) { p.bulkhead = &BulkheadSettings{} })
		breakers := policies(t, "breakers", func(p *combPolicy) { p.breaker = &BreakerSettings{} })
		var gotBulkheads, gotBreakers []string
		seen := map[string]bool{}
		for _, r := range join(Server, bulkheads, breakers) {
			require.False(t, seen[r.Name], "%s twice", r.Name)
			seen[r.Name] = true
			name := strings.TrimSuffix(r.Name, " (breaker)")
			if r.Bulkhead != nil {
				require.Equal(t, name, r.Name)
				gotBulkheads = append(gotBulkheads, name)
			}
			if r.Breaker != nil {
				gotBreakers = append(gotBreakers, name)
			}
		}
		require.Equal(t, namesOf(bulkheads), gotBulkheads)
		require.Equal(t, namesOf(breakers), gotBreakers)
	})
	same := []*combPolicy{{section: section{name: "a"}, group: &combGroup{}}, {section: section{name: "b"}, group: &combGroup{}}}
	assert.Len(t, join(Server, same, same), 2, "in the same order all are joined")
	var taken []placedRule
	for _, name := range []string{"a", "a (breaker)", "a"} {
		taken = append(taken, placedRule{Rule: &Rule{Name: name}})
	}
	taken[1].Bulkhead, taken[2].Bulkhead = &BulkheadSettings{}, &BulkheadSettings{}
	apart(taken)
	assert.Equal(t, "a (breaker) (breaker)", taken[0].Name)
}

func namesOf(all []*combPolicy) (names []string) {
	for _, p := range all {
		names = append(names, p.name)
	}
	return names
}

// BenchmarkParseServiceComb reads files of many policies that have no order of their
// own.
func BenchmarkParseServiceComb(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("servicecomb:\n  matchGroup:\n")
			for i := range n {
				fmt.Fprintf(&text, "    p%d: |\n      matches:\n        - apiPath: {prefix: /service/%d/}\n", i, i)
			}
			text.WriteString("  bulkhead:\n")
			for i := range n {
				fmt.Fprintf(&text, "    p%d: |\n      maxConcurrentCalls: 5\n", i)
			}
			b.ReportAllocs()
			for b.Loop() {
				set, err := Parse("f", []byte(text.String()))
				if err != nil || len(set.Rules()) != n {
					b.Fatal(err)
				}
			}
		})
	}
}
