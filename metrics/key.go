package metrics

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxKeyText is how many bytes of a key spans and logs show.
const maxKeyText = 64

// unprintable stands for each rune of a key that is not printable, and for each
// byte that is part of none.
const unprintable = '?'

// keyText returns the key as spans and logs show it. Hosts may come from the
// network, and one attribute that is not UTF-8 makes some exporters lose the
// batch that it is in.
func keyText(key string) string {
	if plain(key) {
		return key
	}
	var b strings.Builder
	b.Grow(maxKeyText)
	for _, r := range key {
		// RuneError stands for a bad byte, or for itself; neither says anything.
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = unprintable
		}
		if b.Len()+utf8.RuneLen(r) > maxKeyText {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plain reports whether the key can be shown as it is, which is the rule: short
// and printable ASCII.
func plain(key string) bool {
	if len(key) > maxKeyText {
		return false
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}
