package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOperator(t *testing.T) {
	for _, tt := range []struct {
		kind operatorKind
		text string
		s    string
		want bool
	}{
		{operatorExact, "a", "a", true},
		{operatorExact, "a", "A", false},
		{operatorExact, "", "", true},
		{operatorExact, "", "a", false},
		{operatorPrefix, "/v1/", "/v1/a", true},
		{operatorPrefix, "/v1/", "/v1", false},
		{operatorPrefix, "/v1", "/v10", true},
		{operatorSuffix, ".json", "a.json", true},
		{operatorSuffix, ".json", "a.json/", false},
		{operatorContains, "b", "abc", true},
		{operatorContains, "B", "abc", false},
		{operatorContains, "", "", true},
		{operatorRegexp, "b", "abc", true},
		{operatorRegexp, "^b", "abc", false},
		{operatorRegexp, "^[a-c]+$", "abc", true},
		{operatorRegexp, "^[a-c]+$", "abcd", false},
		{operatorRegexp, "(?i)^ABC$", "abc", true},
	} {
		o, err := newOperator(tt.kind, tt.text)
		require.NoError(t, err)
		assert.Equal(t, tt.want, o.match(tt.s), "%s %q of %q", operatorNames[tt.kind], tt.text, tt.s)
	}
}

func TestConditionNeedsAllOperators(t *testing.T) {
	c := condition{{kind: operatorPrefix, text: "/v1"}, {kind: operatorSuffix, text: "/items"}}
	assert.True(t, c.match("/v1/cart/items"))
	assert.False(t, c.match("/v1/cart/total"))
	assert.False(t, c.match("/v2/cart/items"))
	assert.False(t, c.matchAny([]string{"/v1/a", "/b/items"}), "one text must fulfil both")
	assert.True(t, c.matchAny([]string{"x", "/v1/items"}))
	assert.False(t, c.matchAny(nil))
}

func TestExpressionsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"(":       `it is not a regular expression: missing closing ): "("`,
		"a**":     `it is not a regular expression: invalid nested repetition operator: "**"`,
		"(?=a)":   `"(?=" is not part of RE2, whose syntax this is: there is no look-around and no back-reference`,
		`(a)\1`:   `it is not a regular expression: invalid escape sequence: "\\1"`,
		"[b-\na]": `it is not a regular expression: invalid character class range: "b-\n"`,
		"\xff":    `it is not a regular expression: invalid UTF-8: "\xff"`,
	} {
		_, err := newOperator(operatorRegexp, text)
		assert.EqualError(t, err, want)
	}
}
