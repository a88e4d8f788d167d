package policy

import (
	"fmt"
	"strconv"
	"strings"
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

// quote quotes text from outside for a message, cut at a length that can be read.
func quote(s string) string {
	const limit = 80
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:limit], "") + "...")
}
