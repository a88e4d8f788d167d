package policy

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// covers reports whether every request that other matches is matched by e as well. It
// does not see all such cases, but what it reports is one.
func (e *entry) covers(other *entry) bool {
	switch {
	case len(e.methods) > 0 && (len(other.methods) == 0 || slices.ContainsFunc(other.methods, func(m string) bool { return !slices.Contains(e.methods, m) })):
	case e.pattern != "" && !e.coversPath(other):
	case e.host.name != "" && !e.host.covers(&other.host):
	case e.route.path != "" && !e.route.covers(&other.route):
	case !other.pathText().implies(e.text):
	case !valuesCover(e.headers, other.headers), !valuesCover(e.query, other.query):
	case e.caller != "" && e.caller != other.caller:
	case slices.ContainsFunc(e.not, func(n entry) bool {
		return !slices.ContainsFunc(other.not, func(m entry) bool { return reflect.DeepEqual(n, m) })
	}):
	default:
		return true
	}
	return false
}

// coversPath reports whether the pattern of e matches the paths that other matches.
func (e *entry) coversPath(other *entry) bool {
	switch {
	case e.pattern == other.pattern, e.pattern == "/" && other.pattern != "":
		return true
	case e.pattern == "/":
		// Of other patterns that would not follow: in /a/ an escaped slash is none.
		return other.text.implies(condition{{kind: operatorPrefix, text: "/"}})
	}
	a, b := &e.path, &other.path
	if other.pattern == "" || len(a.segments) > len(b.segments) || !a.subtree && (b.subtree || len(a.segments) < len(b.segments)) {
		return false
	}
	for i, s := range a.segments {
		if t := b.segments[i]; s != t && (!s.wild || t.literal == "/") {
			return false
		}
	}
	// A subtree needs a slash after its segments, and something else than the slash
	// that ends a path may be it.
	return len(a.segments) == len(b.segments) && a.subtree == b.subtree || len(a.segments) < len(b.segments)
}

// pathText returns a condition on the decoded path that holds for every request that
// the entry matches.
func (e *entry) pathText() condition {
	if e.pattern == "" {
		return e.text
	}
	text := ""
	for _, s := range e.path.segments {
		if s.wild || s.literal == "/" { // which may also be %2F, and then is one slash more
			return append(slices.Clone(e.text), operator{kind: operatorPrefix, text: text + "/"})
		}
		text += "/" + s.literal
	}
	if e.path.subtree {
		return append(slices.Clone(e.text), operator{kind: operatorPrefix, text: text + "/"})
	}
	return append(slices.Clone(e.text), operator{kind: operatorExact, text: text})
}

// implies reports whether what fulfils c fulfils other, as far as is seen.
func (c condition) implies(other condition) bool {
	for i := range other {
		if !slices.ContainsFunc(c, func(o operator) bool { return o.implies(&other[i]) }) {
			return false
		}
	}
	return true
}

func (o *operator) implies(other *operator) bool {
	if o.kind == other.kind && o.text == other.text {
		return true
	}
	switch other.kind {
	case operatorPrefix:
		if o.kind == operatorPrefix {
			return strings.HasPrefix(o.text, other.text)
		}
	case operatorSuffix:
		if o.kind == operatorSuffix {
			return strings.HasSuffix(o.text, other.text)
		}
	case operatorContains:
		if o.kind == operatorPrefix || o.kind == operatorSuffix || o.kind == operatorContains {
			return strings.Contains(o.text, other.text)
		}
	}
	return o.kind == operatorExact && other.match(o.text)
}

// valuesCover reports whether each of the conditions on values follows from another
// one on a value of that name.
func valuesCover(all, others []valueCondition) bool {
	for i := range all {
		if !slices.ContainsFunc(others, func(v valueCondition) bool {
			return v.name == all[i].name && v.condition.implies(all[i].condition)
		}) {
			return false
		}
	}
	return true
}

// covers reports whether p matches the hosts that other matches.
func (p *hostPattern) covers(other *hostPattern) bool {
	if other.name == "" || p.port != "" && p.port != other.port {
		return false
	}
	if p.below {
		return strings.HasSuffix(other.name, "."+p.name) || other.below && other.name == p.name
	}
	return !other.below && other.name == p.name
}

// covers reports whether p matches the routes that other matches.
func (p *routePattern) covers(other *routePattern) bool {
	return p.path == other.path && (p.method == "" || p.method == other.method) && (p.host == "" || p.host == other.host)
}

// example returns a request that the entry most likely matches.
func (e *entry) example(side Side) *Request {
	r := &Request{Side: side, Method: http.MethodGet, Host: "host.example", Path: "/", Header: http.Header{}}
	if len(e.methods) > 0 {
		r.Method = e.methods[0]
	}
	if e.host.name != "" {
		h := e.host
		r.Host = strings.Replace(h.String(), "*", "any", 1)
	}
	if e.route.path != "" {
		r.RouteKnown, r.Route = true, e.route.path
		if e.route.method != "" {
			r.Method = e.route.method
		}
		if e.route.host != "" {
			r.Host = e.route.host
		}
	}
	r.Path = e.examplePath()
	r.EscapedPath = (&url.URL{Path: r.Path}).EscapedPath()
	query := url.Values{}
	for i := range e.headers {
		r.Header.Set(e.headers[i].name, e.headers[i].example())
	}
	for i := range e.query {
		query.Set(e.query[i].name, e.query[i].example())
	}
	r.RawQuery = query.Encode()
	if e.caller != "" {
		r.Header.Set(callerHeaders[0].name, e.caller)
	}
	return r
}

func (e *entry) examplePath() string {
	if e.pattern == "" {
		if text := e.text.example(); text != "" {
			return text
		}
		return "/"
	}
	path := ""
	for _, s := range e.path.segments {
		switch {
		case s.wild:
			path += "/any"
		case s.literal == "/":
			path += "/"
		default:
			path += "/" + s.literal
		}
	}
	if e.path.subtree {
		path += "/any"
	}
	return path
}

// example returns a text that fulfils the condition, if one operator of each kind and
// no expression is all that it has.
func (c condition) example() string {
	var parts [operatorCompare + 1]string
	for i := range c {
		parts[c[i].kind] = c[i].text
	}
	if parts[operatorExact] != "" {
		return parts[operatorExact]
	}
	return parts[operatorPrefix] + parts[operatorContains] + parts[operatorSuffix]
}

// A part is what a policy decides about a request.
type part int

const (
	partBulkhead part = iota
	partBreaker
)

var partNames = [...]string{partBulkhead: "bulkhead", partBreaker: "breaker"}

// has reports whether r decides the part of a request that it matches.
func (r *Rule) has(p part) bool {
	return r.Exempt || p == partBulkhead && r.Bulkhead != nil || p == partBreaker && r.Breaker != nil
}

// decider returns the rule that decides a part of a request.
func (d *Decision) decider(p part) *Rule {
	switch {
	case d.Exempt != nil:
		return d.Exempt
	case p == partBulkhead:
		return d.Bulkhead
	default:
		return d.Breaker
	}
}

// coverOf returns by part the last of the rules that take it from r, on every side and
// of all requests that the entries of r match; nil if some are left, or r does not have
// the part. The rules before r are those of s.
func (s *Set) coverOf(r *Rule) (by [len(partNames)]*Rule) {
	var left [len(partNames)]bool
	for part := range part(len(partNames)) {
		left[part] = !r.has(part)
	}
	for _, side := range [...]Side{Server, Client} {
		if !r.Side.covers(side) {
			continue
		}
		for i := range r.entries {
			e := &r.entries[i]
			request := e.example(side)
			var p parts
			p.take(request)
			if !e.match(&p) {
				return [len(partNames)]*Rule{} // it is too hard to say what does
			}
			d := s.Match(request)
			for part := range part(len(partNames)) {
				first := d.decider(part)
				left[part] = left[part] || first == nil || first == r || !first.coversEntry(e)
				by[part] = later(by[part], first)
			}
			if !slices.Contains(left[:], false) {
				return [len(partNames)]*Rule{}
			}
		}
	}
	for part, left := range left {
		if left {
			by[part] = nil
		}
	}
	return by
}

func (r *Rule) coversEntry(e *entry) bool {
	return len(r.entries) == 0 || slices.ContainsFunc(r.entries, func(mine entry) bool { return mine.covers(e) })
}
