package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// onGroup is a file with a matchGroup of these lines, and a bulkhead for it.
func onGroup(lines string) string {
	return "servicecomb:\n  matchGroup:\n    a: |\n      " + strings.ReplaceAll(lines, "\n", "\n      ") + "\n  bulkhead:\n    a: |\n      maxConcurrentCalls: 1\n"
}

func problemsIn(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(strings.ReplaceAll(err.Error(), "f:", ""), "\n")
}

func TestServiceCombGroupsThatAreRefused(t *testing.T) {
	const g = `matchGroup "a": `
	for lines, want := range map[string]string{
		"services: a":                      "4:7: " + g + "matches is missing, and without it the group is dropped; list what it matches",
		"matches:":                         "4:15: " + g + "matches is empty, and so the group is dropped; list what it matches",
		"matches: []":                      "4:16: " + g + "matches is empty, and so the group is dropped; list what it matches",
		"matches:\n  apiPath: {exact: /a}": "5:9: " + g + "matches is a mapping; it must be a list: put a - before each entry",
		"matches: all":                     "4:16: " + g + "matches is all; it must be a list: put a - before each entry",
		"apiPath: {exact: /a}":             "4:7: " + g + `unknown key "apiPath"; it belongs in an entry of matches, below a -`,
		"match: []":                        "4:7: " + g + `unknown key "match"; did you mean "matches"?`,
		"matches: [{}]":                    "4:17: " + g + `matches[0] has no condition, and so matches every request; if that is meant, write apiPath: {prefix: "/"}`,
		"matches: [{name: all}]":           "4:17: " + g + `matches[0] has no condition, and so matches every request; if that is meant, write apiPath: {prefix: "/"}`,
		"matches: [/a]":                    "4:17: " + g + `matches[0] is "/a"; it must be a mapping of name, apiPath, method, headers, queries, serviceName, customMatcher`,
		"matches:\n  -\n  - apiPath: {exact: /a}":                             "5:10: " + g + "matches[0] is empty; it must be a mapping of name, apiPath, method, headers, queries, serviceName, customMatcher",
		"matches: [{apiPath: /a}]":                                            "4:27: " + g + `matches[0].apiPath is /a; it must be a mapping: write {exact: "/a"}`,
		"matches: [{apiPath: [/a]}]":                                          "4:27: " + g + "matches[0].apiPath is a list; it must be a mapping such as {exact: VALUE}",
		"matches: [{apiPath: {exact: [/a]}}]":                                 "4:35: " + g + "matches[0].apiPath.exact is a list; it must be text",
		"matches: [{apiPath: {prefx: /a}}]":                                   "4:28: " + g + `matches[0].apiPath: unknown key "prefx"; did you mean "prefix"?`,
		"matches: [{apiPath: {regexp: /a}}]":                                  "4:28: " + g + `matches[0].apiPath: unknown key "regexp"; there are no expressions in a ServiceComb file; it has exact, prefix, suffix, contains, compare`,
		"matches: [{apiPath: {exact: 2020-01-01}}]":                           "4:35: " + g + `matches[0].apiPath.exact is 2020-01-01, which is not text, and so never holds; put it in quotes: "2020-01-01"`,
		"matches: [{services: a, method: [GET]}]":                             "4:18: " + g + `matches[0]: unknown key "services"; it belongs beside matches: indent it less`,
		"matches: [{query: {}, method: [GET]}]":                               "4:18: " + g + `matches[0]: unknown key "query"; did you mean "queries"?`,
		"matches: [{header: {}, method: [GET]}]":                              "4:18: " + g + `matches[0]: unknown key "header"; did you mean "headers"?`,
		"matches: [{method: [GET, 7 up]}]":                                    "4:32: " + g + `matches[0].method[1] is "7 up", which is not a method; write one such as GET`,
		"matches: [{method: [[GET]]}]":                                        "4:27: " + g + "matches[0].method[0] is a list; it must be a method such as GET",
		"matches: [{headers: [a]}]":                                           "4:27: " + g + "matches[0].headers is a list; it must be a mapping such as {NAME: {exact: VALUE}}",
		"matches: [{headers: {a b: {exact: c}}}]":                             "4:28: " + g + `matches[0].headers has "a b", which no request has among its headers`,
		"matches: [{headers: {Host: {exact: c}}}]":                            "4:28: " + g + `matches[0].headers has "Host", which no request has among its headers`,
		"matches: [{headers: {a: {b: c}}}]":                                   "4:32: " + g + `matches[0].headers.a: unknown key "b"; a condition has exact, prefix, suffix, contains, compare`,
		"matches: [{headers: {? [a] : {exact: c}}}]":                          "4:30: " + g + "matches[0].headers has a list for a name; it must be text",
		"matches: [{queries: {a: b}}]":                                        "4:31: " + g + `matches[0].queries.a is b; it must be a mapping: write {exact: "b"}`,
		"matches: [{serviceName: \"\"}]":                                      "4:31: " + g + "matches[0].serviceName is empty; give it a value, or leave it out",
		"matches: [{serviceName: [a]}]":                                       "4:31: " + g + "matches[0].serviceName is a list; it must be text",
		"matches: [{customMatcher: a}]":                                       "4:33: " + g + "matches[0].customMatcher is a; it must be a mapping",
		"matches: [{customMatcher: {customMatcherHandler: a.B}}]":             "4:33: " + g + `matches[0].customMatcher asks "a.B", which is a class of Java; match on headers instead. Here it never holds`,
		"matches: [{method: [GET]}]\nservices: [a]":                           "5:17: " + g + "services is a list; it must be one text, such as cart or cart:1.2.0,stock",
		"matches: [{method: [GET]}]\n<<: all":                                 "5:7: " + g + "<< must come once, with an alias of a mapping, or a list of such, that does not contain it and is not too large; write the keys out",
		"matches: [{method: [GET]}]\n? [a]\n: b":                              "5:9: " + g + "a key is a list; it must be text",
		"matches: [{method: [GET], headers: {A: {exact: b}, A: {exact: c}}}]": "4:58: " + g + `matches[0].headers: "A" is already in line 4; keep one of them`,
	} {
		set, err := policy.Parse("f", []byte(onGroup(lines)))
		require.Error(t, err, lines)
		assert.Equal(t, []string{want}, problemsIn(err), lines)
		assert.Nil(t, set)
	}
}

// What a condition that is passed over, or never holds, does leniently.
func TestServiceCombGroupsLeniently(t *testing.T) {
	get := &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/a", Header: http.Header{"A": {"b"}}}
	for lines, matches := range map[string]bool{
		"matches: [{name: all}]":                                     true,
		"matches: [{uri: {exact: /b}}]":                              true,
		"matches: [{apiPath: }]":                                     true,
		"matches: [{uri: {exact: /b}, method: [PUT]}]":               false,
		"matches:\n  -\n  - apiPath: {exact: /a}":                    true, // the first is nothing
		"matches: [{apiPath: {prefx: /a}}]":                          false,
		"matches: [{apiPath: {prefx: /a, prefix: /a}}]":              false,
		"matches: [{apiPath: {prefx: /a}}, {method: [GET]}]":         true,
		"matches: [{apiPath: {exact: 1}}]":                           false,
		"matches: [{method: []}]":                                    false,
		"matches: [{method: [get]}]":                                 false,
		"matches: [{method: ['GET,PUT', GET]}]":                      true,
		"matches: [{headers: {}}]":                                   true,
		"matches: [{headers: {A: }}]":                                false,
		"matches: [{headers: {a b: {exact: c}}}]":                    false,
		"matches: [{headers: {A: {exact: c}, A: {exact: b}}}]":       true, // the last one counts
		"matches: [{headers: {A: {exact: b}, A: {exact: c}}}]":       false,
		"matches: [{customMatcher: {customMatcherHandler: a.B}}]":    false,
		"matches: [{customMatcher: {customMatcherParameters: b}}]":   true,
		"matches: [{method: GET}]":                                   false, // the group is dropped
		"matches: [{method: [PUT]}, {apiPath: /a}, {method: [GET]}]": false,
		"matches: [{method: [GET]}]\nservices: b":                    false,
		"matches: [{method: [GET]}]\nservices: ' me'":                false,
		"matches: [{method: [GET]}]\nservices: ' b,me'":              true,
		"matches: [{method: [GET]}]\nservices: me:2":                 true,
		"matches: [{method: [GET]}]\nservices: 'me:,'":               true,
		"matches: [{method: [GET]}]\nservices: me:3":                 false,
		"matches: [{method: [GET]}]\nservices: 'me:2:x'":             false,
		"matches: [{method: [GET]}]\nservices: ''":                   true,
		"matches: [{method: [GET]}]\nmatches: [{method: [PUT]}]":     false,
		"matches: [{serviceName: [a]}]":                              false,
	} {
		set, err := policy.Parse("f", []byte(onGroup(lines)), policy.Lenient(), policy.Service("me", "2"))
		require.NoError(t, err, lines)
		assert.Equal(t, matches, set.Match(get).Bulkhead != nil, "%s: %v", lines, set.Warnings())
	}
}

func TestServiceCombPoliciesThatAreRefused(t *testing.T) {
	const b, c = `bulkhead "a": `, `circuitBreaker "a": `
	const breakerKeys = "failureRateThreshold, slowCallRateThreshold, slowCallDurationThreshold, minimumNumberOfCalls, slidingWindowType, slidingWindowSize, waitDurationInOpenState, permittedNumberOfCallsInHalfOpenState, recordFailureStatus, forceOpen, forceClosed, name, services, order"
	for _, tt := range []struct{ kind, line, want string }{
		{"bulkhead", "maxConcurrentCalls\uff1a5", "4:8: " + b + `it is "maxConcurrentCalls：5"; write : and a space in the place of ：`},
		{"bulkhead", "[]", "4:8: " + b + "it is an empty list; it must be a mapping of maxConcurrentCalls, maxWaitDuration, name, services, order"},
		{"bulkhead", "'5'", "4:9: " + b + `it is 5; it must be a mapping of maxConcurrentCalls, maxWaitDuration, name, services, order`},
		{"bulkhead", "{slidingWindowSize: 1}", "4:9: " + b + `unknown key "slidingWindowSize"; it belongs in circuitBreaker or instanceIsolation`},
		{"bulkhead", "{apiPath: 1}", "4:9: " + b + `unknown key "apiPath"; it belongs in matchGroup.a`},
		{"bulkhead", "{limit: 1}", "4:9: " + b + `unknown key "limit"; a policy of the kind bulkhead has maxConcurrentCalls, maxWaitDuration, name, services, order`},
		{"bulkhead", "{maxWait: 1}", "4:9: " + b + `unknown key "maxWait"; did you mean "maxWaitDuration"?`},
		{"bulkhead", "{max: 1}", "4:9: " + b + `unknown key "max"; a policy of the kind bulkhead has maxConcurrentCalls, maxWaitDuration, name, services, order`},
		{"circuitBreaker", "{slowCall: 1}", "4:9: " + c + `unknown key "slowCall"; a policy of the kind circuitBreaker has ` + breakerKeys},
		{"bulkhead", "{maxWaitDuration: }", "4:26: " + b + "maxWaitDuration is empty; give it a value, or leave it out"},
		{"bulkhead", "{maxWaitDuration: ''}", "4:26: " + b + "maxWaitDuration is empty; give it a value, or leave it out"},
		{"bulkhead", "{maxWaitDuration: -1s}", "4:26: " + b + "maxWaitDuration is -1s; it must be 0 or more"},
		{"bulkhead", "{maxWaitDuration: [1]}", "4:26: " + b + "maxWaitDuration is a list; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m"},
		{"bulkhead", "{maxConcurrentCalls: 0}", "4:29: " + b + "maxConcurrentCalls is 0; it must be a whole number, 1 to 2147483647"},
		{"bulkhead", "{order: }", "4:16: " + b + "order is empty; give it a value, or leave it out"},
		{"bulkhead", "{order: [1]}", "4:16: " + b + "order is a list; it must be a whole number, -2147483648 to 2147483647"},
		{"bulkhead", "{services: {a: b}}", "4:19: " + b + "services is a mapping; it must be one text, such as cart or cart:1.2.0,stock"},
		{"circuitBreaker", "{maxConcurrentCalls: 1}", "4:9: " + c + `unknown key "maxConcurrentCalls"; it belongs in bulkhead or instanceBulkhead`},
		{"circuitBreaker", "{slidingWindowType: [COUNT_BASED]}", "4:28: " + c + "slidingWindowType is a list; it must be COUNT_BASED or TIME_BASED"},
		{"circuitBreaker", "{slidingWindowType: calls}", "4:28: " + c + "slidingWindowType is calls, which ServiceComb takes for TIME_BASED; write COUNT_BASED or TIME_BASED"},
		{"circuitBreaker", "{slidingWindowSize: {a: b}}", "4:28: " + c + "slidingWindowSize is a mapping; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m"},
		{"circuitBreaker", "{failureRateThreshold: .nan}", "4:31: " + c + "failureRateThreshold is .nan; it must be a percentage: more than 0, at most 100"},
		{"circuitBreaker", "{recordFailureStatus: [[500]]}", "4:31: " + c + "recordFailureStatus[0] is a list; it must be a status such as 503, or 5xx"},
		{"circuitBreaker", "{recordFailureStatus: [600, 6000, 0xx]}", "4:36: " + c + "recordFailureStatus[1] is 6000, which no response has; write a status such as 503, or 5xx"},
		{"circuitBreaker", "{forceOpen: }", "4:20: " + c + "forceOpen is empty; give it a value, or leave it out"},
		{"circuitBreaker", "{forceOpen: true, forceClosed: true}", "4:39: " + c + "forceClosed has no effect beside forceOpen; leave one out"},
	} {
		_, err := policy.Parse("f", fmt.Appendf(nil, "servicecomb:\n  matchGroup.a: {matches: [{method: [GET]}]}\n  %s:\n    a: %s\n", tt.kind, tt.line))
		require.Error(t, err, tt.line)
		assert.Equal(t, tt.want, problemsIn(err)[0], tt.line)
	}
}

// A name has to do in metrics, wherever it comes from.
func TestServiceCombNames(t *testing.T) {
	for name, want := range map[string]string{
		`""`:                                 `policy name is missing`,
		`"a\tb"`:                             `bulkhead "a\tb": policy name "a\tb" is not printable; use letters, digits, spaces and punctuation`,
		`" a"`:                               `bulkhead " a": policy name " a" has spaces at its ends; write "a"`,
		`"(unmatched)"`:                      `bulkhead "(unmatched)": policy name "(unmatched)" is taken: requests that no policy matches are counted under it; choose another`,
		`"` + strings.Repeat("n", 129) + `"`: `policy name "` + strings.Repeat("n", 80) + `..." has 129 bytes; it must have at most 128`,
	} {
		file := []byte("servicecomb:\n  matchGroup: {" + name + ": {matches: [{method: [GET]}]}}\n  bulkhead: {" + name + ": {}}\n")
		_, err := policy.Parse("f", file)
		require.Error(t, err, name)
		if name != `""` {
			assert.Contains(t, err.Error(), want)
		}
		set, err := policy.Parse("f", file, policy.Lenient())
		require.NoError(t, err)
		assert.Empty(t, set.Rules(), name)
	}
}

// What is beyond what there is here is cut to it, and said.
func TestServiceCombUpperEnds(t *testing.T) {
	set, err := policy.Parse("f", []byte(`
servicecomb:
  matchGroup.a: {matches: [{method: [GET]}]}
  bulkhead.a: {maxConcurrentCalls: 2147483647, maxWaitDuration: 9999h}
  circuitBreaker.a: {minimumNumberOfCalls: 2147483647, slidingWindowType: COUNT_BASED, slidingWindowSize: 2147483647, failureRateThreshold: 0.5}
  instanceIsolation.a: {slidingWindowSize: 2147483647, permittedNumberOfCallsInHalfOpenState: 1000001}
`))
	require.NoError(t, err)
	var got []string
	for _, w := range set.Warnings() {
		got = append(got, strings.TrimPrefix(w.Error(), "f:"))
	}
	assert.Equal(t, []string{
		`4:36: bulkhead "a": maxConcurrentCalls is 2147483647, and 1000000000 is used, which is the most there is`,
		`4:65: bulkhead "a": maxWaitDuration is 9999h, and 8760h is used, which is the longest there is`,
		`4:65: bulkhead "a": maxWaitDuration is 8760h0m0s, but most callers have given up by then: their deadline is 30s or less; write a shorter one`,
		`5:44: circuitBreaker "a": minimumNumberOfCalls is 2147483647, and 1000000 is used, which is the most there is`,
		`5:107: circuitBreaker "a": slidingWindowSize is 2147483647 calls, and 1000000 is used, which is the most there is`,
		`5:141: circuitBreaker "a": failureRateThreshold is 0.5, which is less than one percent; for a share of 0.5 write 50`,
		`6:95: instanceIsolation "a": permittedNumberOfCallsInHalfOpenState is 1000001, and 1000000 is used, which is the most there is`,
	}, got)
	for _, r := range set.Rules() {
		fits(t, r)
	}
}

// The option says which service this is; else the file does.
func TestServiceCombServices(t *testing.T) {
	const policies = "\nservicecomb.matchGroup.a: {matches: [{method: [GET]}]}\nservicecomb.bulkhead.a: {services: %q}\n"
	for _, tt := range []struct {
		self, services string
		opts           []policy.LoadOption
		loaded         bool
		problem        string
	}{
		{"spring.application.name: till", "till", nil, true, ""},
		{"spring: {application: {name: till}}", "shop,till", nil, true, ""},
		{"spring: {application: {name: till}, cloud.servicecomb.discovery.version: 1.0}", "till:1.0", nil, true, ""},
		{"spring: {application: {name: till}, cloud: {servicecomb: {service: {name: cash, version: 2}}}}", "cash:2", nil, true, ""},
		{"service_description: {name: till, version: 0.0.1}", "till:0.0.1", nil, true, ""},
		{"servicecomb: {service: {name: '${NAME:till}', version: 1}}", "till:1", nil, true, ""},
		{"a: &a {name: till}\nspring: {application: *a}", "till", nil, true, ""},
		{"spring.application.name: till", "shop", nil, false, ""},
		{"spring.application.name: till", "shop", []policy.LoadOption{policy.Service("shop", "")}, true, ""},
		{"spring.application.name: till", "till", []policy.LoadOption{nil, policy.Service("a", "1"), policy.Service("shop", "")}, false, ""},
		{"a: b", "till", nil, false, `services is till, but it is not known which service this is; say so by policy.Service, or by -service of the command, or leave services out`},
		{"spring.application.name: till", "till:1", nil, false, `services has "till:1", but it is not known which version of till this is; say so by policy.Service, or by -service of the command, or leave the version out`},
		{"spring.application.name: till", "shop:1", nil, false, ""},
		{"spring.application.name: ${NAME}", "till", nil, false, `it is not known which service this is`},
		{"spring.application.name: till", "shop,,till", nil, false, `services has "", which no service matches; write name or name:version`},
	} {
		data := fmt.Appendf(nil, tt.self+policies, tt.services)
		set, err := policy.Parse("f", data, tt.opts...)
		if tt.problem != "" {
			require.Error(t, err, "%s", data)
			assert.Contains(t, err.Error(), tt.problem)
			continue
		}
		require.NoError(t, err, "%s", data)
		assert.Len(t, set.Rules(), map[bool]int{true: 1}[tt.loaded], "%s", data)
	}
}

// Placeholders that name each other do not take the process down.
func TestPlaceholdersAreBounded(t *testing.T) {
	var file strings.Builder
	for i := range 30 {
		fmt.Fprintf(&file, "p%d: ${p%d}${p%d}\n", i, i+1, i+1)
	}
	file.WriteString("p30: x\nservicecomb.matchGroup.a: {matches: [{method: ['${p0}']}]}\n")
	_, err := policy.Parse("f", []byte(file.String()))
	require.Error(t, err)
	assert.Contains(t, err.Error(), "${p0} has a placeholder of Spring without a value in this file")
}

// A serviceName is the host for a client, and for a server who calls.
func TestServiceNames(t *testing.T) {
	set, err := policy.Parse("f", []byte(`
servicecomb:
  matchGroup.a: {matches: [{serviceName: Stock}]}
  bulkhead.a: {}
  instanceBulkhead.a: {}
`))
	require.NoError(t, err)
	for host, want := range map[string]bool{"stock": true, "STOCK:8080": true, "stock.default": false, "other": false, "": false} {
		d := set.Match(&policy.Request{Side: policy.Client, Host: host})
		assert.Equal(t, want, d.Bulkhead != nil, host)
		d = set.Match(&policy.Request{Side: policy.Server, Host: host})
		assert.Nil(t, d.Bulkhead, "a server's own host says nothing of the caller")
	}
	for caller, want := range map[string]bool{"Stock": true, "stock": false, "": false} {
		d := set.Match(&policy.Request{Side: policy.Server, Header: http.Header{"X-Cse-Src-Microservice": {caller}}})
		assert.Equal(t, want, d.Bulkhead != nil, caller)
	}
}

// A native file is read strictly, whatever the options.
func TestOptionsForNativeFiles(t *testing.T) {
	_, err := policy.Parse("f", []byte("version: 1\npolicies: [{name: a, exempt: true, limit: 1}]\n"), policy.Lenient(), policy.Service("a", "1"))
	require.Error(t, err)
	assert.Contains(t, err.Error(), `unknown key "limit"`)
}
