package policy_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// FuzzServiceComb holds files against what all that follows relies on, as FuzzParse
// does, and the two ways to load them against each other: what loads strictly is the
// same leniently, and what lenient loading says is what strict loading refuses.
func FuzzServiceComb(f *testing.F) {
	files, err := filepath.Glob("testdata/servicecomb/files/*.yaml")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, seed := range []string{
		"servicecomb.matchGroup.a: {matches: [{serviceName: b, method: [GET], headers: {c: {compare: '>1'}}, queries: {d: {suffix: e}}}], services: 'f,g:1'}\nservicecomb.bulkhead.a: {}\n",
		"servicecomb: &a {bulkhead: &b {c: *a}, matchGroup: *b}\n",
		"servicecomb: {circuitBreaker: {a: '${b:${c:1}}'}, matchGroup: {a: \"matches:\\n- apiPath: {prefix: \\\"/\\\"}\\n\"}}\nb: ${b}\n",
		"servicecomb: {instanceIsolation: {a: >\n recordFailureStatus: [5xx]\n, b: 1}}\n",
		"servicecomb:\n  bulkhead:\n    a: |\n      order: 010\n      maxWaitDuration: 1h-1m+.5S\n  matchGroup: {a: 'matches: [{apiPath: {contains: ''''}}]'}\n",
		"? servicecomb\n: ? [a]\n  : b\n", "servicecomb:\n  <<: {bulkhead: {}}\n", "servicecomb: !!binary YQ==\n", "servicecomb.: {}\n", "servicecomb..a: {}\n",
	} {
		f.Add([]byte(seed))
	}
	self := policy.Service("f", "1")
	f.Fuzz(func(t *testing.T, data []byte) {
		strict, err := policy.Parse("f", data, self)
		lenient, lenientErr := policy.Parse("f", data, self, policy.Lenient())
		lines := 1
		for _, lineBreak := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += bytes.Count(data, []byte(lineBreak))
		}
		if err != nil {
			problems := err.(policy.Errors)
			require.NotEmpty(t, problems)
			checkProblems(t, problems)
			for _, p := range problems {
				require.LessOrEqual(t, p.Line, lines, p.Msg)
			}
		} else {
			require.NoError(t, lenientErr)
			require.Equal(t, outcomeOf(strict, nil), outcomeOf(lenient, nil))
		}
		if lenientErr != nil {
			for _, p := range lenientErr.(policy.Errors) {
				require.Contains(t, err.Error(), p.Error())
			}
			return
		}
		checkProblems(t, lenient.Warnings())
		if err != nil {
			for _, p := range err.(policy.Errors) {
				require.Contains(t, lenient.Warnings(), p)
			}
		}
		names := map[policy.Side]map[string]bool{policy.Server: {}, policy.Client: {}, policy.Both: {}}
		for i, r := range lenient.Rules() {
			require.Equal(t, i, r.Index)
			require.NotEmpty(t, r.Name)
			require.False(t, names[r.Side][r.Name], "name %q twice", r.Name)
			names[r.Side][r.Name] = true
			fits(t, r)
		}
		for _, side := range []policy.Side{policy.Server, policy.Client} {
			lenient.Match(&policy.Request{Side: side, Host: "b:1", EscapedPath: "/a", RawQuery: "d=e", Header: http.Header{"C": {"2"}, "X-Cse-Context": {`{"x-cse-src-microservice":"b"}`}}})
		}
	})
}
