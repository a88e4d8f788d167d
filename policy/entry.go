package policy

import (
	"net/http"
	"strings"
)

// entry compiles one entry of a matcher.
func (p *problems) entry(d *matchDraft) entry {
	if !d.broken && len(d.methods) == 0 && !d.path.set && !d.route.set && !d.host.set && len(d.headers) == 0 {
		p.errorf(d.place, "%s is empty and would match everything; give it a field, or leave match out", d.label)
	}
	p.warnPath(&d.path)
	return entry{
		methods: p.methods(d.methods),
		pattern: d.path.v,
		path:    pattern(p, &d.path, parsePath),
		route:   pattern(p, &d.route, parseRoute),
		host:    pattern(p, &d.host, parseHost),
		headers: p.headers(d.headers),
	}
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

func (p *problems) headers(drafts []headerDraft) (headers []headerValue) {
	seen := map[string]bool{}
	for i := range drafts {
		f, exact := &drafts[i].name, &drafts[i].exact
		name := http.CanonicalHeaderKey(f.v)
		switch {
		case !isToken(f.v):
			p.errorf(f.at, "%s has %s, which is not the name of a header", f.name, quote(f.v))
		case name == "Host":
			p.errorf(f.at, "%s has Host, which net/http keeps apart from the headers; use host", f.name)
		case seen[name]:
			p.errorf(f.at, "%s has %s twice; a name is the same in upper and lower case", f.name, bare(name))
		case !exact.ok():
		case strings.Trim(exact.v, " \t") != exact.v:
			// Both ends of a connection trim values, so this would match nothing.
			p.errorf(exact.at, "%s is %s; no header has spaces at its ends: write %s", exact.name, quote(exact.v), quote(strings.Trim(exact.v, " \t")))
		case strings.ContainsFunc(exact.v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			p.errorf(exact.at, "%s is %s; no header has control characters: leave them out", exact.name, quote(exact.v))
		default:
			headers = append(headers, headerValue{name, exact.v})
		}
		seen[name] = true
	}
	return headers
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
