package policy

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// What the values may be. The upper ends are far beyond any use; they keep sums
// and products of what passes in range, and a window's memory bounded.
const (
	maxCount    = 1_000_000_000
	maxCalls    = 1_000_000
	maxDuration = 365 * 24 * time.Hour
	maxName     = 128
)

// Under these names calls are counted that no policy matches, and those that a
// program exempts by itself.
const (
	unmatchedName = "(unmatched)"
	exemptName    = "(exempt)"
)

// count returns the value of f, or def if it is left out or not lo to hi.
func (p *problems) count(f *field[int], lo, hi, def int) int {
	if !f.ok() {
		return def
	}
	if f.v < lo || f.v > hi {
		p.errorf(f.at, "%s is %s; it must be %d to %d", f.name, f.written(), lo, hi)
		return def
	}
	return f.v
}

// moreThanZero is the least that a duration can be if it must not be 0.
const moreThanZero = time.Duration(1)

// duration returns the value of f, or def if it is left out or not lo to a year.
func (p *problems) duration(f *field[time.Duration], lo, def time.Duration) time.Duration {
	if !f.ok() {
		return def
	}
	if f.v >= lo && f.v <= maxDuration {
		return f.v
	}
	least := lo.String() + " to"
	switch lo {
	case 0:
		least = "0 to"
	case moreThanZero:
		least = "more than 0, at most"
	}
	p.errorf(f.at, "%s is %s; it must be %s 8760h", f.name, f.written(), least)
	return def
}

// rate returns the value of f, a percentage, or def if it is left out or wrong.
func (p *problems) rate(f *field[float64], def float64) float64 {
	if !f.ok() {
		return def
	}
	// Written so that NaN, which no comparison holds for, is refused.
	if !(f.v > 0 && f.v <= 100) || math.IsInf(f.v, 0) {
		p.errorf(f.at, "%s is %s; it must be %s", f.name, f.written(), wantRate)
		return def
	}
	if f.v < 1 {
		p.warnf(f.at, "%s is %v, which is less than one percent; for a share of %v write %.4g", f.name, f.v, f.v, 100*f.v)
	}
	return f.v
}

// number returns the value of f, or def if it is left out or not in the range that
// want says in words.
func (p *problems) number(f *field[float64], inRange func(float64) bool, want string, def float64) float64 {
	switch {
	case !f.ok():
		return def
	case !inRange(f.v):
		p.errorf(f.at, "%s is %s; it must be %s", f.name, f.written(), want)
		return def
	}
	return f.v
}

// policyName checks a name by itself.
func (p *problems) policyName(d *policyDraft) {
	f := &d.name
	switch {
	case f.bad:
	case !f.set || f.v == "":
		place := d.place
		if f.set {
			place = f.at
		}
		p.errorf(place, "%sthe name is missing; every policy needs a name of its own", d.label)
	case f.v == exemptName:
		p.errorf(f.at, "policy name %s is taken: requests that the program exempts by itself are counted under it; choose another", quote(f.v))
	case f.v == unmatchedName:
		p.errorf(f.at, "policy name %s is taken: requests that no policy matches are counted under it; choose another", quote(f.v))
	case len(f.v) > maxName:
		p.errorf(f.at, "policy name %s has %d bytes; it must have at most %d", quote(f.v), len(f.v), maxName)
	case !utf8.ValidString(f.v) || strings.ContainsFunc(f.v, func(c rune) bool { return !unicode.IsPrint(c) }):
		p.errorf(f.at, "policy name %s is not printable; use letters, digits, spaces and punctuation", quote(f.v))
	case strings.TrimSpace(f.v) != f.v:
		p.errorf(f.at, "policy name %s has spaces at its ends; write %s", quote(f.v), quote(strings.TrimSpace(f.v)))
	}
}
