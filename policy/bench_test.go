package policy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/policy"
)

// BenchmarkMatch is a request that only the last policy matches, so that all are
// looked at.
func BenchmarkMatch(b *testing.B) {
	for _, bb := range []struct {
		name  string
		match func(i int) policy.Match
		last  policy.Match
	}{
		{"path", func(i int) policy.Match { return policy.Match{Path: fmt.Sprintf("/api/v%d/items/{id}", i)} }, policy.Match{Path: "/api/last/items/{id}"}},
		{"host", func(i int) policy.Match { return policy.Match{Host: fmt.Sprintf("service%02d.internal", i)} }, policy.Match{Host: "*.internal"}},
		{"route", func(i int) policy.Match { return policy.Match{Route: fmt.Sprintf("/api/v%d/items/{id}", i)} }, policy.Match{Route: "/api/{version}/items/{id}"}},
		{"header", func(i int) policy.Match {
			return policy.Match{Headers: map[string]string{"X-Plan": fmt.Sprintf("plan%02d", i)}}
		}, policy.Match{Headers: map[string]string{"X-Plan": "free"}}},
	} {
		for _, n := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/policies=%d", bb.name, n), func(b *testing.B) {
				var list []policy.Policy
				for i := range n {
					m := bb.last
					if i < n-1 {
						m = bb.match(i)
					}
					list = append(list, policy.Policy{
						Name:     fmt.Sprint("p", i),
						Match:    []policy.Match{m},
						Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
						Breaker:  &policy.Breaker{},
					})
				}
				set, err := policy.New(policy.Config{Policies: list})
				if err != nil {
					b.Fatal(err)
				}
				header := http.Header{"X-Plan": {"free"}, "Accept": {"*/*"}, "User-Agent": {"bench"}}
				b.ReportAllocs()
				for b.Loop() {
					d := set.Match(&policy.Request{
						Side:        policy.Server,
						Method:      "GET",
						Scheme:      "http",
						Host:        "payments.internal:8080",
						EscapedPath: "/api/last/items/12345",
						Header:      header,
						Route:       "GET /api/{version}/items/{id}",
						RouteKnown:  true,
					})
					if d.Bulkhead == nil {
						b.Fatal("no match")
					}
				}
			})
		}
	}
}

func BenchmarkAppendHostKey(b *testing.B) {
	buf := make([]byte, 0, 64)
	for _, side := range []policy.Side{policy.Server, policy.Client} {
		b.Run(side.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = policy.AppendHostKey(buf[:0], side, "https", "Payments.internal:8443")
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	file := []byte(`version: 1
policies:
  - name: reports
    side: server
    match: [{path: "/reports/{id}", method: [GET]}]
    bulkhead: {maxConcurrent: 20, maxQueue: 40, maxWait: 1s}
  - name: payments
    side: client
    match: [{host: payments.internal}]
    bulkhead: {maxConcurrent: 50, maxWait: 100ms}
    breaker: {failureRate: 50, slowCall: 800ms}
`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.Parse("bench.yaml", file); err != nil {
			b.Fatal(err)
		}
	}
}
