package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// problems gathers what is wrong, so that everything can be reported at once.
type problems struct {
	file   string // empty: policies written in code
	errors Errors
	warns  []*Error
}

func (p *problems) errorf(at at, format string, args ...any) {
	p.errors = append(p.errors, p.problem(at, format, args))
}

func (p *problems) warnf(at at, format string, args ...any) {
	p.warns = append(p.warns, p.problem(at, format, args))
}

func (p *problems) problem(at at, format string, args []any) *Error {
	return &Error{File: p.file, Line: at.line, Column: at.column, Msg: fmt.Sprintf(format, args...)}
}

// maxShown is how much of a text from outside a message shows.
const maxShown = 80

// quote quotes text from outside for a message.
func quote(s string) string {
	if len(s) <= maxShown {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxShown], "") + "...")
}

// quoteLetters is quote for a key that looks like another one: of letters that look the
// same, such as those of other alphabets, it shows that they are not.
func quoteLetters(s string) string {
	if len(s) > maxShown {
		return quote(s)
	}
	return strconv.QuoteToASCII(s)
}

// bare is quote without the quotes where they are not needed.
func bare(s string) string {
	if s == "" || len(s) > maxShown || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return quote(s)
	}
	return s
}
