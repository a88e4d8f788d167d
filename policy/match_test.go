package policy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

func mustNew(t require.TestingT, policies ...policy.Policy) *policy.Set {
	set, err := policy.New(policy.Config{Policies: policies})
	require.NoError(t, err)
	return set
}

// outcome names the policies of a decision: bulkhead, breaker, exempt.
func outcome(d policy.Decision) [3]string {
	var names [3]string
	for i, r := range []*policy.Rule{d.Bulkhead, d.Breaker, d.Exempt} {
		if r != nil {
			names[i] = r.Name
		}
	}
	return names
}

func TestFirstMatchWinsForEach(t *testing.T) {
	bulkhead, breaker := &policy.Bulkhead{MaxConcurrent: 1}, &policy.Breaker{}
	at := func(path string) []policy.Match { return []policy.Match{{Path: path}} }
	set := mustNew(t,
		policy.Policy{Name: "client", Side: policy.Client, Bulkhead: bulkhead, Breaker: breaker},
		policy.Policy{Name: "free", Match: at("/free"), Exempt: true},
		policy.Policy{Name: "a", Match: at("/a/"), Bulkhead: bulkhead},
		policy.Policy{Name: "ab", Match: at("/a/b/"), Bulkhead: bulkhead, Breaker: breaker},
		policy.Policy{Name: "half", Match: at("/a/half"), Exempt: true},
		policy.Policy{Name: "all", Side: policy.Server, Match: []policy.Match{{Path: "/x"}, {Path: "/{any...}", Method: []string{"GET", "HEAD"}}}, Breaker: breaker},
	)
	for _, tt := range []struct {
		name string
		req  policy.Request
		want [3]string
	}{
		{"the client's policy is not the server's", policy.Request{Side: policy.Client}, [3]string{"client", "client", ""}},
		{"exempt ends both searches", policy.Request{Side: policy.Server, EscapedPath: "/free"}, [3]string{"", "", "free"}},
		{"bulkhead and breaker of different policies", policy.Request{Side: policy.Server, EscapedPath: "/a/b/"}, [3]string{"a", "ab", ""}},
		{"the search for a breaker goes on", policy.Request{Side: policy.Server, EscapedPath: "/a/c"}, [3]string{"a", "all", ""}},
		{"exempt after a bulkhead ends the search for a breaker", policy.Request{Side: policy.Server, EscapedPath: "/a/half"}, [3]string{"a", "", ""}},
		{"an empty method is GET", policy.Request{Side: policy.Server}, [3]string{"", "all", ""}},
		{"fields of an entry are all needed", policy.Request{Side: policy.Server, Method: "POST"}, [3]string{"", "", ""}},
		{"one entry is enough", policy.Request{Side: policy.Server, Method: "POST", EscapedPath: "/x"}, [3]string{"", "all", ""}},
		{"no side, no policy", policy.Request{}, [3]string{"", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, outcome(set.Match(&tt.req)))
		})
	}
}

func TestDecisionHasThePatternThatMatched(t *testing.T) {
	set := mustNew(t,
		policy.Policy{
			Name:     "a",
			Match:    []policy.Match{{Path: "/a/{id}", Method: []string{"PUT"}}, {Path: "/a/"}, {Host: "h"}},
			Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		},
		policy.Policy{Name: "b", Match: []policy.Match{{Path: "/{x...}"}}, Breaker: &policy.Breaker{}},
	)
	for _, tt := range []struct {
		req  policy.Request
		want [2]string
	}{
		{policy.Request{Method: "PUT", EscapedPath: "/a/b"}, [2]string{"/a/{id}", "/{x...}"}},
		{policy.Request{EscapedPath: "/a/b"}, [2]string{"/a/", "/{x...}"}},
		{policy.Request{EscapedPath: "/b", Host: "h"}, [2]string{"", "/{x...}"}},
	} {
		tt.req.Side = policy.Server
		d := set.Match(&tt.req)
		assert.NotNil(t, d.Bulkhead)
		assert.Equal(t, tt.want, [2]string{d.BulkheadPattern, d.BreakerPattern}, "%+v", tt.req)
	}
}

func TestMatchOneEntry(t *testing.T) {
	plan := http.Header{"X-Plan": {"gold", "free"}}
	for _, tt := range []struct {
		name  string
		match policy.Match
		req   policy.Request
		want  bool
	}{
		{"method", policy.Match{Method: []string{"GET"}}, policy.Request{Method: "GET"}, true},
		{"HEAD is not GET", policy.Match{Method: []string{"GET"}}, policy.Request{Method: "HEAD"}, false},
		{"methods have case", policy.Match{Method: []string{"GET"}}, policy.Request{Method: "get"}, false},

		{"header", policy.Match{Headers: map[string]string{"x-plan": "free"}}, policy.Request{Header: plan}, true},
		{"header, other value", policy.Match{Headers: map[string]string{"X-Plan": "Free"}}, policy.Request{Header: plan}, false},
		{"header, part of a value", policy.Match{Headers: map[string]string{"X-Plan": "go"}}, policy.Request{Header: plan}, false},
		{"header, none", policy.Match{Headers: map[string]string{"X-Plan": ""}}, policy.Request{}, false},
		{"header, empty", policy.Match{Headers: map[string]string{"X-Plan": ""}}, policy.Request{Header: http.Header{"X-Plan": {""}}}, true},
		{"headers are all needed", policy.Match{Headers: map[string]string{"X-Plan": "free", "A": "b"}}, policy.Request{Header: plan}, false},

		{"route of chi", policy.Match{Route: "/a/{id}"}, policy.Request{Route: "/a/{id}"}, true},
		{"route of ServeMux", policy.Match{Route: "/a/{id}"}, policy.Request{Route: "GET example.com/a/{id}"}, true},
		{"route with a method only", policy.Match{Route: "/a/{id}"}, policy.Request{Route: "GET  /a/{id}"}, true},
		{"route with a host only", policy.Match{Route: "/a/{id}"}, policy.Request{Route: "example.com/a/{id}"}, true},
		{"route of a regexp with a space", policy.Match{Route: "/{id:[a-z /]+}"}, policy.Request{Route: "/{id:[a-z /]+}"}, true},
		{"route is not the path", policy.Match{Route: "/a/{id}"}, policy.Request{EscapedPath: "/a/{id}", RouteKnown: true}, false},
		{"route, other name", policy.Match{Route: "/a/{id}"}, policy.Request{Route: "/a/{ID}"}, false},
		{"route, other end", policy.Match{Route: "/a/"}, policy.Request{Route: "/a/{$}"}, false},
		{"route and method, reported", policy.Match{Route: "GET /a"}, policy.Request{Method: "HEAD", Route: "GET /a"}, true},
		{"route and method, other reported", policy.Match{Route: "POST /a"}, policy.Request{Method: "POST", Route: "GET /a"}, false},
		{"route and method, not reported", policy.Match{Route: "GET /a"}, policy.Request{Method: "GET", Route: "/a"}, true},
		{"route and method, other than the request's", policy.Match{Route: "GET /a"}, policy.Request{Method: "HEAD", Route: "/a"}, false},
		{"route and host, reported", policy.Match{Route: "Example.com/a"}, policy.Request{Host: "x", Route: "example.com/a"}, true},
		{"route and host, other reported", policy.Match{Route: "example.com/a"}, policy.Request{Host: "example.com", Route: "x/a"}, false},
		{"route and host, not reported", policy.Match{Route: "example.com/a"}, policy.Request{Host: "Example.com:81", Route: "/a"}, true},
		{"route and host, other than the request's", policy.Match{Route: "example.com/a"}, policy.Request{Host: "x", Route: "/a"}, false},
		{"route, method and host", policy.Match{Route: "GET example.com/a"}, policy.Request{Host: "x", Route: "GET example.com/a"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := mustNew(t, policy.Policy{Name: "p", Match: []policy.Match{tt.match}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}})
			tt.req.Side = policy.Server
			assert.Equal(t, tt.want, set.Match(&tt.req).Bulkhead != nil)
		})
	}
}

func TestZeroSet(t *testing.T) {
	set := new(policy.Set)
	assert.Equal(t, policy.Decision{}, set.Match(&policy.Request{Side: policy.Server}))
	assert.Equal(t, mustNew(t).Defaults(), set.Defaults())
}

// A header may come with any number of values; each policy that wants one is found, and
// the first that matches counts.
func TestHeaderOfManyValues(t *testing.T) {
	var list []policy.Policy
	for i := range 20 {
		p := policy.Policy{Name: fmt.Sprint(i), Match: []policy.Match{{Headers: map[string]string{"A": fmt.Sprint("v", i%10)}}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}}
		if i%2 == 0 {
			p.Match[0].Method = []string{"PUT"}
		}
		list = append(list, p)
	}
	set, err := policy.New(policy.Config{Policies: list})
	require.NoError(t, err)
	for n := range 12 {
		var values []string
		for i := range n {
			values = append(values, fmt.Sprint("v", 11-i))
			for _, method := range []string{"GET", "PUT"} {
				r := &policy.Request{Side: policy.Server, Method: method, Header: http.Header{"A": append(values, values...)}}
				require.Equal(t, policy.MatchLinear(set, r), set.Match(r), "%s %v", method, values)
				r.Header = http.Header{"A": values}
				require.Equal(t, policy.MatchLinear(set, r), set.Match(r), "%s %v", method, values)
			}
		}
	}
}

// Policies may ask for any number of headers, and a request have any of them.
func TestHeadersOfManyNames(t *testing.T) {
	for _, names := range []int{1, 6, 7, 30} {
		var list []policy.Policy
		for i := range 2 * names {
			p := policy.Policy{Name: fmt.Sprint(i), Match: []policy.Match{{Headers: map[string]string{fmt.Sprint("x-a", i%names): fmt.Sprint(i / names)}}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}}
			list = append(list, p)
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		header := http.Header{}
		r := &policy.Request{Side: policy.Server, Header: header}
		require.Equal(t, policy.Decision{}, set.Match(r))
		for i := names - 1; i >= 0; i-- {
			header.Set(fmt.Sprint("X-A", i), "1")
			require.Equal(t, fmt.Sprint(names+i), set.Match(r).Bulkhead.Name)
			header.Set(fmt.Sprint("Z", i), "1")
		}
		header.Set("X-A0", "0")
		require.Equal(t, "0", set.Match(r).Bulkhead.Name)
	}
}
