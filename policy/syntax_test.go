package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

func TestSyntaxErrorsHaveAPlace(t *testing.T) {
	const notYAML = "the file is not valid YAML: "
	for _, tt := range []struct {
		name, file string
		place      string
		hint       string
	}{
		{"braces without quotes", "version: 1\npolicies:\n  - name: a\n    match: [{path: /a/{id}}]\n    breaker: {}\n", "4:14", `must be in quotes, as in {path: "/reports/{id}"}`},
		{"braces without quotes, second entry", "version: 1\npolicies:\n  - name: a\n    match: [{path: /a}, {path: /a/{id}}]\n", "4:14", "must be in quotes"},
		{"question mark without quotes", "version: 1\npolicies: [{name: a?b}]\n", "2:19", "must be in quotes"},
		{"star without quotes", "version: 1\npolicies: [{match: [{host: *.internal}]}]\n", "2:28", `must be in quotes, as in "*.internal"`},
		{"star without quotes, no dot", "version: 1\npolicies: [{match: [{host: *internal}]}]\n", "2:36", `must be in quotes, as in "*.internal"`},
		{"at sign without quotes", "version: 1\npolicies: [{name: @a}]\n", "2:19", "must be in quotes"},
		{"tab", "version: 1\npolicies:\n  - name: a\n\tside: server\n", "4:1", "indent with spaces"},
		{"no space after the colon", "version: 1\npolicies:[]\nx: 1\n", "2:1", "a space after each key"},
		{"two colons", "version: 1: 2\n", "1:11", "check the indentation"},
		{"too far left", "version: 1\npolicies:\n  - name: a\n   side: server\n    breaker: {}\n", "4:4", "check the indentation"},
		{"too far left, later", "version: 1\npolicies:\n  - name: a\n    side: server\n    breaker: {}\n   per: host\n", "6:4", "check the indentation"},
		{"too far right", "version: 1\n  policies: []\n", "2:11", "check the indentation"},
		{"bracket left open", "version: 1\npolicies: [{name: a}\nx: 1\ny: 1\n", "2:20", ""},
		{"brace left open", "version: 1\n\n\npolicies: {name: a\n\n\n", "4:12", ""},
		{"brace left open at the end", "version: 1\npolicies: {name: a,\n\n\n", "4:1", ""},
		{"quote left open", "version: 1\npolicies: \"\nx: 1\ny: 2\n", "2:11", "the quotes that begin here do not end"},
		{"colons of another alphabet", "version\uff1a 1\npolicies\uff1a\n  - name: a\n", "3:9", "if it is meant for a colon, write : and a space in the place of \uff1a"},
		{"another version of YAML", "%YAML 1.2\n---\nversion: 1\npolicies: []\n", "1:9", "leave the line with %YAML out"},
		{"one bracket too many", "version: 1\npolicies: []\n]\n", "3:1", ""},
		{"unknown escape", "version: 1\npolicies: \"\\q\"\n", "2:12", ""},
		{"control character", "version: 1\npolicies: \x01\n", "2:11", ""},
		{"not UTF-8", "version: 1\npolicies: \xff\n", "2:11", ""},
		{"after characters of several bytes", "version: 1\npolicies: [{name: äöü, x: @}]\n", "2:27", ""},
		{"too deep", strings.Repeat("[", 20_000), "1:10001", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := problemsOf(t, tt.file)
			require.Len(t, problems, 1)
			assert.True(t, strings.HasPrefix(problems[0], tt.place+": "+notYAML), problems[0])
			assert.Contains(t, problems[0], tt.hint)
		})
	}
}

// The second document is read far enough to know that it is one.
func TestSyntaxErrorAfterTheFirstDocument(t *testing.T) {
	assert.Equal(t, []string{
		"1:1: policies is missing; it lists what is limited, and may be []",
		"3:10: the file is not valid YAML: did not find expected node content",
	}, problemsOf(t, "version: 1\n---\nversion: [\n"))
}

func TestEmptyFiles(t *testing.T) {
	for _, file := range []string{"", "\n", "# nothing here\n", "---\n", "---\n...\n", "null\n", "~", "\ufeff"} {
		assert.Equal(t, []string{
			"1:1: the file is empty; a policy file starts with version: 1 and a list of policies",
		}, problemsOf(t, file), "%q", file)
	}
}

func TestFilesFromWindows(t *testing.T) {
	assert.Equal(t, []string{
		"1:10: version is 2; it must be 1, the only one that this version of watertight reads",
		`4:5: policy "a": unknown key "brake"; did you mean "breaker"?`,
	}, problemsOf(t, "\ufeffversion: 2\r\npolicies:\r\n  - name: a\r\n    brake: {}\r\n"))
}

// An alias costs what it stands for each time that it is used.
func TestAliasesAreBounded(t *testing.T) {
	var file strings.Builder
	file.WriteString("version: 1\npolicies:\n")
	const width = 100
	list := func(name, element string) {
		fmt.Fprintf(&file, "      - &%s [%s]\n", name, strings.Repeat(element+", ", width))
	}
	file.WriteString("  - name: a\n    match:\n")
	list("a", "{path: /a}")
	list("b", "*a")
	list("c", "*b")
	file.WriteString("  - name: b\n    match: *c\n    breaker: {}\n")
	problems := problemsOf(t, file.String())
	assert.Contains(t, problems, "9:12: with the alias *c the file expands to too much; write the value out")
	assert.Less(t, len(problems), 1000)

	for _, file := range []string{
		"&a [*a]", "&a {*a : *a}", "version: 1\npolicies: [&p {name: a, match: *p, bulkhead: *p, breaker: *p}]",
		"version: 1\npolicies: &p [{name: a, match: *p}, *p]", "version: &v [*v]\npolicies: *v",
	} {
		_, err := policy.Parse("f", []byte(file))
		assert.Error(t, err, file)
	}
}
