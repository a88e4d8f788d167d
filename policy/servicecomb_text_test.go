package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// Whatever the style of a scalar, a place in its text is found in the file.
func TestPlacesInScalars(t *testing.T) {
	words := rapid.SampledFrom([]string{"a", "bc", "d:", "- e", "ü", "'", `"`, `\`, "# x", " ", "  ", "\t", "\n", "\n\n", "{", "é", "\x01", "long enough to be folded at the end of a line, if it is twice"})
	styles := rapid.SampledFrom([]yaml.Style{0, yaml.LiteralStyle, yaml.FoldedStyle, yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 1, 12).Draw(t, "words"), "")
		file, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: "ä"},
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: styles.Draw(t, "style")},
		}})
		require.NoError(t, err)
		if rapid.Bool().Draw(t, "windows") {
			file = []byte(strings.ReplaceAll(string(file), "\n", "\r\n"))
		}
		docs, err := documents(file, 1)
		if err != nil || docs[0].Content[0].Content[1].Value != text || strings.TrimSpace(text) == "" {
			t.Skip("the encoder does not keep it, or there is nothing to find")
		}
		n := docs[0].Content[0].Content[1]
		lines := sourceLines(file)
		m := mapText(lines, n)
		if n.Style&yaml.FoldedStyle == 0 {
			require.NotEmpty(t, m.segments, "%s", file)
		} else if len(m.segments) == 0 {
			return // lines of nothing but spaces are beyond it; then the scalar is the place
		}
		p := at{1, 1}
		for i, c := range []rune(text) {
			if c == '\n' {
				p = at{p.line + 1, 1}
				continue
			}
			inFile := m.place(p)
			p.column++
			require.LessOrEqual(t, inFile.line, len(lines), "%q in\n%s", c, file)
			line := []rune(lines[inFile.line-1])
			if c == ' ' && inFile.column > len(line) {
				continue // a line break
			}
			require.LessOrEqual(t, inFile.column, len(line), "%d, %q at %v in\n%s", i, c, inFile, file)
			if got := line[inFile.column-1]; got != '\\' {
				require.Equal(t, string(c), string(got), "%d, at %v in\n%s", i, inFile, file)
			}
		}
	})
}
