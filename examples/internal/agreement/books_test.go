package agreement_test

import (
	"maps"
	"strings"
	"sync"
)

// Books count. A line is what happened where, such as "storm server rejected full".
type books struct {
	mu    sync.Mutex
	lines map[string]int
}

func newBooks() *books { return &books{lines: map[string]int{}} }

// add counts n times what the words say; 0 leaves no line.
func (b *books) add(n int, words ...string) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[strings.Join(words, " ")] += n
}

// of returns the lines that have one of the words in the third place, where the first
// two say the policy and the side.
func (b *books) of(words ...string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := maps.Clone(b.lines)
	maps.DeleteFunc(lines, func(line string, _ int) bool {
		for _, w := range words {
			if strings.Fields(line)[2] == w {
				return false
			}
		}
		return true
	})
	return lines
}

// merged returns the lines as if what stands behind the third word were not known.
func merged(lines map[string]int) map[string]int {
	less := map[string]int{}
	for line, n := range lines {
		less[strings.Join(strings.Fields(line)[:3], " ")] += n
	}
	return less
}
