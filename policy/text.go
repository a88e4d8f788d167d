package policy

import (
	"errors"
	"fmt"
	"strings"
)

// text compiles a condition on a text. check, which may be nil, returns what is
// wrong with an operator's text and what would be right.
func (p *problems) text(d textDraft, check func(*operatorDraft) error) (c condition) {
	exact := -1
	for i := range d {
		f := &d[i]
		if !f.ok() {
			continue
		}
		o, err := newOperator(f.kind, f.v)
		if err == nil && check != nil {
			err = check(f)
		}
		if err != nil {
			p.errorf(f.at, "%s is %s; %v", f.name, quote(f.v), err)
			continue
		}
		if f.v == "" && f.kind != operatorExact {
			continue // it holds for every text
		}
		if f.kind == operatorExact {
			exact = i
		} else if exact >= 0 && !o.match(d[exact].v) {
			p.errorf(f.at, "%s is %s, which never holds beside exact: %s; keep one of them", f.name, quote(f.v), quote(d[exact].v))
		}
		c = append(c, o)
	}
	return c
}

// checkPathOperator refuses what holds for no path, or for every one.
func checkPathOperator(f *operatorDraft) error {
	switch fromStart := f.kind == operatorExact || f.kind == operatorPrefix; {
	case fromStart && f.v == "*", fromStart && strings.HasPrefix(f.v, "/"): // "*" is the path of OPTIONS *
		return nil
	case fromStart:
		return fmt.Errorf("a path starts with /: write %s", bare("/"+f.v))
	case f.v == "":
		return errors.New("it is empty and would match every path: leave it out")
	}
	return nil
}

// warnPathOperator warns of what the text of an operator on the path does not mean.
func (p *problems) warnPathOperator(f *operatorDraft) {
	if !f.ok() || f.kind == operatorRegexp {
		return
	}
	switch plain := unescape(f.v); {
	case plain != f.v:
		p.warnf(f.at, "%s is %s, but %s sees the path with its escapes decoded; write %s", f.name, quote(f.v), operatorNames[f.kind], quote(plain))
	case strings.Contains(f.v, "?"):
		p.warnf(f.at, "%s has a question mark, but the path does not include the query; give the query's parameters under query", f.name)
	case strings.Contains(f.v, "{"):
		p.warnf(f.at, "%s has braces, which are plain text for %s; a pattern is written as path: /reports/{id}", f.name, operatorNames[f.kind])
	case strings.HasSuffix(f.v, "*") && f.v != "*":
		p.warnf(f.at, "%s ends with *, which is plain text for %s; leave it out", f.name, operatorNames[f.kind])
	}
}

// checkHeaderOperator refuses what holds for no value of a header.
func checkHeaderOperator(f *operatorDraft) error {
	trimmed := f.v
	// Both ends of a connection trim values, so spaces at an end match nothing.
	if f.kind == operatorExact || f.kind == operatorPrefix {
		trimmed = strings.TrimLeft(trimmed, " \t")
	}
	if f.kind == operatorExact || f.kind == operatorSuffix {
		trimmed = strings.TrimRight(trimmed, " \t")
	}
	switch {
	case f.kind == operatorRegexp:
		return nil
	case trimmed != f.v:
		return fmt.Errorf("no header has spaces at its ends: write %s", quote(trimmed))
	case strings.ContainsFunc(f.v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return errors.New("no header has control characters: leave them out")
	}
	return nil
}
