package policy

import (
	"net/http"
	"net/url"
	"strings"
)

// entry compiles one entry of a list.
func (p *problems) entry(d *matchDraft, list string) entry {
	if !d.broken && d.isEmpty() {
		p.errorf(d.place, "%s is empty and would match everything; give it a field, or leave %s out", d.label, list)
	}
	p.warnPath(&d.path)
	for i := range d.pathText {
		p.warnPathOperator(&d.pathText[i])
	}
	e := entry{
		methods: p.methods(d.methods),
		pattern: d.path.v,
		path:    pattern(p, &d.path, parsePath),
		route:   pattern(p, &d.route, parseRoute),
		host:    pattern(p, &d.host, parseHost),
		text:    p.text(d.pathText, checkPathOperator),
		headers: p.headers(d.headers),
		query:   p.query(d.query),
	}
	for i := range d.not {
		e.not = append(e.not, p.entry(&d.not[i], "not"))
	}
	return e
}

// pattern compiles a pattern that is written down. The error of parse says what
// is wrong with it and what would be right.
func pattern[T any](p *problems, f *field[string], parse func(string) (T, error)) (v T) {
	if !f.ok() {
		return v
	}
	v, err := parse(f.v)
	if err != nil {
		p.errorf(f.at, "%s is %s: %v", f.name, quote(f.v), err)
	}
	return v
}

func (p *problems) methods(fields []field[string]) (methods []string) {
	for i := range fields {
		switch f := &fields[i]; {
		case f.bad:
		case !isToken(f.v):
			p.errorf(f.at, "%s is %s, which is not a method; write one such as GET", f.name, quote(f.v))
		case strings.ToUpper(f.v) != f.v:
			// Methods have case, so this one would match nothing.
			p.errorf(f.at, "%s is %s; methods are upper-case: write %s", f.name, quote(f.v), bare(strings.ToUpper(f.v)))
		default:
			methods = append(methods, f.v)
		}
	}
	return methods
}

func (p *problems) headers(drafts []valueDraft) (headers []valueCondition) {
	seen := map[string]bool{}
	for i := range drafts {
		f := &drafts[i].name
		name := http.CanonicalHeaderKey(f.v)
		switch {
		case !isToken(f.v):
			p.errorf(f.at, "%s has %s, which is not the name of a header", f.name, quote(f.v))
		case name == "Host":
			p.errorf(f.at, "%s has Host, which net/http keeps apart from the headers; use host", f.name)
		case seen[name]:
			p.errorf(f.at, "%s has %s twice; a name is the same in upper and lower case", f.name, bare(name))
		default:
			headers = append(headers, valueCondition{name, p.text(drafts[i].text, checkHeaderOperator)})
		}
		seen[name] = true
	}
	return headers
}

func (p *problems) query(drafts []valueDraft) (query []valueCondition) {
	for i := range drafts {
		f := &drafts[i].name
		switch plain, err := url.QueryUnescape(f.v); {
		case f.v == "":
			p.errorf(f.at, "%s has a parameter without a name; write one, as in {watch: {exact: \"true\"}}", f.name)
			continue
		case err == nil && plain != f.v:
			p.warnf(f.at, "%s has %s, but names are compared with their escapes decoded; write %s", f.name, quote(f.v), quote(plain))
		}
		query = append(query, valueCondition{f.v, p.text(drafts[i].text, nil)})
	}
	return query
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2: what a method
// or the name of a header is.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
