// Package docs_test holds the documentation to what it says: its programs
// compile, its policies load, its links lead somewhere.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

const root = "../../.."

// pages returns the Markdown files of the project by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	texts := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name, err := filepath.Rel(root, file)
		require.NoError(t, err)
		texts[filepath.ToSlash(name)] = string(text)
	}
	require.Contains(t, texts, "README.md")
	return texts
}

// blocks returns the fenced code blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func TestProgramsCompile(t *testing.T) {
	n := 0
	for name, text := range pages(t) {
		for _, program := range blocks(text, "go") {
			if !strings.HasPrefix(program, "package ") {
				continue // a fragment
			}
			n++
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(program), 0o644))
			out, err := exec.Command("go", "vet", file).CombinedOutput()
			assert.NoError(t, err, "a program in %s:\n%s\n%s", name, program, out)
			out, err = exec.Command("gofmt", "-l", file).CombinedOutput()
			assert.NoError(t, err)
			assert.Empty(t, string(out), "a program in %s is not formatted:\n%s", name, program)
		}
	}
	assert.GreaterOrEqual(t, n, 3, "README shows a server, a client and the hooks")
}

func TestEveryFragmentInREADMEIsAProgram(t *testing.T) {
	for _, program := range blocks(pages(t)["README.md"], "go") {
		assert.True(t, strings.HasPrefix(program, "package main\n"), "nothing compiles this:\n%s", program)
	}
}

func TestPoliciesLoad(t *testing.T) {
	n := 0
	for name, text := range pages(t) {
		for _, file := range blocks(text, "yaml") {
			if !strings.Contains(file, "version: 1") {
				continue // a fragment
			}
			n++
			set, err := policy.Parse(name, []byte(file))
			if assert.NoError(t, err, "a policy file in %s:\n%s", name, file) {
				assert.Empty(t, set.Warnings(), "a policy file in %s:\n%s", name, file)
			}
		}
	}
	assert.NotZero(t, n)
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	texts := pages(t)
	n := 0
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := name
			if m[1] != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(name), m[1]))
			}
			_, err := os.Stat(filepath.Join(root, to))
			assert.NoError(t, err, "a link in %s", name)
			if m[2] != "" {
				n++
				assert.Contains(t, anchors(texts[to]), m[2], "a link in %s to a heading of %s", name, to)
			}
		}
	}
	assert.NotZero(t, n)
}

// anchors returns what the headings of a page are linked by.
func anchors(text string) (all []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(words, " ", "-"))
	}
	return all
}

// The first screen is what a newcomer types.
func TestREADMEGivesTheTwoCommandsFirst(t *testing.T) {
	lines := strings.SplitN(pages(t)["README.md"], "\n", 25)
	first := strings.Join(lines[:min(24, len(lines))], "\n")
	assert.Contains(t, first, "go run ./examples/client")
	assert.Contains(t, first, "go test work")
}
