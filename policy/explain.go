package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An Explanation says how [Set.Match] comes to a decision.
type Explanation struct {
	Decision
	// Asked are the policies of the request's side in order, as far as the decision
	// depends on them.
	Asked []Asked
}

// Asked is what a policy says to a request.
type Asked struct {
	Rule *Rule
	// Matched says by which entry of its match the policy matches, and what that
	// asks for; "everything" if it has none. Empty: it does not match.
	Matched string
	// Missed says of each entry of its match what does not hold, up to the one
	// that matches.
	Missed []string
}

// Explain decides as [Set.Match] does, and says why. It is slow: it asks one policy
// after the other.
func (s *Set) Explain(r *Request) Explanation {
	e := Explanation{Decision: s.Match(r)}
	if r.Side == Client && s.hosted && r.Host == "" {
		return e
	}
	var p parts
	p.take(r)
	bulkhead, breaker := false, false
	for _, rule := range s.rules {
		if !rule.Side.covers(r.Side) {
			continue
		}
		asked := rule.ask(&p)
		e.Asked = append(e.Asked, asked)
		if asked.Matched != "" {
			bulkhead = bulkhead || rule.Bulkhead != nil || rule.Exempt
			breaker = breaker || rule.Breaker != nil || rule.Exempt
		}
		if bulkhead && breaker {
			break
		}
	}
	return e
}

func (r *Rule) ask(p *parts) Asked {
	a := Asked{Rule: r}
	if len(r.entries) == 0 {
		a.Matched = "everything"
	}
	for i := range r.entries {
		e := &r.entries[i]
		name := "match[" + strconv.Itoa(i) + "]: "
		why := e.why(p)
		if why == "" {
			a.Matched = name + e.String()
			break
		}
		a.Missed = append(a.Missed, name+why)
	}
	return a
}

// why says what does not hold of an entry for a request, or "" if it matches. It asks
// what match asks, in the same order.
func (e *entry) why(p *parts) string {
	if len(e.methods) > 0 && !slices.Contains(e.methods, p.method) {
		return fmt.Sprintf("the method is %s, not %s", bare(p.method), oneOf(e.methods))
	}
	if e.pattern != "" && !e.path.match(p.path, p.escaped) {
		return fmt.Sprintf("the path is %s, not %s", quote(p.path), e.pattern)
	}
	if e.host.name != "" {
		if name, port := p.hostParts(); !e.host.match(p.scheme, name, port) {
			return fmt.Sprintf("the host is %s, not %s", quote(p.rawHost), e.host)
		}
	}
	if e.route.path != "" {
		if name, _ := p.hostParts(); !e.route.match(p.routeParts(), p.method, name) {
			if !p.hasRoute {
				return fmt.Sprintf("no route is known, and it asks for %s", e.route)
			}
			return fmt.Sprintf("the route is %s, not %s", quote(p.rawRoute), e.route)
		}
	}
	if len(e.text) > 0 && !e.text.match(p.decodedPath()) {
		return fmt.Sprintf("the path is %s, not %s", quote(p.decodedPath()), e.text)
	}
	for i := range e.headers {
		h := &e.headers[i]
		switch values := p.header[h.name]; {
		case len(values) == 0:
			return fmt.Sprintf("there is no header %s", bare(h.name))
		case !h.matchAny(values):
			return fmt.Sprintf("the header %s is %s, not %s", bare(h.name), quote(strings.Join(values, ", ")), h.condition)
		}
	}
	if e.caller != "" && !calledBy(p.header, e.caller) {
		return fmt.Sprintf("the caller is not %s, as %s would say", bare(e.caller), callerHeaders[0].name)
	}
	for i := range e.query {
		if q := &e.query[i]; !matchQuery(p.query, q) {
			return whyQuery(p.query, q)
		}
	}
	for i := range e.not {
		if n := &e.not[i]; n.match(p) {
			return fmt.Sprintf("not[%d] holds: %s", i, n)
		}
	}
	return ""
}

func whyQuery(raw string, q *valueCondition) string {
	values, _ := url.ParseQuery(raw) // what is right of it is what counts
	if len(values[q.name]) == 0 {
		return fmt.Sprintf("the query has no parameter %s", bare(q.name))
	}
	return fmt.Sprintf("the parameter %s is %s, not %s", bare(q.name), quote(strings.Join(values[q.name], ", ")), q.condition)
}

// String says what an entry asks for.
func (e *entry) String() string {
	var all []string
	say := func(what string, args ...any) { all = append(all, fmt.Sprintf(what, args...)) }
	if len(e.methods) > 0 {
		say("method %s", oneOf(e.methods))
	}
	if e.pattern != "" {
		say("path %s", e.pattern)
	}
	if e.host.name != "" {
		say("host %s", e.host)
	}
	if e.route.path != "" {
		say("route %s", e.route)
	}
	if len(e.text) > 0 {
		say("path %s", e.text)
	}
	for i := range e.headers {
		say("header %s %s", bare(e.headers[i].name), e.headers[i].condition)
	}
	if e.caller != "" {
		say("caller %s", bare(e.caller))
	}
	for i := range e.query {
		say("parameter %s %s", bare(e.query[i].name), e.query[i].condition)
	}
	for i := range e.not {
		say("not (%s)", &e.not[i])
	}
	if len(all) == 0 {
		return "everything" // an empty prefix is no condition
	}
	return strings.Join(all, ", ")
}

func oneOf(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = bare(text)
	}
	return strings.Join(all, " or ")
}

func (c condition) String() string {
	if len(c) == 0 {
		return "any value"
	}
	all := make([]string, len(c))
	for i := range c {
		all[i] = operatorNames[c[i].kind] + " " + quote(c[i].text)
	}
	return strings.Join(all, " and ")
}

func (p hostPattern) String() string {
	name := p.name
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if p.below {
		name = "*." + name
	}
	if p.port != "" {
		name += ":" + p.port
	}
	return bare(name)
}

func (p routePattern) String() string {
	pattern := p.host + p.path
	if p.method != "" {
		pattern = p.method + " " + pattern
	}
	return bare(pattern)
}
