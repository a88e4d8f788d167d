package policy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/policy"
)

// The matcher is in the path of every request.
func TestMatchDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	set := mustNew(t,
		policy.Policy{Name: "miss", Match: []policy.Match{
			{Path: "/a/b/d"}, {Path: "/{x}/{y}/{z}/{$}"}, {Host: "*.test:8080"}, {Route: "PUT h/a/{id}"}, {Method: []string{"PUT"}},
			{Headers: map[string]string{"x-plan": "free", "X-Tenant": "a"}},
		}, Exempt: true},
		policy.Policy{Name: "hit", Match: []policy.Match{{
			Path:    "/caf%C3%A9/{id}/c",
			Method:  []string{"GET"},
			Host:    "*.internal",
			Route:   "GET /{a}/{b}/c",
			Headers: map[string]string{"X-Plan": "gold"},
		}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}},
		policy.Policy{Name: "rest", Match: []policy.Match{{Path: "/"}}, Breaker: &policy.Breaker{}},
	)
	h := http.Header{"X-Plan": {"silver", "gold"}}
	var d policy.Decision
	allocs := testing.AllocsPerRun(100, func() {
		d = set.Match(&policy.Request{
			Side:        policy.Server,
			Host:        "Payments.INTERNAL.:8080",
			EscapedPath: "/caf%c3%a9/b%2Fb/c",
			Route:       "GET example.com/{a}/{b}/c",
			RouteKnown:  true,
			Header:      h,
		})
	})
	assert.Equal(t, [3]string{"hit", "rest", ""}, outcome(d))
	assert.Zero(t, allocs)
}

// What the index has to ask for allocates no more than what it finds by itself. Buffers
// come from pools, which a garbage collection may empty, hence the average.
func TestConditionsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	texts := []policy.Text{{Exact: "a b"}, {Prefix: "a"}, {Suffix: "b"}, {Contains: " "}, {Regexp: "^a.b$"}}
	for _, text := range texts {
		set := mustNew(t, policy.Policy{Name: "p", Match: []policy.Match{{
			PathText:   policy.Text{Regexp: "^/caf"},
			HeaderText: map[string]policy.Text{"X-Plan": text},
			Query:      map[string]policy.Text{"plan": text},
			Not:        []policy.Match{{PathText: policy.Text{Suffix: "d"}}, {Query: map[string]policy.Text{"plan": {Exact: "c"}}}},
		}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}})
		h := http.Header{"X-Plan": {"a b"}}
		var d policy.Decision
		assert.Zero(t, int(testing.AllocsPerRun(1000, func() {
			d = set.Match(&policy.Request{
				Side: policy.Client, EscapedPath: "/caf%C3%A9", Path: "/café", Header: h,
				RawQuery: "other=1&p%6Can=a+%62&plan=x",
			})
		})), "%+v", text)
		assert.NotNil(t, d.Bulkhead)
	}
}

func TestAppendHeaderKeyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	buf := make([]byte, 0, 64)
	for _, value := range []string{"", "acme", strings.Repeat("long", 200), "\xff"} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { buf = policy.AppendHeaderKey(buf[:0], value) }), value)
	}
}

func TestAppendHostKeyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	buf := make([]byte, 0, 64)
	for _, host := range []string{"Example.COM", "example.com.:8443", "[::1]"} {
		for _, side := range []policy.Side{policy.Server, policy.Client} {
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				buf = policy.AppendHostKey(buf[:0], side, "https", host)
			}), "%v %s", side, host)
		}
	}
}
