package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// An explanation has the decision of Match, and says of no policy that it matches which
// does not.
func TestExplainAgreesWithMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(policies, 0, 6).Draw(t, "policies")
		for i := range list {
			list[i].Name = string(rune('a' + i))
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		for range 4 {
			r := requests.Draw(t, "request")
			e := set.Explain(r)
			require.Equal(t, set.Match(r), e.Decision)
			var d policy.Decision
			for _, a := range e.Asked {
				alone, err := policy.New(policy.Config{Policies: list[a.Rule.Index : a.Rule.Index+1]})
				require.NoError(t, err)
				require.Equal(t, alone.Match(r) != policy.Decision{}, a.Matched != "", "%s: %q, %q", a.Rule.Name, a.Matched, a.Missed)
				require.NotEmpty(t, strings.Join(append(a.Missed, a.Matched), ""))
				if a.Matched == "" {
					require.Len(t, a.Missed, len(list[a.Rule.Index].Match))
					continue
				}
				if d.Bulkhead == nil && a.Rule.Bulkhead != nil {
					d.Bulkhead = a.Rule
				}
				if d.Breaker == nil && a.Rule.Breaker != nil {
					d.Breaker = a.Rule
				}
			}
			if e.Exempt == nil {
				require.Equal(t, d.Bulkhead, e.Bulkhead)
				require.Equal(t, d.Breaker, e.Breaker)
			}
		}
	})
}

func TestExplanations(t *testing.T) {
	set := mustParse(t, `
version: 1
policies:
  - name: all
    side: server
    match:
      - {method: [GET, PUT], path: "/a/{id}"}
      - {host: "*.a.test:8080"}
      - {host: "[::1]"}
      - {route: GET a.test/a}
      - {path: {prefix: /b, suffix: c}}
      - {headers: {X-A: {exact: b}}}
      - {headers: {X-B: {exact: b}}}
      - {query: {q: {contains: a}}}
      - {query: {z: {contains: a}}}
      - {path: /x, not: [{method: [PUT]}, {query: {q: {exact: "1"}}}]}
    bulkhead: {maxConcurrent: 1}
  - {name: rest, breaker: {}, side: server}
  - {name: later, side: server, bulkhead: {maxConcurrent: 1}}
  - {name: never, side: server, bulkhead: {maxConcurrent: 1}}
`)
	request := &policy.Request{
		Side: policy.Server, Method: "GET", Host: "A.test", EscapedPath: "/x", Route: "/x", RouteKnown: true, RawQuery: "q=1&a=b",
		Header: http.Header{"X-A": {"c", "d"}},
	}
	e := set.Explain(request)
	assert.Equal(t, "later", e.Bulkhead.Name)
	assert.Equal(t, "rest", e.Breaker.Name)
	var got []string
	for _, a := range e.Asked {
		got = append(got, a.Rule.Name)
	}
	assert.Equal(t, []string{"all", "rest", "later"}, got)
	assert.Equal(t, []string{
		`match[0]: the path is "/x", not /a/{id}`,
		`match[1]: the host is "A.test", not *.a.test:8080`,
		`match[2]: the host is "A.test", not [::1]`,
		`match[3]: the route is "/x", not GET a.test/a`,
		`match[4]: the path is "/x", not prefix "/b" and suffix "c"`,
		`match[5]: the header X-A is "c, d", not exact "b"`,
		`match[6]: there is no header X-B`,
		`match[7]: the parameter q is "1", not contains "a"`,
		`match[8]: the query has no parameter z`,
		`match[9]: not[1] holds: parameter q exact "1"`,
	}, e.Asked[0].Missed)
	assert.Empty(t, e.Asked[0].Matched)
	assert.Equal(t, "everything", e.Asked[1].Matched)

	request.RawQuery, request.Route, request.RouteKnown = "", "", false
	e = set.Explain(request)
	assert.Equal(t, `match[9]: path /x, not (method PUT), not (parameter q exact "1")`, e.Asked[0].Matched)
	assert.Equal(t, `match[3]: no route is known, and it asks for GET a.test/a`, e.Asked[0].Missed[3])
	request.Method = "POST"
	request.EscapedPath = "/a/b"
	assert.Equal(t, "match[0]: the method is POST, not GET or PUT", set.Explain(request).Asked[0].Missed[0])
	assert.Empty(t, set.Explain(&policy.Request{}).Asked, "on no side")
}

func TestExplainServiceComb(t *testing.T) {
	set, err := policy.Parse("f", []byte(`
servicecomb:
  matchGroup.a: {matches: [{serviceName: stock, headers: {A: {contains: ''}, B: {compare: '>1'}}}]}
  bulkhead.a: {maxConcurrentCalls: 7}
  instanceBulkhead.a: {}
  circuitBreaker.a: {slidingWindowSize: 10, forceOpen: false}
`))
	require.NoError(t, err)
	h := http.Header{"A": {""}, "B": {"2"}, "X-Cse-Src-Microservice": {"stock"}}
	e := set.Explain(&policy.Request{Side: policy.Server, Header: h})
	assert.Equal(t, `match[0]: header A contains "", header B compare ">1", caller stock`, e.Asked[0].Matched)
	h.Del("X-Cse-Src-Microservice")
	assert.Equal(t, []string{"match[0]: the caller is not stock, as X-Cse-Src-Microservice would say"}, set.Explain(&policy.Request{Side: policy.Server, Header: h}).Asked[0].Missed)
	assert.Equal(t, `match[0]: host stock, header A contains "", header B compare ">1"`, set.Explain(&policy.Request{Side: policy.Client, Host: "stock", Header: h}).Asked[0].Matched)
	assert.Empty(t, set.Explain(&policy.Request{Side: policy.Client, Header: h}).Asked, "no host, no instance")

	var got []string
	for _, key := range []string{"", "bulkhead.maxConcurrent", "bulkhead.maxWait", "breaker.window.time", "breaker.force", "breaker.minCalls"} {
		line, column := set.Where(set.Rules()[0], key)
		got = append(got, fmt.Sprintf("%s %d:%d", key, line, column))
	}
	assert.Equal(t, []string{" 4:3", "bulkhead.maxConcurrent 4:36", "bulkhead.maxWait 0:0", "breaker.window.time 6:41", "breaker.force 6:56", "breaker.minCalls 0:0"}, got)
}

// Everything that a file says can be found in it again.
func TestWhere(t *testing.T) {
	file := `version: 1
policies:
  - name: a
    side: client
    per: host
    mode: observe
    bulkhead:
      maxConcurrent: 1
      maxQueue: 2
      maxWait: 3s
    breaker:
      failureRate: 1
      slowCall: 2s
      slowCallRate: 3
      window:
        calls: 4
      minCalls: 4
      openFor:
        initial: 5s
        max: 6s
        multiplier: 7
        jitter: 0.8
        retryAfter: 9s
      halfOpen:
        calls: 1
        probeTimeout: 2s
        maxWait: 3s
      failureStatus: [500]
      settle: body
      force: open
    reject:
      retryAfter: 1s
      status:
        full: 429
        open: 503
`
	set := mustParse(t, file)
	var path []string
	lines := strings.Split(file, "\n")
	for i, line := range lines[2:] {
		indent := (len(line) - len(strings.TrimLeft(line, " -"))) / 2
		key, value, _ := strings.Cut(strings.TrimLeft(line, " -"), ":")
		if key == "" {
			continue
		}
		path = append(path[:indent-2], key)
		if value == "" {
			continue
		}
		name := strings.Join(path, ".")
		if name == "name" {
			name = ""
		}
		at, column := set.Where(set.Rules()[0], name)
		assert.Equal(t, i+3, at, name)
		assert.Equal(t, len(line)-len(strings.TrimPrefix(value, " "))+1, column, name)
	}
	line, column := set.Where(set.Rules()[0], "exempt")
	assert.Equal(t, [2]int{}, [2]int{line, column}, "not written")
	inCode, err := policy.New(policy.Config{Policies: []policy.Policy{{Name: "a", Exempt: true}}})
	require.NoError(t, err)
	line, column = inCode.Where(inCode.Rules()[0], "")
	assert.Equal(t, [2]int{}, [2]int{line, column}, "not in a file")
}

func TestCheckReportsBothAtOnce(t *testing.T) {
	errors, warnings := policy.Check("f", []byte("version: 1\npolicies:\n  - {name: a, bulkhead: {maxConcurrent: 0, maxQueue: 5}}\n  - {name: b, limit: 1, bulkhead: {maxConcurrent: 1, maxWait: 31s}}\n"))
	assert.Equal(t, `f:3:41: policy "a": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000
f:4:15: policy "b": unknown key "limit"; a policy has name, side, match, per, mode, bulkhead, breaker, reject, exempt`, errors.Error())
	assert.Equal(t, `f:3:54: policy "a": bulkhead.maxQueue has no effect without maxWait, since nobody waits; say how long
f:4:63: policy "b": bulkhead.maxWait is 31s, but most callers have given up by then: their deadline is 30s or less; write a shorter one`, warnings.Error())
	errors, warnings = policy.Check("f", []byte("version: 1\npolicies: []\n"))
	assert.Empty(t, errors)
	assert.Equal(t, "f:2:11: policies is empty: nothing is limited", warnings.Error())
}
