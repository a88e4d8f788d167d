package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// Wherever a policy is written, what is wrong in it is found in the file: here the
// value that is marked with @, which is no number.
func TestServiceCombPlaces(t *testing.T) {
	const group = "servicecomb.matchGroup.p: 'matches: [{apiPath: {prefix: /}}]'\n"
	for name, file := range map[string]string{
		"text":              "servicecomb:\n  bulkhead:\n    p: |\n      maxWaitDuration: 10\n      maxConcurrentCalls: @\n",
		"text, indented":    "servicecomb:\n  bulkhead:\n    p: |2\n        maxConcurrentCalls: @\n",
		"text, stripped":    "servicecomb:\n  bulkhead:\n    p: |-\n\n\n      # why\n      maxConcurrentCalls: @\n\n\n",
		"text, kept":        "servicecomb:\n  bulkhead:\n    p: |+\n      maxConcurrentCalls: @\n\n\n",
		"text, commented":   "servicecomb:\n  bulkhead:\n    p: | # for now\n      maxConcurrentCalls: @\n",
		"text, anchored":    "servicecomb:\n  bulkhead:\n    p: &a |\n      maxConcurrentCalls: @\n",
		"text, by its tag":  "servicecomb:\n  bulkhead:\n    p: !!str |\n      maxConcurrentCalls: @\n",
		"alias":             "x: &a |\n  maxConcurrentCalls: @\nservicecomb:\n  bulkhead:\n    p: *a\n",
		"folded":            "servicecomb:\n  bulkhead:\n    p: >\n      {maxWaitDuration: 10,\n      maxConcurrentCalls: @}\n",
		"folded, lines":     "servicecomb:\n  bulkhead:\n    p: >-\n\n      maxWaitDuration: 10\n\n      order: 1\n\n      maxConcurrentCalls: @\n",
		"folded, deeper":    "servicecomb:\n  bulkhead:\n    p: >\n      order:\n        1\n      \n      maxConcurrentCalls:\n         @\n",
		"double quotes":     "servicecomb:\n  bulkhead: {p: \"order: 1\\nmaxConcurrentCalls: @\\n\"}\n",
		"escapes":           "servicecomb:\n  bulkhead: {p: \"\\x6frder: 1\\nmaxC\\u006fncurrentCalls: @\\n\"}\n",
		"lines, continued":  "servicecomb:\n  bulkhead:\n    p: \"order: 1\\n\\\n      maxConcurrentCalls:\\\n      \\ @\"\n",
		"lines, folded":     "servicecomb:\n  bulkhead:\n    p: \"{order: 1,  \n\n      maxConcurrentCalls:\n      @}\"\n",
		"single quotes":     "servicecomb:\n  bulkhead:\n    p: '{order: ''1'', maxConcurrentCalls: @}'\n",
		"single, folded":    "servicecomb:\n  bulkhead:\n    p: 'order: 1\n\n      maxConcurrentCalls: @\n\n      '\n",
		"plain":             "servicecomb:\n  bulkhead:\n    p: \n      !!str '{\"maxConcurrentCalls\": @}'\n",
		"nested":            "servicecomb:\n  bulkhead:\n    p:\n      maxWaitDuration: 10\n      maxConcurrentCalls: @\n",
		"flow":              "servicecomb: {bulkhead: {p: {maxConcurrentCalls: @}}}\n",
		"dotted":            "servicecomb.bulkhead.p: |\n  maxConcurrentCalls: @\n",
		"dotted, in part":   "servicecomb.bulkhead:\n  p: |\n    maxConcurrentCalls: @\n",
		"dotted, below":     "servicecomb:\n  bulkhead.p: |\n    maxConcurrentCalls: @\n",
		"dotted and nested": "servicecomb.bulkhead.p: {maxConcurrentCalls: @}\n",
		"letters":           "x: {ä: ü}\nservicecomb: {ö: ü, bulkhead: {p: \"order: 1 # ä\\nmaxConcurrentCalls: @\"}}\n",
		"document":          "spring: {}\n---\nservicecomb.bulkhead.p: |\n  maxConcurrentCalls: @\n",
	} {
		if !strings.Contains(file, "servicecomb:") {
			file += group
		} else {
			file = strings.Replace(file, "servicecomb:", group+"servicecomb:", 1)
		}
		for _, file := range []string{file, strings.ReplaceAll(file, "\n", "\r\n"), "\ufeff" + file} {
			before, after, _ := strings.Cut(file, "@")
			line := 1 + strings.Count(before, "\n")
			column := 1 + len([]rune(strings.TrimPrefix(before[strings.LastIndexByte(before, '\n')+1:], "\ufeff")))
			_, err := policy.Parse("f", []byte(before+"none"+after))
			require.Error(t, err, "%s\n%s", name, file)
			assert.Equal(t, fmt.Sprintf(`f:%d:%d: bulkhead "p": maxConcurrentCalls is none; it must be a whole number, 1 to 2147483647`, line, column), err.Error(), "%s\n%s", name, file)
		}
	}
}

// A text that is no YAML is refused where its fault is.
func TestServiceCombSyntaxOfTexts(t *testing.T) {
	_, err := policy.Parse("f", []byte("servicecomb:\n  matchGroup:\n    a: |\n      matches:\n      \t- apiPath: {}\n    b: |\n      matches:\n        - headers\n          x: y: z\n    c: \"matches: [\"\n"))
	require.Error(t, err)
	assert.Equal(t, []string{
		"f:5:7: matchGroup \"a\": the text is not valid YAML: found character that cannot start any token; text that starts with @, ` or % must be in quotes, and indentation is made of spaces, not tabs",
		`f:9:12: matchGroup "b": the text is not valid YAML: mapping values are not allowed in this context; check the indentation, and the colon of the key before it, and put text with a colon and a space in quotes`,
		`f:10:18: matchGroup "c": the text is not valid YAML: did not find expected node content`,
	}, strings.Split(err.Error(), "\n"))
}
