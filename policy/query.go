package policy

import (
	"strings"
	"sync"
)

// maxParameters is how many parameters a query may have. Of one that has more,
// [net/url.ParseQuery] finds none either.
const maxParameters = 10_000

// matchQuery reports whether a raw query has the parameter with a value that
// fulfils the condition. What its parameters are is what [net/url.ParseQuery] says,
// and so what a handler sees: pairs with a semicolon or a broken escape are none.
//
// It takes time in proportion to the query's length, and allocates nothing: what
// has to be decoded goes into a buffer from a pool.
func matchQuery(raw string, want *valueCondition) bool {
	if raw == "" || strings.Count(raw, "&") >= maxParameters {
		return false
	}
	var pair string
	for more := true; more; {
		pair, raw, more = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		// A name is never shorter when it is written with escapes, and at most three
		// times as long.
		if len(name) < len(want.name) || len(name) > 3*len(want.name) || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		if !isEscapedQuery(name) && name != want.name {
			continue
		}
		if isEscapedQuery(pair) {
			if matchEscapedPair(name, value, want) {
				return true
			}
		} else if want.match(value) {
			return true
		}
	}
	return false
}

func isEscapedQuery(s string) bool { return strings.ContainsAny(s, "%+") }

// A buffer holds what is decoded for the time of one comparison.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is how large a buffer may be to be kept.
const maxBuffer = 64 << 10

func matchEscapedPair(name, value string, want *valueCondition) bool {
	buf := buffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxBuffer {
			buffers.Put(buf)
		}
	}()
	b, ok := appendUnescaped((*buf)[:0], name, true)
	*buf = b
	if !ok || string(b) != want.name {
		return false
	}
	b, ok = appendUnescaped(b[:0], value, true)
	*buf = b
	return ok && want.matchBytes(b)
}

// appendUnescaped appends what s decodes to, with plus signs as spaces if plus is
// set. It returns false if an escape is broken.
func appendUnescaped(dst []byte, s string, plus bool) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+' && plus:
			c = ' '
		case c == '%':
			if i+2 >= len(s) || unhex(s[i+1]) > 15 || unhex(s[i+2]) > 15 {
				return dst, false
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		dst = append(dst, c)
	}
	return dst, true
}
