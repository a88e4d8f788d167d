package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// problemsOf returns the problems of a file without the file's name.
func problemsOf(t *testing.T, file string) []string {
	t.Helper()
	_, err := policy.Parse("f", []byte(file))
	require.Error(t, err, file)
	var problems []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		problem, ok := strings.CutPrefix(line, "f:")
		require.True(t, ok, "%s: %q has no position", file, line)
		problems = append(problems, problem)
	}
	return problems
}

func TestProblemsOfFiles(t *testing.T) {
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"version: 2\npolicies: []\n", []string{
			`1:10: version is 2; it must be 1, the only one that this version of watertight reads`,
		}},
		{"version: one\npolicies: []\n", []string{
			`1:10: version is "one"; it must be 1, the only one that this version of watertight reads`,
		}},
		{"version: \"1\"\npolicies: []\n", []string{
			`1:10: version is "1"; it must be 1, the only one that this version of watertight reads`,
		}},
		{"version: 1.0\npolicies: []\n", []string{
			`1:10: version is 1.0; it must be 1, the only one that this version of watertight reads`,
		}},
		{"version:\npolicies: []\n", []string{
			`1:9: version is empty; it must be 1, the only one that this version of watertight reads`,
		}},
		{"policies: []\n", []string{
			`1:1: version is missing; a policy file starts with version: 1`,
		}},
		{"version: 1\n", []string{
			`1:1: policies is missing; it lists what is limited, and may be []`,
		}},
		{"version: 1\npolices: []\n", []string{
			`2:1: unknown key "polices"; did you mean "policies"?`,
		}},
		{"version: 1\npolicies:\n", []string{
			`2:10: policies is empty; it must be a list: write - name: NAME for each policy`,
		}},
		{"version: 1\npolicies: {name: a}\n", []string{
			`2:11: policies is a mapping; it must be a list: write - name: NAME for each policy`,
		}},
		{"version: 1\npolicies: [a]\n", []string{
			`2:12: policies[0] is "a"; it must be a mapping of name, side, match, per, mode, bulkhead, breaker, reject, exempt`,
		}},
		{"version: 1\nversion: 1\npolicies: []\n", []string{
			`2:1: the key "version" is already in line 1; keep one of them`,
		}},
		{"version: 1\nlimits: []\npolicies: []\n", []string{
			`2:1: unknown key "limits"; a policy file has version, defaults, policies`,
		}},
		{"version: 1\nbudget: {total: 200}\npolicies: []\n", []string{
			`2:1: the key "budget" is not supported by this version yet; leave it out`,
		}},
		{"version: 1\ndefaults: {maxCompartments: 0, idle: 0}\npolicies: []\n", []string{
			`2:29: defaults.maxCompartments is 0; it must be 1 to 1000000000`,
			`2:38: defaults.idle is 0; it must be more than 0, at most 8760h`,
		}},
		{"version: 1\ndefaults: {maxCompartments: 1e3, idle: 10 minutes}\npolicies: []\n", []string{
			`2:29: defaults.maxCompartments is 1e3; it must be a whole number`,
			`2:40: defaults.idle is "10 minutes"; it must be a duration such as 800ms, 30s or 1h30m`,
		}},
		{"version: 1\ndefaults:\npolicies: []\n", []string{
			`2:10: defaults is empty; it must be a mapping of maxCompartments, idle`,
		}},
		{"version: 1\npolicies:\n  - bulkhead: {maxConcurrent: 1}\n", []string{
			`3:5: policies[0]: the name is missing; every policy needs a name of its own`,
		}},
		{"version: 1\npolicies:\n  - {name: a, breaker: {}}\n  - {name: a, breaker: {}}\n", []string{
			`4:12: policy name "a" is taken by the one in line 3; every policy needs a name of its own`,
		}},
		{"version: 1\npolicies:\n  - {name: (unmatched), breaker: {}}\n  - {name: \" b\", breaker: {}}\n  - {name: \"\", breaker: {}}\n  - {name: \"a\\nb\", breaker: {}}\n  - {name: 12, breaker: {}}\n  - {name: [a], breaker: {}}\n  - {name: (exempt), breaker: {}}\n", []string{
			`3:12: policy name "(unmatched)" is taken: requests that no policy matches are counted under it; choose another`,
			`4:12: policy name " b" has spaces at its ends; write "b"`,
			`5:12: policies[2]: the name is missing; every policy needs a name of its own`,
			`6:12: policy name "a\nb" is not printable; use letters, digits, spaces and punctuation`,
			`7:12: policies[4]: name is 12, which is not text; put it in quotes: "12"`,
			`8:12: policies[5]: name is a list; it must be text`,
			`9:12: policy name "(exempt)" is taken: requests that the program exempts by itself are counted under it; choose another`,
		}},
		{"version: 1\npolicies: &a [*a]\n", []string{
			`2:15: with the alias *a the file expands to too much; write the value out`,
		}},
		{"version: 1\npolicies: []\n---\nversion: 1\n", []string{
			`3:1: a second document starts here; a policy file holds one: put all policies into one list`,
		}},
		{``, []string{
			`1:1: the file is empty; a policy file starts with version: 1 and a list of policies`,
		}},
		{`[]`, []string{
			`1:1: the file is an empty list; it must be a mapping of version, defaults, policies`,
		}},
	} {
		assert.Equal(t, tt.want, problemsOf(t, tt.file), tt.file)
	}
}

func TestProblemsOfPolicies(t *testing.T) {
	for _, tt := range []struct {
		keys string // of policy a: the first line is line 4 of the file, indented by 4
		want []string
	}{
		{``, []string{
			`3:5: policy "a": it limits nothing; give it a bulkhead, a breaker, or exempt: true`,
		}},
		{`exempt: false`, []string{
			`3:5: policy "a": it limits nothing; give it a bulkhead, a breaker, or exempt: true`,
		}},
		{`exempt: yes`, []string{
			`4:13: policy "a": exempt is "yes"; it must be true or false`,
		}},
		{"exempt: true\nbreaker: {}", []string{
			`4:13: policy "a": exempt is true, but the policy has a bulkhead or a breaker; drop one or the other`,
		}},
		{"exempt: true\nreject: {retryAfter: 1s}", []string{
			`5:13: policy "a": reject has no effect, since the policy is exempt and rejects nothing; drop it`,
		}},
		{"side: sever\nbreaker: {}", []string{
			`4:11: policy "a": side is "sever"; it must be server, client or both; did you mean server?`,
		}},
		{"side: [server]\nbreaker: {}", []string{
			`4:11: policy "a": side is a list; it must be server, client or both`,
		}},
		{"per: \"header:\"\nbreaker: {}", []string{
			`4:10: policy "a": per is header without a name; write one, as in header:X-Tenant`,
		}},
		{"per: \"header: X-Tenant\"\nbreaker: {}", []string{
			`4:10: policy "a": per is header with " X-Tenant", which is not the name of a header; write one, as in header:X-Tenant`,
		}},
		{"per: {header: X-Tenant}\nbreaker: {}", []string{
			`4:10: policy "a": per is a mapping; it must be policy, route, host or header:NAME`,
		}},
		{"per: header:host\nbreaker: {}", []string{
			`4:10: policy "a": per is header with Host, which net/http keeps apart from the headers; write host`,
		}},
		{"mode: observed\nbreaker: {}", []string{
			`4:11: policy "a": mode is "observed"; it must be enforce or observe; did you mean observe?`,
		}},
		{"mode: observe\nexempt: true", []string{
			`4:11: policy "a": mode is observe, but the policy is exempt and rejects nothing; drop one or the other`,
		}},
		{"per: default\nbreaker: {}", []string{
			`4:10: policy "a": per is "default"; it must be policy, route, host or header:NAME`,
		}},
		{"side: client\nper: route\nmatch: [{route: /a}]\nbreaker: {}", []string{
			`5:10: policy "a": per is route, but a client has no routes; write host or policy, or side: server`,
			`6:21: policy "a": match[0].route is set, but a client has no routes; use path, or side: server`,
		}},
		{"match: {path: /a}\nbreaker: {}", []string{
			`4:12: policy "a": match is a mapping; it must be a list: write - before each entry, as in [{path: /reports/}]`,
		}},
		{"match: []\nbreaker: {}", []string{
			`4:12: policy "a": match is empty; give it an entry, or leave it out to match everything`,
		}},
		{"match: [{}]\nbreaker: {}", []string{
			`4:13: policy "a": match[0] is empty and would match everything; give it a field, or leave match out`,
		}},
		{"match: [/a]\nbreaker: {}", []string{
			`4:13: policy "a": match[0] is "/a"; it must be a mapping of method, path, route, host, headers, query, not`,
		}},
		{"match: [{path: a}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "a": it must start with /; write /a`,
		}},
		{"match: [{path: GET /a}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "GET /a": a method does not belong in path; write path: /a and the method under method`,
		}},
		{"match: [{path: h/a}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "h/a": it must start with /; a host belongs under host`,
		}},
		{"match: [{path: /a//b}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/a//b": it is not a clean path; write /a/b`,
		}},
		{"match: [{path: \"/{a}/{a}\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/{a}/{a}": the wildcard name a comes twice; give each its own`,
		}},
		{"match: [{path: \"/x{a}\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/x{a}": a wildcard must be a whole segment, as in /{id}, but x{a} is not`,
		}},
		{"match: [{path: \"/{a...}/b\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/{a...}/b": {a...} must come last, but /b follows`,
		}},
		{"match: [{path: \"/{$}/b\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/{$}/b": {$} must come last, but /b follows`,
		}},
		{"match: [{path: \"/{id:[0-9]+}\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/{id:[0-9]+}": {id:[0-9]+} has a condition, which path does not take; write {id}, or give the router's pattern as route`,
		}},
		{"match: [{path: \"/{a-b}\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/{a-b}": {a-b} is not a wildcard; its name must be made of letters, digits and _, as in {id}`,
		}},
		{"match:\n  - path: /a?b=c\nbreaker: {}", []string{
			`5:15: policy "a": match[0].path is "/a?b=c": a query does not belong in path; give its parameters under query, or write %3F for a question mark in the path`,
		}},
		{"match: [{path: /a b}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is "/a b": a path holds no spaces; write %20`,
		}},
		{"match: [{path: {id}}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is a mapping in YAML; inside [] and {} a pattern with braces must be in quotes, as in {path: "/reports/{id}"}`,
		}},
		{"match: [{path: {}}, {path: {prefix: a}}, {path: {exact: \"\"}}, {path: {suffix: \"\"}}, {path: {regexp: \"\"}}, {path: {regexp: \"(\"}}, {path: {prefx: /a}}, {path: {exact: /a, prefix: /b}}, {path: {exact: 1}}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].path is an empty mapping; write {exact: VALUE}`,
			`4:41: policy "a": match[1].path.prefix is "a"; a path starts with /: write /a`,
			`4:61: policy "a": match[2].path.exact is ""; a path starts with /: write /`,
			`4:83: policy "a": match[3].path.suffix is ""; it is empty and would match every path: leave it out`,
			`4:105: policy "a": match[4].path.regexp is ""; it is empty and would match every path: leave it out`,
			`4:127: policy "a": match[5].path.regexp is "("; it is not a regular expression: missing closing ): "("`,
			`4:142: policy "a": unknown key "prefx"; did you mean "prefix"?`,
			`4:182: policy "a": match[7].path.prefix is "/b", which never holds beside exact: "/a"; keep one of them`,
			`4:203: policy "a": match[8].path.exact is 1, which is not text; put it in quotes: "1"`,
		}},
		{"match: [{prefix: /a}]\nbreaker: {}", []string{
			`4:14: policy "a": unknown key "prefix" here; it belongs in a condition on a text`,
		}},
		{"match: [{query: {a: b, \"\": {exact: c}}}, {query: a=b}, {query: {}}, {query: {a: {regex: b}}}]\nbreaker: {}", []string{
			`4:25: policy "a": match[0].query.a is "b"; write {exact: b}`,
			`4:28: policy "a": match[0].query has a parameter without a name; write one, as in {watch: {exact: "true"}}`,
			`4:54: policy "a": match[1].query is "a=b"; it must be a mapping such as {watch: {exact: "true"}}`,
			`4:68: policy "a": match[2].query is an empty mapping; it must be a mapping such as {watch: {exact: "true"}}`,
			`4:86: policy "a": unknown key "regex"; did you mean "regexp"?`,
		}},
		{"match: [{not: {}}, {not: []}, {not: /a}, {not: [{}]}, {not: [/a]}, {not: {path: a}}, {not: {not: {path: /a}}}, {not: }, {not: [{path: /a}, {methods: [GET]}]}]\nbreaker: {}", []string{
			`4:19: policy "a": match[0].not is empty and would match everything; give it a field, or leave not out`,
			`4:30: policy "a": match[1].not is an empty list; write what must not match, as in {path: /reports/}, or leave it out`,
			`4:41: policy "a": match[2].not is "/a"; write what must not match, as in {path: /reports/}, or leave it out`,
			`4:53: policy "a": match[3].not[0] is empty and would match everything; give it a field, or leave not out`,
			`4:66: policy "a": match[4].not[0] is "/a"; it must be a mapping of method, path, route, host, headers, query`,
			`4:85: policy "a": match[5].not.path is "a": it must start with /; write /a`,
			`4:97: policy "a": unknown key "not" here; it belongs in an entry of match`,
			`4:122: policy "a": match[7].not is empty; write what must not match, as in {path: /reports/}, or leave it out`,
			`4:145: policy "a": unknown key "methods"; did you mean "method"?`,
		}},
		{"side: client\nmatch: [{path: /a, not: {route: /a}}]\nbreaker: {}", []string{
			`5:37: policy "a": match[0].not.route is set, but a client has no routes; use path, or side: server`,
		}},
		{"match: [{method: GET}, {method: []}, {method: [get]}, {method: [\"GET /\"]}, {method: [1]}]\nbreaker: {}", []string{
			`4:22: policy "a": match[0].method is "GET"; it must be a list: write [GET]`,
			`4:37: policy "a": match[1].method is empty; list methods such as GET, or leave it out for all`,
			`4:52: policy "a": match[2].method[0] is "get"; methods are upper-case: write GET`,
			`4:69: policy "a": match[3].method[0] is "GET /", which is not a method; write one such as GET`,
			`4:90: policy "a": match[4].method[0] is 1, which is not text; put it in quotes: "1"`,
		}},
		{"match: [{host: http://a.b/c}, {host: a.b/c}, {host: u@a}, {host: \"\"}, {host: \"*\"}, {host: a.*.b}, {host: \"a:\"}, {host: \"a:0\"}, {host: \"a:http\"}, {host: \"::1\"}, {host: \"[::01]\"}, {host: \"[::x]\"}, {host: 10.1}, {host: a b}, {host: \"*.\"}]\nbreaker: {}", []string{
			`4:20: policy "a": match[0].host is "http://a.b/c": a scheme does not belong in host; write a.b`,
			`4:42: policy "a": match[1].host is "a.b/c": a path does not belong in host; write a.b, and the path under path`,
			`4:57: policy "a": match[2].host is "u@a": a user does not belong in host; write only what follows the @`,
			`4:70: policy "a": match[3].host is "": it is empty; leave host out to match every host`,
			`4:82: policy "a": match[4].host is "*": it is no host; leave host out to match every host`,
			`4:95: policy "a": match[5].host is "a.*.b": a * may only stand for what is before the first dot, as in "*.internal"`,
			`4:110: policy "a": match[6].host is "a:": the port is missing; write it, or leave the colon out for any port`,
			`4:124: policy "a": match[7].host is "a:0": "0" is not a port; it must be 1 to 65535`,
			`4:139: policy "a": match[8].host is "a:http": "http" is not a port; it must be 1 to 65535`,
			`4:157: policy "a": match[9].host is "::1": an IPv6 address must be in brackets and in its shortest form; write "[::1]"`,
			`4:172: policy "a": match[10].host is "[::01]": an IPv6 address must be in brackets and in its shortest form; write "[::1]"`,
			`4:190: policy "a": match[11].host is "[::x]": "::x" is not an IPv6 address`,
			`4:207: policy "a": match[12].host is 10.1, which is not text; put it in quotes: "10.1"`,
			`4:221: policy "a": match[13].host is "a b": it is not a host; write one such as "payments.internal", "*.internal" or "[::1]:8080"`,
			`4:234: policy "a": match[14].host is "*.": the name is missing; write one such as "payments.internal" or "*.internal"`,
		}},
		{"match: [{route: a}, {route: \"\"}, {route: \"GE T /a\"}, {route: \"G@T /a\"}]\nbreaker: {}", []string{
			`4:21: policy "a": match[0].route is "a": it must have a path, as in "/reports/{id}" or "GET /reports/{id}"`,
			`4:33: policy "a": match[1].route is "": it is empty; leave route out to match every route`,
			`4:46: policy "a": match[2].route is "GE T /a": what is before the path must be a method, a host, or both, as in "GET example.com/reports/{id}"`,
			`4:66: policy "a": match[3].route is "G@T /a": what is before the path must be a method, a host, or both, as in "GET example.com/reports/{id}"`,
		}},
		{"match:\n  - headers: {X-Plan: free, Y: {}, Z: {prefix: a}, W: {exact: 5}, V: {exact: [a]}, U: {exct: a}, T: }\n  - headers: {}\n  - headers: [a]\n  - headers: {host: {exact: a}, A b: {exact: c}, x: {exact: a}, X: {exact: b}}\nbreaker: {}", []string{
			`5:27: policy "a": match[0].headers.X-Plan is "free"; write {exact: free}`,
			`5:36: policy "a": match[0].headers.Y is an empty mapping; write {exact: VALUE}`,
			`5:67: policy "a": match[0].headers.W.exact is 5, which is not text; put it in quotes: "5"`,
			`5:82: policy "a": match[0].headers.V.exact is a list; it must be text`,
			`5:92: policy "a": unknown key "exct"; did you mean "exact"?`,
			`5:105: policy "a": match[0].headers.T is empty; write {exact: VALUE}`,
			`6:18: policy "a": match[1].headers is an empty mapping; it must be a mapping such as {X-Plan: {exact: free}}`,
			`7:18: policy "a": match[2].headers is a list; it must be a mapping such as {X-Plan: {exact: free}}`,
			`8:19: policy "a": match[3].headers has Host, which net/http keeps apart from the headers; use host`,
			`8:37: policy "a": match[3].headers has "A b", which is not the name of a header`,
			`8:69: policy "a": match[3].headers has X twice; a name is the same in upper and lower case`,
		}},
		{`bulkhead:`, []string{
			`4:14: policy "a": bulkhead is empty; it must be a mapping of maxConcurrent, maxQueue, maxWait`,
		}},
		{`bulkhead: {}`, []string{
			`4:15: policy "a": bulkhead has no maxConcurrent; say how many requests may be in flight: 1 to 1000000000`,
		}},
		{`bulkhead: {maxConcurent: 1}`, []string{
			`4:16: policy "a": unknown key "maxConcurent"; did you mean "maxConcurrent"?`,
		}},
		{`bulkhead: {maxConcurrent: 0, maxQueue: -1, maxWait: -1s}`, []string{
			`4:31: policy "a": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000`,
			`4:44: policy "a": bulkhead.maxQueue is -1; it must be 0 to 1000000000`,
			`4:57: policy "a": bulkhead.maxWait is -1s; it must be 0 to 8760h`,
		}},
		{`bulkhead: {maxConcurrent: 010, maxQueue: 99999999999999999999, maxWait: 100}`, []string{
			`4:31: policy "a": bulkhead.maxConcurrent is 010; it must be a whole number`,
			`4:46: policy "a": bulkhead.maxQueue is 99999999999999999999; it must be 0 to 1000000000`,
			`4:77: policy "a": bulkhead.maxWait is 100, which has no unit; write 100ms or 100s`,
		}},
		{`bulkhead: {maxConcurrent: 1, maxQueue: 1.5, maxWait: 1y}`, []string{
			`4:44: policy "a": bulkhead.maxQueue is 1.5; it must be a whole number`,
			`4:58: policy "a": bulkhead.maxWait is "1y"; it must be a duration such as 800ms, 30s or 1h30m`,
		}},
		{`bulkhead: {maxConcurrent: 1, adaptive: {min: 5}, maxWait: 9000h}`, []string{
			`4:34: policy "a": the key "adaptive" is not supported by this version yet; leave it out`,
			`4:63: policy "a": bulkhead.maxWait is 9000h; it must be 0 to 8760h`,
		}},
		{`bulkhead: {maxConcurrent: 1, max_wait: 1s, slowCall: 1s, calls: 3}`, []string{
			`4:34: policy "a": unknown key "max_wait"; did you mean "maxWait"?`,
			`4:48: policy "a": unknown key "slowCall" here; it belongs in breaker`,
			`4:62: policy "a": unknown key "calls" here; it belongs in window or halfOpen`,
		}},
		{`bulkhed: {maxConcurrent: 1}`, []string{
			`4:5: policy "a": unknown key "bulkhed"; did you mean "bulkhead"?`,
		}},
		{`maxConcurrent: 1`, []string{
			`4:5: policy "a": unknown key "maxConcurrent" here; it belongs in bulkhead`,
		}},
		{`breaker: {failureRate: 0, slowCallRate: 100.1, slowCall: 0}`, []string{
			`4:28: policy "a": breaker.failureRate is 0; it must be a percentage: more than 0, at most 100`,
			`4:45: policy "a": breaker.slowCallRate is 100.1; it must be a percentage: more than 0, at most 100`,
			`4:62: policy "a": breaker.slowCall is 0; it must be more than 0, at most 8760h`,
		}},
		{`breaker: {failureRate: .nan, slowCallRate: .inf, slowCall: 1s}`, []string{
			`4:28: policy "a": breaker.failureRate is .nan; it must be a percentage: more than 0, at most 100`,
			`4:48: policy "a": breaker.slowCallRate is .inf; it must be a percentage: more than 0, at most 100`,
		}},
		{`breaker: {failureRate: 50%, slowCallRate: high, slowCall: 1s}`, []string{
			`4:28: policy "a": breaker.failureRate is "50%"; write it without the percent sign: 50`,
			`4:47: policy "a": breaker.slowCallRate is "high"; it must be a percentage: more than 0, at most 100`,
		}},
		{`breaker: {window: {}, minCalls: 0, openFor: 0}`, []string{
			`4:23: policy "a": breaker.window is empty; give it calls (1 to 1000000) or time, or leave it out for {calls: 100}`,
			`4:37: policy "a": breaker.minCalls is 0; it must be 1 to 1000000`,
			`4:49: policy "a": breaker.openFor is 0; it must be more than 0, at most 8760h`,
		}},
		{`breaker: {window: {calls: 10, time: 1s}}`, []string{
			`4:23: policy "a": breaker.window has both calls and time; keep one`,
		}},
		{`breaker: {openFor: {}}`, []string{
			`4:24: policy "a": breaker.openFor is empty; write a duration such as 30s, or {initial: 5s, max: 2m}`,
		}},
		{`breaker: {openFor: {initial: 0, max: 9000h, multiplier: 1, jitter: 1, retryAfter: -1s}}`, []string{
			`4:34: policy "a": breaker.openFor.initial is 0; it must be more than 0, at most 8760h`,
			`4:42: policy "a": breaker.openFor.max is 9000h; it must be more than 0, at most 8760h`,
			`4:61: policy "a": breaker.openFor.multiplier is 1; it must be a number: at least 1.1, at most 100`,
			`4:72: policy "a": breaker.openFor.jitter is 1; it must be a share: at least 0, less than 1`,
			`4:87: policy "a": breaker.openFor.retryAfter is -1s; it must be 0 to 8760h`,
		}},
		{`breaker: {openFor: {initial: 5, max: long, multiplier: 101, jitter: -0.1}}`, []string{
			`4:34: policy "a": breaker.openFor.initial is 5, which has no unit; write 5ms or 5s`,
			`4:42: policy "a": breaker.openFor.max is "long"; it must be a duration such as 800ms, 30s or 1h30m`,
			`4:60: policy "a": breaker.openFor.multiplier is 101; it must be a number: at least 1.1, at most 100`,
			`4:73: policy "a": breaker.openFor.jitter is -0.1; it must be a share: at least 0, less than 1`,
		}},
		{`breaker: {openFor: {max: 1m, multiplier: x2, jitter: 20%}}`, []string{
			`4:46: policy "a": breaker.openFor.multiplier is "x2"; it must be a number: at least 1.1, at most 100`,
			`4:58: policy "a": breaker.openFor.jitter is "20%"; it must be a share: at least 0, less than 1`,
		}},
		{`breaker: {openFor: {max: 1m, multiplier: .nan, jitter: 020}}`, []string{
			`4:46: policy "a": breaker.openFor.multiplier is .nan; it must be a number: at least 1.1, at most 100`,
			`4:60: policy "a": breaker.openFor.jitter is 020; it must be a share: at least 0, less than 1`,
		}},
		{`breaker: {openFor: {initial: 10s, max: 5s}}`, []string{
			`4:44: policy "a": breaker.openFor.max is 5s; it must be at least initial, 10s`,
		}},
		{`breaker: {openFor: {max: 29s}}`, []string{
			`4:30: policy "a": breaker.openFor.max is 29s; it must be at least initial, 30s`,
		}},
		{`breaker: {openFor: {initial: 0, max: 29s}}`, []string{
			`4:34: policy "a": breaker.openFor.initial is 0; it must be more than 0, at most 8760h`,
		}},
		{`breaker: {openFor: {intial: 60s, max: 50s}}`, []string{
			`4:25: policy "a": unknown key "intial"; did you mean "initial"?`,
			`4:43: policy "a": breaker.openFor.max is 50s; it must be at least initial, 1m0s`,
		}},
		{`breaker: {openFor: {factor: 2}}`, []string{
			`4:25: policy "a": unknown key "factor"; openFor has initial, max, multiplier, jitter, retryAfter`,
		}},
		{`breaker: {openFor: [30s], multiplier: 2}`, []string{
			`4:24: policy "a": breaker.openFor is a list; it must be a duration such as 800ms, 30s or 1h30m`,
			`4:31: policy "a": unknown key "multiplier" here; it belongs in openFor`,
		}},
		{`breaker: {window: {time: 1us}, halfOpen: {calls: 0, probeTimeout: -1s, maxWait: -1s}}`, []string{
			`4:30: policy "a": breaker.window.time is 1us; it must be 1ms to 8760h`,
			`4:54: policy "a": breaker.halfOpen.calls is 0; it must be 1 to 1000000`,
			`4:71: policy "a": breaker.halfOpen.probeTimeout is -1s; it must be 0 to 8760h`,
			`4:85: policy "a": breaker.halfOpen.maxWait is -1s; it must be 0 to 8760h`,
		}},
		{`breaker: {window: 100, halfOpen: 10}`, []string{
			`4:23: policy "a": breaker.window is 100; it must be a mapping of calls, time`,
			`4:38: policy "a": breaker.halfOpen is 10; it must be a mapping of calls, probeTimeout, maxWait`,
		}},
		{`breaker: {window: {size: 10}}`, []string{
			`4:24: policy "a": unknown key "size"; window has calls, time`,
		}},
		{`breaker: {failureStatus: 503}`, []string{
			`4:30: policy "a": breaker.failureStatus is 503; it must be a list: write [503]`,
		}},
		{`breaker: {failureStatus: [5xx, 599-500, 99-1000, [1], null]}`, []string{
			`4:31: policy "a": breaker.failureStatus[0] is "5xx"; it must be a status such as 503, or a range such as 500-599`,
			`4:36: policy "a": breaker.failureStatus[1] is 599-500, which is empty; write 500-599`,
			`4:45: policy "a": breaker.failureStatus[2] is 99-1000; a status must be 100 to 999`,
			`4:54: policy "a": breaker.failureStatus[3] is a list; it must be a status such as 503, or a range such as 500-599`,
			`4:59: policy "a": breaker.failureStatus[4] is empty; it must be a status such as 503, or a range such as 500-599`,
		}},
		{`match: [{method: {a: b}, headers: {X: null}}]
breaker: {failureStatus: }`, []string{
			`4:22: policy "a": match[0].method is a mapping; it must be a list: write [GET]`,
			`4:43: policy "a": match[0].headers.X is empty; write {exact: VALUE}`,
			`5:30: policy "a": breaker.failureStatus is empty; it must be a list: write [500-599]`,
		}},
		{`breaker: {settle: trailers}`, []string{
			`4:23: policy "a": breaker.settle is "trailers"; it must be headers or body`,
		}},
		{`breaker: {force: Open}`, []string{
			`4:22: policy "a": breaker.force is "Open"; it must be open or closed; did you mean open?`,
		}},
		{`breaker: {force: none}`, []string{
			`4:22: policy "a": breaker.force is "none"; it must be open or closed`,
		}},
		{`breaker: {settle: Body}`, []string{
			`4:23: policy "a": breaker.settle is "Body"; it must be headers or body; did you mean body?`,
		}},
		{`breaker: {settle: [body]}`, []string{
			`4:23: policy "a": breaker.settle is a list; it must be headers or body`,
		}},
		{"breaker: {}\nreject: {status: {full: 200, timeout: 503, open: 600, draining: x}, retryAfter: -1s}", []string{
			`5:29: policy "a": reject.status.full is 200; it must be 400 to 599`,
			`5:34: policy "a": unknown key "timeout"; status has full, wait_timeout, open, draining, canceled`,
			`5:54: policy "a": reject.status.open is 600; it must be 400 to 599`,
			`5:69: policy "a": reject.status.draining is "x"; it must be a whole number`,
			`5:85: policy "a": reject.retryAfter is -1s; it must be 0 to 8760h`,
		}},
		{"breaker: {}\nreject: {status: 503, retryAfter: 1}", []string{
			`5:22: policy "a": reject.status is 503; it must be a mapping of full, wait_timeout, open, draining, canceled`,
			`5:39: policy "a": reject.retryAfter is 1, which has no unit; write 1ms or 1s`,
		}},
		{"breaker: {}\n<<: b\n? [a]\n: b", []string{
			`5:5: policy "a": << must come once, with an alias of a mapping, or a list of such, that does not contain it and is not too large; write the keys out`,
			`6:7: policy "a": a key is a list; it must be text`,
		}},
		{`breaker: {failureRate: 050, slowCallRate: "50 %", slowCall: 1s}`, []string{
			`4:28: policy "a": breaker.failureRate is 050; it must be a percentage: more than 0, at most 100`,
			`4:47: policy "a": breaker.slowCallRate is "50 %"; write it without the percent sign: 50`,
		}},
		{`sied: server
per: Host
failureRates: 50
"a\nb": c
breaker: {}`, []string{
			`4:5: policy "a": unknown key "sied"; did you mean "side"?`,
			`5:10: policy "a": per is "Host"; it must be policy, route, host or header:NAME; did you mean host?`,
			`6:5: policy "a": unknown key "failureRates"; a policy has name, side, match, per, mode, bulkhead, breaker, reject, exempt`,
			`7:5: policy "a": unknown key "a\nb"; a policy has name, side, match, per, mode, bulkhead, breaker, reject, exempt`,
		}},
		// No text from the file breaks the line of a message.
		{`match: [{path: "/a\nb"}, {method: "a\nb"}, {headers: {"A\nB": "a\nb"}}]
bulkhead: {maxConcurrent: !x "a\nb", maxWait: "1\ns"}`, []string{
			`4:20: policy "a": match[0].path is "/a\nb": a path holds no control characters; write %0A`,
			`4:39: policy "a": match[1].method is "a\nb"; it must be a list: write [GET]`,
			`4:59: policy "a": match[2].headers has "A\nB", which is not the name of a header`,
			`4:67: policy "a": match[2].headers."A\nB" is "a\nb"; write {exact: "a\nb"}`,
			`5:31: policy "a": bulkhead.maxConcurrent is "a\nb"; it must be a whole number`,
			`5:51: policy "a": bulkhead.maxWait is "1\ns"; it must be a duration such as 800ms, 30s or 1h30m`,
		}},
		{`match: [{headers: {A: {exact: " b"}, C: {exact: "d\ne"}, F: {exact: "ü\tg"}, G: {prefix: " b"}, H: {suffix: "b "}, I: {contains: "\n"}, J: {prefix: "b "}, K: {regexp: " "}}}]
breaker: {}`, []string{
			`4:35: policy "a": match[0].headers.A.exact is " b"; no header has spaces at its ends: write "b"`,
			`4:53: policy "a": match[0].headers.C.exact is "d\ne"; no header has control characters: leave them out`,
			`4:94: policy "a": match[0].headers.G.prefix is " b"; no header has spaces at its ends: write "b"`,
			`4:113: policy "a": match[0].headers.H.suffix is "b "; no header has spaces at its ends: write "b"`,
			`4:134: policy "a": match[0].headers.I.contains is "\n"; no header has control characters: leave them out`,
		}},
	} {
		file := "version: 1\npolicies:\n  - name: a\n    " + strings.ReplaceAll(tt.keys, "\n", "\n    ")
		assert.Equal(t, tt.want, problemsOf(t, file), file)
	}
}
