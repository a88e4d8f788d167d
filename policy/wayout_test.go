package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What an error says to write must be right.
func TestTheWayOutLeadsOut(t *testing.T) {
	for rest, want := range map[string]string{
		`bulkhead: {maxConcurrent: "20"}`:                 `is "20", which is text; write it without the quotes: 20`,
		`bulkhead: {maxConcurrent: 1, maxWait: 100 ms}`:   `is "100 ms"; write it without the space: 100ms`,
		`bulkhead: {maxConcurrent: 1, maxWait: 1h 30m}`:   `is "1h 30m"; write it without the space: 1h30m`,
		`bulkhead: {maxConcurrent: 1, maxWait: soon now}`: `is "soon now"; it must be a duration`,
		`breaker: {failureStatus: 5xx}`:                   `it must be a list: write [500-599]`,
		`breaker: {failureStatus: 503}`:                   `it must be a list: write [503]`,
		"match: [{method: get}]\n    exempt: true":        `it must be a list: write [GET]`,
		"match: [{method: POST}]\n    exempt: true":       `it must be a list: write [POST]`,
	} {
		problems := problemsOf(t, "version: 1\npolicies:\n  - name: a\n    "+rest+"\n")
		if assert.Len(t, problems, 1, rest) {
			assert.Contains(t, problems[0], want)
		}
	}
}
