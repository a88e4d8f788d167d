package policy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/policy"
)

// BenchmarkMatch is a request that the last policy matches, among others that do not:
// as many as the ways of a request through the index may have to be told apart. Of
// queries the index knows nothing, and all are looked at. With overlap, 15 more match,
// and have no breaker to end the search with.
func BenchmarkMatch(b *testing.B) {
	for _, bb := range []struct {
		name  string
		match func(i int) policy.Match
		last  policy.Match
	}{
		{"path", func(i int) policy.Match { return policy.Match{Path: fmt.Sprintf("/api/v%d/items/{id}", i)} }, policy.Match{Path: "/api/last/items/{id}"}},
		{"prefix", func(i int) policy.Match {
			return policy.Match{PathText: policy.Text{Prefix: fmt.Sprintf("/api/v%d/", i)}}
		}, policy.Match{PathText: policy.Text{Prefix: "/api/last/"}}},
		{"host", func(i int) policy.Match { return policy.Match{Host: fmt.Sprintf("service%02d.internal", i)} }, policy.Match{Host: "*.internal"}},
		{"method", func(i int) policy.Match { return policy.Match{Method: []string{fmt.Sprint("M", i)}} }, policy.Match{Method: []string{"GET"}}},
		{"mixed", func(i int) policy.Match {
			m := policy.Match{Path: fmt.Sprintf("/api/v%d/items/{id}", i/8%100), Method: []string{"GET", "POST"}[i%2 : i%2+1]}
			if i%8 < 6 {
				m.Host = []string{"*.internal", "payments.internal:8080", "payments.internal"}[i%3]
			}
			if i >= 800 {
				m.Host = fmt.Sprintf("service%d.internal", i/800)
			}
			return m
		}, policy.Match{Path: "/api/last/items/{id}", Host: "*.internal", Method: []string{"GET"}}},
		{"route", func(i int) policy.Match { return policy.Match{Route: fmt.Sprintf("/api/v%d/items/{id}", i)} }, policy.Match{Route: "/api/{version}/items/{id}"}},
		{"header", func(i int) policy.Match {
			return policy.Match{Headers: map[string]string{"X-Plan": fmt.Sprintf("plan%02d", i)}}
		}, policy.Match{Headers: map[string]string{"X-Plan": "free"}}},
		{"headers", func(i int) policy.Match {
			return policy.Match{Headers: map[string]string{fmt.Sprintf("X-Plan%02d", i): "free"}}
		}, policy.Match{Headers: map[string]string{"X-Plan": "free"}}},
		{"query", func(i int) policy.Match {
			return policy.Match{Query: map[string]policy.Text{"plan": {Exact: fmt.Sprintf("plan%02d", i)}}}
		}, policy.Match{Query: map[string]policy.Text{"plan": {Exact: "free"}}}},
	} {
		for _, n := range []int{1, 10, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/policies=%d", bb.name, n), func(b *testing.B) {
				list := make([]policy.Policy, n)
				for i := range list {
					m := bb.last
					if i < n-1 {
						m = bb.match(i)
					}
					list[i] = policy.Policy{Match: []policy.Match{m}, Breaker: &policy.Breaker{}}
				}
				benchmarkMatch(b, list)
			})
		}
	}
	overlapping := []policy.Match{
		{Path: "/"}, {Path: "/api/"}, {Path: "/api/last/"}, {Path: "/{a}/"}, {Path: "/{a}/{b}/"}, {Path: "/api/{b}/items/{c}"}, {Path: "/{rest...}", Method: []string{"GET"}},
		{Host: "*.internal"}, {Host: "payments.internal"}, {Host: "payments.internal:8080"}, {Host: "*.internal:8080", Method: []string{"GET"}}, {Host: "*.internal", Path: "/api/"},
		{PathText: policy.Text{Prefix: "/api/"}}, {PathText: policy.Text{Suffix: "12345"}}, {Method: []string{"GET"}}, {Path: "/api/last/items/{id}", Method: []string{"GET"}},
	}
	for _, n := range []int{16, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("overlap/policies=%d", n), func(b *testing.B) {
			list := make([]policy.Policy, n)
			for i := range list {
				if j := i - (n - len(overlapping)); j >= 0 {
					list[i] = policy.Policy{Match: overlapping[j : j+1], Breaker: &policy.Breaker{}}
				} else {
					list[i] = policy.Policy{Match: []policy.Match{{Path: fmt.Sprintf("/api/v%d/items/{id}", i)}}, Breaker: &policy.Breaker{}}
				}
			}
			benchmarkMatch(b, list)
		})
	}
}

func benchmarkMatch(b *testing.B, list []policy.Policy) {
	for i := range list {
		list[i].Name = fmt.Sprint("p", i)
		list[i].Bulkhead = &policy.Bulkhead{MaxConcurrent: 1}
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
			Path:        "/api/last/items/12345",
			RawQuery:    "plan=free",
			Header:      header,
			Route:       "GET /api/{version}/items/{id}",
			RouteKnown:  true,
		})
		if d.Bulkhead == nil {
			b.Fatal("no match")
		}
	}
}

// BenchmarkNew builds the index of 10,000 policies, besides the policies.
func BenchmarkNew(b *testing.B) {
	list := make([]policy.Policy, 10_000)
	for i := range list {
		list[i] = policy.Policy{
			Name:     fmt.Sprint("p", i),
			Match:    []policy.Match{{Path: fmt.Sprintf("/api/v%d/items/{id}", i), Host: fmt.Sprintf("*.service%d.internal", i%100)}},
			Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.New(policy.Config{Policies: list}); err != nil {
			b.Fatal(err)
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
