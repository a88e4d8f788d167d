package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// The reference names every key, and its file is one.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../docs/policies.md")
	require.NoError(t, err)
	_, file, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	file, reference, ok := strings.Cut(file, "```\n")
	require.True(t, ok)

	set, err := policy.Parse("docs/policies.md", []byte(file))
	require.NoError(t, err)
	assert.Empty(t, set.Warnings())
	for _, key := range policy.Keys() {
		// As in `side`, `window.calls` and `path: /reports/`.
		assert.Regexp(t, "`([a-zA-Z]+[.])?"+key+"[`:]", reference, "the reference does not describe %s", key)
	}
}

// The page on ServiceComb names every key of theirs, and its file is one.
func TestServiceCombPage(t *testing.T) {
	text, err := os.ReadFile("../docs/servicecomb.md")
	require.NoError(t, err)
	_, file, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	file, page, ok := strings.Cut(file, "```\n")
	require.True(t, ok)

	set, err := policy.Parse("docs/servicecomb.md", []byte(file))
	require.NoError(t, err)
	assert.Empty(t, set.Warnings())
	assert.Len(t, set.Rules(), 2)
	for _, key := range policy.ServiceCombKeys() {
		// As in `order` and `matches[].apiPath`.
		assert.Regexp(t, "`(matches\\[\\][.])?"+key+"`", page, "the page does not describe %s", key)
	}
}

// Every file that the documentation shows is one, and nothing about it is odd.
func TestFilesInTheDocumentation(t *testing.T) {
	for name, atLeast := range map[string]int{"../docs/policies.md": 3, "../docs/policy-recipes.md": 6} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		files := strings.Split(string(text), "```yaml\n")[1:]
		require.GreaterOrEqual(t, len(files), atLeast)
		for _, file := range files {
			file, _, ok := strings.Cut(file, "```\n")
			require.True(t, ok)
			set, err := policy.Parse(name, []byte(file))
			if assert.NoError(t, err) {
				assert.Empty(t, set.Warnings(), file)
			}
		}
	}
}

// The file in the package documentation is one too.
func TestPackageDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, file, ok := strings.Cut(string(text), "//\tversion: 1\n")
	require.True(t, ok)
	file, _, ok = strings.Cut(file, "//\n")
	require.True(t, ok)
	set, err := policy.Parse("doc.go", []byte("version: 1\n"+strings.ReplaceAll(file, "//\t", "")))
	require.NoError(t, err)
	assert.Len(t, set.Rules(), 3)
	assert.Empty(t, set.Warnings())
}
