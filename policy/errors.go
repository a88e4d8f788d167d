package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// An Error is one problem with one place in a policy file or in a [Config].
type Error struct {
	// File is the name that was given to [Load] or [Parse]; empty for a
	// Config.
	File string
	// Line and Column count from 1, the column in characters. They point at
	// the value if the value is wrong, at the key if the key is wrong or
	// repeated, at the mapping that lacks a key. Both are 0 for a Config.
	Line, Column int
	// Msg says what is wrong and what would be right.
	Msg string
}

// Error returns "FILE:LINE:COLUMN: MESSAGE"; for a Config, the message alone.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return e.File + ":" + strconv.Itoa(e.Line) + ":" + strconv.Itoa(e.Column) + ": " + e.Msg
}

// Errors are all problems of a policy file, in order of position, or of a
// [Config]. As an error it is never empty, and [errors.As] finds it.
type Errors []*Error

// Error returns the problems, one per line.
func (e Errors) Error() string {
	var b strings.Builder
	for i, err := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap returns the single problems.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// sortByPosition keeps the order of problems at the same place.
func sortByPosition(errs []*Error) {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
