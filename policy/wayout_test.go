package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/policy"
)

// What an error says to write is right when it is written, letter by letter.
func TestTheWayOutLeadsOut(t *testing.T) {
	for _, tt := range []struct{ rest, wrong, right, says string }{
		{"bulkhead: {maxConcurrent: %s}", `"20"`, "20", `is "20", which is text; write it without the quotes: 20`},
		{"bulkhead: {maxConcurrent: 1, maxWait: %s}", "100 ms", "100ms", `is "100 ms"; write it without the space: 100ms`},
		{"bulkhead: {maxConcurrent: 1, maxWait: %s}", "1h 30m", "1h30m", `is "1h 30m"; write it without the space: 1h30m`},
		{"bulkhead: {maxConcurrent: 1, maxWait: %s}", "5", "5ms", `is 5, which has no unit; write 5ms or 5s`},
		{"bulkhead: {maxConcurrent: 1, maxWait: %s}", "1e3", "1000ms", `is 1e3, which has no unit; write 1000ms or 1000s`},
		{"bulkhead: {maxConcurrent: 1, maxWait: %s}", `"0.5"`, "0.5s", `is "0.5", which has no unit; write 0.5ms or 0.5s`},
		{"breaker: {failureRate: %s}", "50%", "50", `is "50%"; write it without the percent sign: 50`},
		{"breaker: {failureRate: %s}", `"50"`, "50", `is "50", which is text; write it without the quotes: 50`},
		{"breaker: {failureStatus: %s}", "5xx", "[500-599]", `it must be a list: write [500-599]`},
		{"breaker: {failureStatus: %s}", "503", "[503]", `it must be a list: write [503]`},
		{"exempt: true\n    match: [{method: %s}]", "get", "[GET]", `it must be a list: write [GET]`},
		{"exempt: true\n    match: [{method: %s}]", "POST", "[POST]", `it must be a list: write [POST]`},
		{"exempt: true\n    match: [{method: %s}]", "put", "[PUT]", `it must be a list: write [PUT]`},
		{"exempt: true\n    match: [{method: %s}]", `"get, put"`, "[GET, PUT]", `it must be a list: write [GET, PUT]`},
		{"exempt: true\n    match: [{method: %s}]", `"*"`, "[GET]", `it must be a list: write [GET]`},
		{"exempt: true\n    match: [{headers: {A: %s}}]", "free", "{exact: free}", `is "free"; write {exact: free}`},
		{"exempt: true\n    match: [{headers: {A: %s}}]", "5", `{exact: "5"}`, `is 5; write {exact: "5"}`},
		{"exempt: true\n    match: [{headers: {A: %s}}]", "true", `{exact: "true"}`, `is true; write {exact: "true"}`},
		{"exempt: true\n    match: [{headers: {A: %s}}]", `"a, b"`, `{exact: "a, b"}`, `is "a, b"; write {exact: "a, b"}`},
		{"exempt: true\n    match: [{query: {a: %s}}]", `"*"`, `{exact: "*"}`, `is "*"; write {exact: "*"}`},
	} {
		file := "version: 1\npolicies:\n  - name: a\n    " + tt.rest + "\n"
		problems := problemsOf(t, fmt.Sprintf(file, tt.wrong))
		if assert.Len(t, problems, 1, tt.wrong) {
			assert.Contains(t, problems[0], tt.says)
		}
		assert.Contains(t, tt.says, tt.right)
		_, err := policy.Parse("f", fmt.Appendf(nil, file, tt.right))
		assert.NoError(t, err, tt.right)
	}
}

// Where no way out is near, none is made up.
func TestWhatHasNoWayOut(t *testing.T) {
	for value, want := range map[string]string{
		"maxWait: soon now":                     `is "soon now"; it must be a duration such as`,
		"maxWait: inf":                          `is "inf"; it must be a duration such as`,
		"maxWait: 1e300":                        `is 1e300; it must be a duration such as`,
		"maxQueue: " + strings.Repeat("9", 400): `it must be 0 to 1000000000`,
		"maxQueue: 1e3":                         `is 1e3; it must be a whole number`,
		"maxQueue: \u0665":                      "is \"\u0665\"; it must be a whole number",
	} {
		file := "version: 1\npolicies:\n  - name: a\n    bulkhead:\n      maxConcurrent: 1\n      " + value + "\n"
		problems := problemsOf(t, file)
		if assert.Len(t, problems, 1, value) {
			assert.Contains(t, problems[0], want)
		}
	}
}

// What is under a misspelt key is read as what was meant.
func TestWhatIsWrongUnderAMisspeltKey(t *testing.T) {
	assert.Equal(t, []string{
		`2:1: unknown key "polices"; did you mean "policies"?`,
		`4:5: policy "a": unknown key "bulkhed"; did you mean "bulkhead"?`,
		`4:30: policy "a": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000`,
		`4:33: policy "a": unknown key "maxWiat"; did you mean "maxWait"?`,
		`4:42: policy "a": bulkhead.maxWait is 5, which has no unit; write 5ms or 5s`,
	}, problemsOf(t, "version: 1\npolices:\n  - name: a\n    bulkhed: {maxConcurrent: 0, maxWiat: 5}\n"))
}

// What follows from one mistake is not told of as another.
func TestOneMistakeIsOneProblem(t *testing.T) {
	for keys, want := range map[string]string{
		"match:\n      - path: /a\n        bulkhead: {maxConcurrent: 5}": `6:9: policy "a": unknown key "bulkhead" here; it belongs in a policy`,
		"reject: {exempt: true}":                      `4:14: policy "a": unknown key "exempt" here; it belongs in a policy`,
		"breaker: {window: {calls: 10}, minCalls: 0}": `4:46: policy "a": breaker.minCalls is 0; it must be 1 to 1000000`,
		"breaker: {window: {calls: 10}, minCalls: x}": `4:46: policy "a": breaker.minCalls is "x"; it must be a whole number`,
		"breaker: {}\n    match: [{host: '*'}]":       `5:20: policy "a": match[0].host is "*": it is no host; leave host out to match every host`,
	} {
		errs, warnings := policy.Check("f", []byte("version: 1\npolicies:\n  - name: a\n    "+keys+"\n"))
		if assert.Len(t, errs, 1, keys) {
			assert.Equal(t, "f:"+want, errs[0].Error())
		}
		assert.Empty(t, warnings, keys)
	}
}

// Letters that look like others are shown as what they are.
func TestKeysOfLettersThatLookTheSame(t *testing.T) {
	assert.Equal(t, []string{
		`2:1: unknown key "p\u043elicies"; did you mean "policies"?`,
		`4:5: policy "a": unknown key "p\u0435r"; did you mean "per"?`,
	}, problemsOf(t, "version: 1\np\u043elicies:\n  - name: a\n    p\u0435r: host\n    breaker: {}\n"))
}
