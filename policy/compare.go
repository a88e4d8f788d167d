package policy

import (
	"errors"
	"math"
	"strings"
)

// A comparison is what operatorCompare holds a number against. Only ServiceComb files
// have that operator.
type comparison struct {
	sign   string
	number float64
}

// Two numbers are the same for ServiceComb if they differ by less than that.
const sameNumber = 1e-6

var errNoComparison = errors.New(`it must be >, <, >=, <=, = or != and a number, as in ">=18"`)

// newComparison compiles text such as ">=18".
func newComparison(text string) (operator, error) {
	sign := text[:len(text)-len(strings.TrimLeft(text, "<>=!"))]
	number, ok := parseNumber(text[len(sign):])
	if !ok {
		return operator{}, errNoComparison
	}
	switch sign {
	case ">", "<", ">=", "<=", "=", "!=":
	case "!":
		sign = "!="
	default:
		return operator{}, errNoComparison
	}
	return operator{kind: operatorCompare, text: text, than: comparison{sign, number}}, nil
}

// match reports whether s is a number for which the comparison holds.
func (c *comparison) match(s string) bool {
	n, ok := parseNumber(s)
	if !ok {
		return false
	}
	same := math.Abs(n-c.number) < sameNumber
	switch c.sign {
	case ">":
		return n > c.number
	case "<":
		return n < c.number
	case ">=":
		return n >= c.number
	case "<=":
		return n <= c.number
	case "=":
		return same
	}
	return !same
}
