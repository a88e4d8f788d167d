package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/watertight-go/watertight/policy"
)

const policies = `version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: reports
    side: server
    match:
      - {path: "/reports/{id}", method: [GET], headers: {X-Plan: {exact: free}}}
      - {path: "/reports/{id}", query: {slow: {exact: "1"}}}
    mode: observe
    bulkhead:
      maxConcurrent: 20
      maxWait: 1s
    reject: {retryAfter: 2s}
  - name: hosts
    side: client
    match: [{host: "*.internal"}]
    breaker: {failureRate: 12.5, slowCall: 90s, openFor: {max: 1h}}
  - {name: rest, side: server, breaker: {}}
  - {name: last, side: server, per: policy, bulkhead: {maxConcurrent: 5}, breaker: {}}
`

func TestExplain(t *testing.T) {
	status, out, err := call(policies, "explain", "-", "-H", "X-Plan: gold", "/reports/7?slow=1")
	assert.Zero(t, status)
	assert.Empty(t, err)
	assert.Equal(t, `bulkhead: policy "reports" (<stdin>:6)
  matches match[1]: path /reports/{id}, parameter slow exact "1"
  key "/reports/{id}", per route
  maxConcurrent               20       <stdin>:13
  maxQueue                    1000     default
  maxWait                     1s       <stdin>:14
  mode                        observe  <stdin>:11
  reject.status.full          503      default
  reject.status.wait_timeout  408      default
  reject.retryAfter           2s       <stdin>:15
breaker: policy "rest" (<stdin>:20)
  matches everything
  key "/reports/{id}", per route
`, strings.Replace(out[:strings.Index(out, "  failureRate")], `key "", per route`, `key "/reports/{id}", per route`, 1))
	assert.True(t, strings.HasSuffix(out, `not policy "health" (<stdin>:3):
  match[0]: the path is "/reports/7", not /healthz
`), out)

	_, out, _ = call(policies, "explain", "-", "/")
	assert.Contains(t, out, `bulkhead: policy "last" (<stdin>:21)`)
	assert.Contains(t, out, `not policy "reports" (<stdin>:6):
  match[0]: the path is "/", not /reports/{id}
  match[1]: the path is "/", not /reports/{id}
`)
	_, out, _ = call(policies, "explain", "-", "-route", "/x", "/x")
	assert.Contains(t, out, `key "/x", per route`)

	_, out, _ = call(policies, "explain", "-", "/healthz")
	assert.Equal(t, "exempt by policy \"health\" (<stdin>:3)\n  matches match[0]: path /healthz\n", out)

	_, out, _ = call(policies, "explain", "-", "-side", "client", "https://Pay.internal/a")
	assert.Contains(t, out, `bulkhead: none
breaker: policy "hosts" (<stdin>:16)
  matches match[0]: host *.internal
  key "https://pay.internal:443", per host
  failureRate            12.5       <stdin>:19
  slowCall               1m30s      <stdin>:19
  slowCallRate           80         default
  window.calls           100        default
  minCalls               20         default
  openFor.initial        30s        default
  openFor.max            1h         <stdin>:19
  openFor.multiplier     2          default
  openFor.jitter         0          default
  openFor.retryAfter     0s         default
  halfOpen.calls         10         default
  halfOpen.probeTimeout  30s        default
  halfOpen.maxWait       0s         default
  failureStatus          [500-599]  default
  settle                 headers    default
  reject.status.open     503        default
  reject.retryAfter      1s         default
`)
	for _, args := range [][]string{
		{"-side", "client", "-host", "pay.internal", "/a"},
		{"-side", "client", "-H", "Host: pay.internal", "/a"},
		{"-side", "client", "-X", "POST", "//pay.internal/a"},
	} {
		_, out, _ = call(policies, append([]string{"explain", "-"}, args...)...)
		assert.Contains(t, out, `key "http://pay.internal:80", per host`, args)
	}
	_, out, _ = call(policies, "explain", "-", "*")
	assert.Contains(t, out, `the path is "*", not /healthz`)
	_, out, _ = call("version: 1\npolicies:\n  - {name: a, breaker: {}}\n  - {name: b, match: [{path: /a}], breaker: {}}\n  - {name: c, match: [{path: /a}], exempt: true}\n", "explain", "-", "/a")
	assert.Contains(t, out, `not policy "b" (<stdin>:4): it matches match[0]: path /a, but there is a breaker already`)
	assert.Contains(t, out, `not policy "c" (<stdin>:5): it matches match[0]: path /a, but the request has a bulkhead or a breaker already, so it only ends the search`)
}

func TestExplainFaultyFile(t *testing.T) {
	status, out, err := call(faulty, "explain", "-", "/a")
	assert.Equal(t, exitFaulty, status)
	assert.Empty(t, out)
	assert.Equal(t, "<stdin>:3:41: policy \"a\": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000\n", err)
}

func TestExplainJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"/healthz"}, `{"bulkhead": null, "breaker": null}`},
		{[]string{"-H", "X-Plan: free", "/reports/7", "-route", "/reports/{id}"}, `{
			"bulkhead": {"policy": "reports", "key": "/reports/{id}", "settings": {"maxConcurrent": 20, "maxQueue": 1000, "maxWait": "1s"}},
			"breaker": {"policy": "rest", "key": "/reports/{id}", "settings": {
				"failureRate": 50, "window": {"calls": 100}, "minCalls": 20, "openFor": "30s",
				"halfOpen": {"calls": 10, "probeTimeout": "30s", "maxWait": "0s"}, "failureStatus": ["500-599"], "settle": "headers"
			}}
		}`},
		{[]string{"-side", "client", "-host", "pay.internal:8080", "/a"}, `{
			"bulkhead": null,
			"breaker": {"policy": "hosts", "key": "http://pay.internal:8080", "settings": {
				"failureRate": 12.5, "slowCall": "1m30s", "slowCallRate": 80, "window": {"calls": 100}, "minCalls": 20,
				"openFor": {"initial": "30s", "max": "1h", "multiplier": 2, "jitter": 0, "retryAfter": "0s"},
				"halfOpen": {"calls": 10, "probeTimeout": "30s", "maxWait": "0s"}, "failureStatus": ["500-599"], "settle": "headers"
			}}
		}`},
	} {
		status, out, err := call(policies, append([]string{"explain", "-json", "-"}, tt.args...)...)
		assert.Zero(t, status)
		assert.Empty(t, err)
		assert.JSONEq(t, tt.want, out, tt.args)
	}
}

// The settings are what a policy file could say instead.
func TestSettingsAreThoseOfAFile(t *testing.T) {
	for _, breaker := range []string{
		"{}", "{force: closed, settle: body}", "{slowCall: 1ns, window: {time: 1h}, failureStatus: []}",
		"{openFor: {retryAfter: 1m, jitter: 0.25}, failureStatus: [429, 500-503], halfOpen: {probeTimeout: 0, maxWait: 90m}}",
		"{openFor: {initial: 1h1s, max: 100h, multiplier: 1.5}, minCalls: 7, failureRate: 0.1, slowCall: 1500us, slowCallRate: 99.9}",
	} {
		file := "version: 1\npolicies: [{name: a, bulkhead: {maxConcurrent: 3, maxQueue: 2, maxWait: 1500ms}, breaker: " + breaker + "}]\n"
		_, out, _ := call(file, "explain", "-json", "-", "/")
		var got map[string]*part
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		again, err := yaml.Marshal(map[string]any{"version": 1, "policies": []any{map[string]any{
			"name": "a", "bulkhead": got["bulkhead"].Settings, "breaker": got["breaker"].Settings,
		}}})
		require.NoError(t, err)
		want, err := policy.Parse("f", []byte(file))
		require.NoError(t, err)
		set, err := policy.Parse("g", again)
		require.NoError(t, err, "%s", again)
		assert.Equal(t, want.Rules(), set.Rules(), "%s", again)
	}
}

// A request that meets nothing may have been meant for the other side, or lack its host.
func TestExplainSaysWhatWasNotAsked(t *testing.T) {
	file := write(t, "p.yaml", `servicecomb:
  matchGroup: {all: {matches: [{apiPath: {prefix: /}}]}}
  instanceBulkhead: {all: {maxConcurrentCalls: 20}}
`)
	for args, want := range map[string]string{
		"/orders":                          "bulkhead: none\nbreaker: none\npolicies for the client side alone were not asked (1): write -side client\n",
		"/orders -side client":             "bulkhead: none\nbreaker: none\nno host is known: write -host HOST, or a URL for the path\n",
		"/orders -side client -host stock": "bulkhead: policy \"all\"",
		"http://stock/orders -side client": "bulkhead: policy \"all\"",
		"http://stock/orders -side=server": "were not asked (1)",
		"/orders -json -side client":       "null",
	} {
		status, out, err := call("", append([]string{"explain", file}, strings.Fields(args)...)...)
		assert.Zero(t, status, args)
		assert.Empty(t, err, args)
		assert.Contains(t, out, want, args)
		assert.Equal(t, strings.Contains(want, "not asked"), strings.Contains(out, "not asked"), args)
	}
}
