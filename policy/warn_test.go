package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		policies string // from line 3, column 3
		want     []string
	}{
		{`- {name: a, bulkhead: {maxConcurrent: 1, maxQueue: 5}}`, []string{
			`3:54: policy "a": bulkhead.maxQueue has no effect without maxWait, since nobody waits; say how long`,
		}},
		{`- {name: a, bulkhead: {maxConcurrent: 1, maxQueue: 0}}`, nil},
		{`- {name: a, bulkhead: {maxConcurrent: 1, maxQueue: 0, maxWait: 1s}}`, []string{
			`3:66: policy "a": bulkhead.maxWait has no effect with maxQueue 0, since nobody may queue; leave one out`,
		}},
		{`- {name: a, breaker: {window: {calls: 10}, minCalls: 11}}`, []string{
			`3:56: policy "a": breaker.minCalls is 11, more than the window's 10 calls can hold; 10 is used`,
		}},
		{`- {name: a, breaker: {window: {calls: 10}}}`, []string{
			`3:41: policy "a": breaker.window.calls is 10, less than the default minCalls of 20; minCalls 10 is used`,
		}},
		{`- {name: a, breaker: {minCalls: 101}}`, []string{
			`3:35: policy "a": breaker.minCalls is 101, more than the window's 100 calls can hold; 100 is used`,
		}},
		{`- {name: a, breaker: {window: {time: 1s}, minCalls: 101}}`, nil},
		{`- {name: a, breaker: {slowCallRate: 50}}`, []string{
			`3:39: policy "a": breaker.slowCallRate has no effect without slowCall; say beyond which duration a call is slow`,
		}},
		{`- {name: a, breaker: {failureRate: 0.5}}`, []string{
			`3:38: policy "a": breaker.failureRate is 0.5, which is less than one percent; for a share of 0.5 write 50`,
		}},
		{`- {name: a, breaker: {openFor: {multiplier: 3}}}`, []string{
			`3:47: policy "a": breaker.openFor.multiplier has no effect without max; say how long the time may get`,
		}},
		{`- {name: a, side: server, breaker: {settle: body, openFor: {retryAfter: 1s}}}`, []string{
			`3:47: policy "a": breaker.settle is body, which has no effect on a server: a call is settled when its handler returns; leave it out`,
			`3:75: policy "a": breaker.openFor.retryAfter has no effect on a server, which has no upstream to ask; leave it out`,
		}},
		{`- {name: a, side: server, breaker: {settle: headers, openFor: {jitter: 0.2, retryAfter: 0}}}`, nil},
		{`- {name: a, side: client, breaker: {settle: body, openFor: {retryAfter: 1s}}}`, nil},
		{`- {name: a, breaker: {}, match: [{path: /a/*}, {path: "/:id/b:c"}]}`, []string{
			`3:43: policy "a": match[0].path has the segment *, which matches only a literal *; for everything below write {rest...}`,
			`3:57: policy "a": match[1].path has the segment :id, which matches only that text; for any segment write {id}`,
		}},
		{`- {name: a, bulkhead: {maxConcurrent: 1}}
- {name: b, bulkhead: {maxConcurrent: 1}}`, []string{
			`4:12: policy "b": it is never used: from policy "a" on nothing is left for it to decide; move it up`,
		}},
		{`- {name: a, bulkhead: {maxConcurrent: 1}}
- {name: b, breaker: {}}
- {name: c, match: [{path: /a}], exempt: true}
- {name: d, side: server, match: [{path: /a}], breaker: {}}`, []string{
			`5:12: policy "c": it is never used: from policy "b" on nothing is left for it to decide; move it up`,
			`6:12: policy "d": it is never used: from policy "b" on nothing is left for it to decide; move it up`,
		}},
		{`- {name: a, bulkhead: {maxConcurrent: 1}}
- {name: b, bulkhead: {maxConcurrent: 1}}
- {name: c, breaker: {minCalls: 1000}}`, []string{
			`4:12: policy "b": it is never used: from policy "a" on nothing is left for it to decide; move it up`,
			`5:35: policy "c": breaker.minCalls is 1000, more than the window's 100 calls can hold; 100 is used`,
		}},
		{`- {name: a, match: [{path: /}], bulkhead: {maxConcurrent: 1}}
- {name: b, side: client, bulkhead: {maxConcurrent: 1}}
- {name: c, side: server, exempt: true}
- {name: d, breaker: {}}
- {name: e, breaker: {}}`, []string{
			`7:12: policy "e": it is never used: from policy "d" on nothing is left for it to decide; move it up`,
		}},
		{`- {name: a, bulkhead: {maxConcurrent: 1}}
- {name: b, match: [{path: /b}], bulkhead: {maxConcurrent: 1}, breaker: {}}
- {name: c, side: client, bulkhead: {maxConcurrent: 1}, breaker: {}}
- {name: d, bulkhead: {maxConcurrent: 1}, breaker: {}}
- {name: e, match: [{path: /e}], side: server, bulkhead: {maxConcurrent: 1}, breaker: {}}`, []string{
			`4:12: policy "b": its bulkhead is never used: policy "a" in line 3 comes first for all that it matches; move it up, or leave the bulkhead out`,
			`5:12: policy "c": its bulkhead is never used: policy "a" in line 3 comes first for all that it matches; move it up, or leave the bulkhead out`,
			`6:12: policy "d": its bulkhead is never used: policy "a" in line 3 comes first for all that it matches; move it up, or leave the bulkhead out`,
			`7:12: policy "e": it is never used: from policy "d" on nothing is left for it to decide; move it up`,
		}},
		{`- {name: a, side: server, breaker: {}}
- {name: b, match: [{path: /b}], bulkhead: {maxConcurrent: 1}}
- {name: c, match: [{path: /b}], bulkhead: {maxConcurrent: 1}, breaker: {}}
- {name: d, bulkhead: {maxConcurrent: 1}, breaker: {}}`, []string{
			`5:12: policy "c": its bulkhead is never used: policy "b" in line 4 comes first for all that it matches; move it up, or leave the bulkhead out`,
		}},
	} {
		set := mustParse(t, "version: 1\npolicies:\n  "+strings.ReplaceAll(tt.policies, "\n", "\n  "))
		var got []string
		for _, w := range set.Warnings() {
			got = append(got, strings.TrimPrefix(w.Error(), "test.yaml:"))
		}
		assert.Equal(t, tt.want, got, tt.policies)
	}
	assert.Equal(t, "test.yaml:2:11: policies is empty: nothing is limited",
		mustParse(t, "version: 1\npolicies: []").Warnings()[0].Error())
}

func TestMinCallsAreCutToTheWindow(t *testing.T) {
	set := mustParse(t, `
version: 1
policies:
  - {name: a, match: [{path: /a}], breaker: {window: {calls: 10}}}
  - {name: b, match: [{path: /b}], breaker: {window: {calls: 30}, minCalls: 31}}
  - {name: c, match: [{path: /c}], breaker: {window: {calls: 30}, minCalls: 30}}
  - {name: d, match: [{path: /d}], breaker: {window: {time: 1s}, minCalls: 1000}}
`)
	var got []int
	for _, r := range set.Rules() {
		got = append(got, r.Breaker.MinCalls)
	}
	assert.Equal(t, []int{10, 30, 30, 1000}, got)
	assert.Len(t, set.Warnings(), 2)
}
