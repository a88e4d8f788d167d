package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// What a mapping has itself comes first, then what the first of the merged ones has.
func TestMergeKeys(t *testing.T) {
	set := mustParse(t, `version: 1
policies:
  - name: a
    match: [{path: /a}]
    bulkhead: &small {maxConcurrent: 5, maxWait: 1s}
    breaker: &b
      openFor: 5s
      window: {calls: 50}
  - name: b
    match: [{path: /b}]
    bulkhead: {<<: *small, maxConcurrent: 7}
    breaker:
      <<: [{openFor: 6s}, *b, {minCalls: 3}]
  - &c
    name: c
    <<: {match: [{path: /c}], bulkhead: {<<: *small}}
  - {<<: *c, name: d, match: [{path: /d}]}
`)
	for i, want := range []policy.BulkheadSettings{{5, 1000, time.Second}, {7, 1000, time.Second}, {5, 1000, time.Second}, {5, 1000, time.Second}} {
		assert.Equal(t, want, *set.Rules()[i].Bulkhead)
	}
	b := set.Rules()[1].Breaker
	assert.Equal(t, []any{6 * time.Second, 50, 3}, []any{b.OpenFor, b.Window.Calls, b.MinCalls})
	line, _ := set.Where(set.Rules()[1], "bulkhead.maxWait")
	assert.Equal(t, 5, line, "where it is written")

	assert.Equal(t, []string{
		`3:39: policy "a": bulkhead.maxQueue is -1; it must be 0 to 1000000000`,
		`3:39: policy "b": bulkhead.maxQueue is -1; it must be 0 to 1000000000`,
		`4:47: policy "b": unknown key "maxWiat"; did you mean "maxWait"?`,
		`5:25: policy "c": bulkhead has no maxConcurrent; say how many requests may be in flight: 1 to 1000000000`,
		`5:34: policy "c": << must come once, with an alias of a mapping, or a list of such, that does not contain it and is not too large; write the keys out`,
	}, problemsOf(t, `version: 1
policies:
  - {name: a, bulkhead: &a {maxQueue: -1, maxConcurrent: 1}}
  - {name: b, bulkhead: {<<: *a, maxWait: 1s, maxWiat: 2s}}
  - {name: c, bulkhead: {<<: {}, <<: {}}}
`))
}

// Merges that would not end, or bring in too much, are told of.
func TestMergeKeysAreBounded(t *testing.T) {
	const refused = "<< must come once"
	for _, file := range []string{
		"version: 1\npolicies: [&a {name: a, <<: *a, breaker: {}}]",
		"version: 1\npolicies: [&a {name: a, breaker: {<<: *a}}]",
		"version: 1\npolicies: [{name: a, <<: [1], breaker: {}}]",
	} {
		assert.Contains(t, strings.Join(problemsOf(t, file), "\n"), refused, file)
	}
	var file strings.Builder
	file.WriteString("version: 1\npolicies:\n  - &a {name: a, match: [" + strings.Repeat("{path: /a}, ", 1000) + "], breaker: {}}\n")
	for i := range 1000 {
		fmt.Fprintf(&file, "  - {<<: *a, name: b%d}\n", i)
	}
	problems := problemsOf(t, file.String())
	assert.Contains(t, strings.Join(problems, "\n"), refused)
	assert.Less(t, len(problems), 3000)
}

func TestMergeKeysOfServiceComb(t *testing.T) {
	set, err := policy.Parse("f", []byte(`
common: &common
  slidingWindowType: COUNT_BASED
  slidingWindowSize: 20
spring: {<<: whatever, datasource: {<<: [1]}}
servicecomb:
  matchGroup: {a: {matches: [{apiPath: {prefix: /a}}]}, b: {matches: [{apiPath: {prefix: /b}}]}}
  circuitBreaker:
    a: {<<: *common, minimumNumberOfCalls: 10}
    b: |
      recordFailureStatus: &all [5xx]
      <<: {minimumNumberOfCalls: 5, failureRateThreshold: 30}
      failureRateThreshold: 40
`))
	require.NoError(t, err)
	require.Empty(t, set.Warnings())
	a, b := set.Rules()[0].Breaker, set.Rules()[1].Breaker
	assert.Equal(t, []any{20, 10}, []any{a.Window.Calls, a.MinCalls})
	assert.Equal(t, []any{5, 40.0}, []any{b.MinCalls, b.FailureRate})

	_, err = policy.Parse("f", []byte(`servicecomb:
  matchGroup: {a: {matches: [{apiPath: {prefix: /a}}]}}
  bulkhead:
    a: |
      <<: {maxWaitDuration: 100ms}
`))
	assert.EqualError(t, err, `f:5:29: bulkhead "a": maxWaitDuration is 100ms; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 100`)
}
