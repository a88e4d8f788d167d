package policy

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// An operator is one way to test a text. The zero operator holds for the empty text
// alone.
type operator struct {
	kind operatorKind
	text string         // what the text is held against
	part []byte         // text again; only of operatorContains
	expr *regexp.Regexp // text as an expression; only of operatorRegexp
	than comparison     // text as a comparison; only of operatorCompare
}

type operatorKind uint8

const (
	operatorExact operatorKind = iota
	operatorPrefix
	operatorSuffix
	operatorContains
	operatorRegexp
	operatorCompare
)

var operatorNames = [...]string{
	operatorExact:    "exact",
	operatorPrefix:   "prefix",
	operatorSuffix:   "suffix",
	operatorContains: "contains",
	operatorRegexp:   "regexp",
	operatorCompare:  "compare",
}

// newOperator compiles an operator, or says in the error what is wrong with the text.
func newOperator(kind operatorKind, text string) (operator, error) {
	o := operator{kind: kind, text: text}
	switch kind {
	case operatorContains:
		o.part = []byte(text)
	case operatorRegexp:
		var err error
		if o.expr, err = regexp.Compile(text); err != nil {
			return o, expressionError(err)
		}
	}
	return o, nil
}

// expressionError says in one line what is wrong with an expression.
func expressionError(err error) error {
	bad, ok := errors.AsType[*syntax.Error](err)
	switch {
	case !ok:
		return errors.New("it is not a regular expression")
	case bad.Code == syntax.ErrInvalidPerlOp:
		return fmt.Errorf("%s is not part of RE2, whose syntax this is: there is no look-around and no back-reference", quote(bad.Expr))
	}
	return fmt.Errorf("it is not a regular expression: %s: %s", bad.Code, quote(bad.Expr))
}

// match reports whether the operator holds for s. It takes time in proportion to the
// length of s, whatever the expression is.
func (o *operator) match(s string) bool {
	switch o.kind {
	case operatorPrefix:
		return strings.HasPrefix(s, o.text)
	case operatorSuffix:
		return strings.HasSuffix(s, o.text)
	case operatorContains:
		return strings.Contains(s, o.text)
	case operatorRegexp:
		return o.expr.MatchString(s)
	case operatorCompare:
		return o.than.match(s)
	}
	return s == o.text
}

// matchBytes is match for a text that was decoded into a buffer.
func (o *operator) matchBytes(b []byte) bool {
	switch o.kind {
	case operatorPrefix:
		return len(b) >= len(o.text) && string(b[:len(o.text)]) == o.text
	case operatorSuffix:
		return len(b) >= len(o.text) && string(b[len(b)-len(o.text):]) == o.text
	case operatorContains:
		return bytes.Contains(b, o.part)
	case operatorRegexp:
		return o.expr.Match(b)
	case operatorCompare:
		return o.than.match(string(b))
	}
	return string(b) == o.text
}

// A condition is what one text must fulfil: all of its operators must hold. Without
// any it holds for every text.
type condition []operator

func (c condition) match(s string) bool {
	for i := range c {
		if !c[i].match(s) {
			return false
		}
	}
	return true
}

func (c condition) matchBytes(b []byte) bool {
	for i := range c {
		if !c[i].matchBytes(b) {
			return false
		}
	}
	return true
}

// matchAny reports whether one of several texts fulfils the condition, alone.
func (c condition) matchAny(texts []string) bool {
	for _, s := range texts {
		if c.match(s) {
			return true
		}
	}
	return false
}
