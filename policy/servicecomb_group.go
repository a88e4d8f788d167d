package policy

import (
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A combGroup is a matchGroup: the requests that policies of the same name are about. If
// it is dropped, it matches nothing.
type combGroup struct {
	key     at
	dropped bool
	entries []combEntry // one must match
}

// alive reports whether the group matches any request.
func (g *combGroup) alive() bool {
	return !g.dropped && slices.ContainsFunc(g.entries, func(e combEntry) bool { return !e.never })
}

// A combEntry is one entry of a group: what is set must hold.
type combEntry struct {
	place   at
	never   bool // some part of it can never hold
	path    condition
	methods []string
	headers []valueCondition
	queries []valueCondition
	service string
}

// What a group and its entries may have. The idle keys are those that the consoles of
// service engines write along; nothing reads them.
var (
	groupKeys     = []string{"matches", "services", "name"}
	groupIdle     = []string{"alias", "order", "description", "version"}
	combEntryKeys = []string{"name", "apiPath", "method", "headers", "queries", "serviceName", "customMatcher"}
	combEntryIdle = []string{"showAlert", "uniqIndex", "trafficMarkPolicy"}
	combOperators = []string{"exact", "prefix", "suffix", "contains", "compare"}
)

// group reads a matchGroup.
func (c *comb) group(s *section) *combGroup {
	g := &combGroup{key: s.key, dropped: true}
	n := c.content(s)
	if n == nil {
		return g
	}
	if n.Kind != yaml.MappingNode {
		c.findf(place(n), "%sit is %s; it must be a mapping of %s", s.label(), describe(n), strings.Join(groupKeys, ", "))
		return g
	}
	f := c.fields(n, s.label(), "a matchGroup", groupKeys, groupIdle, func(key string) string {
		if slices.Contains(combEntryKeys, key) {
			return "it belongs in an entry of matches, below a -"
		}
		return ""
	})
	f.name(s.name)
	if n := f.values["order"]; n != nil {
		c.warnf(place(n), "%sorder has no effect in a matchGroup; give it to the policies", s.label())
	}
	list := f.values["matches"]
	switch {
	case list == nil:
		if !f.dropped && !f.unknown {
			c.findf(f.place, "%smatches is missing, and without it the group is dropped; list what it matches", s.label())
		}
		return g
	case isNull11(list) || list.Kind == yaml.SequenceNode && len(list.Content) == 0:
		c.findf(place(list), "%smatches is empty, and so the group is dropped; list what it matches", s.label())
		return g
	case list.Kind != yaml.SequenceNode:
		f.drop(list, "matches", "a list: put a - before each entry")
		return g
	}
	for i, n := range list.Content {
		if n = c.follow(n); n != nil {
			g.entries = append(g.entries, c.combEntry(f, n, elementName(s.label()+"matches", i)))
		}
	}
	g.dropped = !c.applies(f) || f.dropped
	return g
}

// combEntry reads an entry of a group. What makes ServiceComb drop the whole group is
// marked in f.
func (c *comb) combEntry(f *combFields, n *yaml.Node, name string) combEntry {
	e := combEntry{place: place(n), never: true}
	if n.Kind != yaml.MappingNode {
		c.findf(e.place, "%s is %s; it must be a mapping of %s", name, describe(n), strings.Join(combEntryKeys, ", "))
		f.dropped = f.dropped || !isNull11(n)
		return e
	}
	e.never = false
	before := len(c.errors) + len(c.warns)
	ef := c.fields(n, name+".", "an entry of matches", combEntryKeys, combEntryIdle, func(key string) string { return misplacedInEntry(n, key) })
	if n := ef.get("apiPath"); n != nil {
		e.path = c.condition(ef, &e, n, "apiPath")
	}
	if n := ef.get("method"); n != nil {
		e.methods = c.combMethods(ef, &e, n)
	}
	e.headers = c.combTexts(ef, &e, "headers")
	e.queries = c.combTexts(ef, &e, "queries")
	e.service = ef.text("serviceName")
	c.customMatcher(ef, &e)
	f.dropped = f.dropped || ef.dropped
	// Beside what is wrong with it that would say too much, unless it is loaded.
	if said := len(c.errors)+len(c.warns) > before; !e.conditional() && !f.dropped && (!said || c.lenient) {
		c.findf(e.place, `%s has no condition, and so matches every request; if that is meant, write apiPath: {prefix: "/"}`, name)
	}
	return e
}

// conditional reports whether the entry does not match everything.
func (e *combEntry) conditional() bool {
	return e.never || e.path != nil || len(e.methods) > 0 || len(e.headers) > 0 || len(e.queries) > 0 || e.service != ""
}

// misplacedInEntry says where a key belongs that stands in an entry, or "".
func misplacedInEntry(entry *yaml.Node, key string) string {
	switch {
	case slices.Contains(combOperators, key):
		return "it belongs below apiPath or the name of a header: indent it further"
	case key == "services":
		return "it belongs beside matches: indent it less"
	case slices.Contains([]string{"uri", "url", "path", "api"}, strings.ToLower(key)):
		return `did you mean "apiPath"?`
	case key == "query" || key == "params" || key == "parameters":
		return `did you mean "queries"?`
	case meant(key, combEntryKeys) == "" && holdsOperator(entry, key):
		return "it belongs below headers or queries: indent it further"
	}
	return ""
}

// holdsOperator reports whether what stands under a key of a mapping is a condition.
func holdsOperator(n *yaml.Node, key string) bool {
	value := find(n, key, 1)
	for i := 0; value != nil && value.Kind == yaml.MappingNode && i+1 < len(value.Content); i += 2 {
		if slices.Contains(combOperators, value.Content[i].Value) {
			return true
		}
	}
	return false
}

// condition reads a mapping of operators, all of which must hold.
func (c *comb) condition(f *combFields, e *combEntry, n *yaml.Node, key string) condition {
	if n.Kind != yaml.MappingNode {
		want := "a mapping such as {exact: VALUE}"
		if n.Kind == yaml.ScalarNode {
			want = "a mapping: write {exact: " + quote(n.Value) + "}"
		}
		f.drop(n, key, want)
		return nil
	}
	if len(n.Content) == 0 {
		c.findf(place(n), "%s%s is empty, and so never holds; write {exact: VALUE}", f.label, key)
		e.never = true
		return nil
	}
	of := c.fields(n, f.label+key+".", "a condition", combOperators, nil, func(op string) string {
		if slices.Contains([]string{"regex", "regexp", "pattern", "match"}, op) {
			return "there are no expressions in a ServiceComb file; it has " + strings.Join(combOperators, ", ")
		}
		return ""
	})
	e.never = e.never || of.unknown // an operator that is not known never holds
	var all condition
	for _, op := range combOperators {
		n := of.values[op]
		if n == nil {
			continue
		}
		o, ok := c.operator(of, n, op)
		if !ok {
			e.never = true
			continue
		}
		if key == "apiPath" {
			c.warnOperand(&o, place(n), of.label+op)
		}
		all = append(all, o)
	}
	return all
}

// operator reads what an operator holds a text against. ServiceComb fails in the middle
// of a request if that is not text, so then it never holds here.
func (c *comb) operator(f *combFields, n *yaml.Node, name string) (operator, bool) {
	switch {
	case isNull11(n):
		c.findf(place(n), `%s%s is empty, and so never holds; write "" if that is meant`, f.label, name)
		return operator{}, false
	case n.Kind != yaml.ScalarNode:
		c.findf(place(n), "%s%s is %s; it must be text", f.label, name, describe(n))
		return operator{}, false
	case yaml11Tag(n) != "!!str":
		c.findf(place(n), "%s%s is %s, which is not text, and so never holds; put it in quotes: %s", f.label, name, bare(n.Value), quote(n.Value))
		return operator{}, false
	}
	if name == operatorNames[operatorCompare] {
		o, err := newComparison(n.Value)
		if err != nil {
			c.findf(place(n), "%s%s is %s: %v", f.label, name, quote(n.Value), err)
		}
		return o, err == nil
	}
	o, err := newOperator(operatorKind(slices.Index(operatorNames[:], name)), n.Value)
	return o, err == nil
}

func (c *comb) combMethods(f *combFields, e *combEntry, n *yaml.Node) (methods []string) {
	if n.Kind != yaml.SequenceNode {
		f.drop(n, "method", "a list: write "+aloneMethod(n))
		return nil
	}
	if len(n.Content) == 0 {
		c.findf(place(n), "%smethod is empty, and so never holds; list methods such as GET, or leave it out for all", f.label)
		e.never = true
	}
	for i, n := range n.Content {
		if n = c.follow(n); n == nil {
			continue
		}
		name := elementName(f.label+"method", i)
		upper := strings.ToUpper(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || isNull11(n):
			f.dropped = f.dropped || n.Kind != yaml.ScalarNode
			c.findf(place(n), "%s is %s; it must be a method such as GET", name, describe(n))
			continue
		case strings.Contains(n.Value, ","):
			c.findf(place(n), "%s is %s, which is one method with commas in it; write [%s]", name, quote(n.Value), strings.ReplaceAll(strings.ReplaceAll(upper, " ", ""), ",", ", "))
		case n.Value == "*":
			c.findf(place(n), `%s is "*", which is a method of that name and not all of them; leave method out for all`, name)
		case !isToken(n.Value):
			c.findf(place(n), "%s is %s, which is not a method; write one such as GET", name, quote(n.Value))
		case upper != n.Value:
			c.findf(place(n), "%s is %s; methods are upper-case: write %s", name, quote(n.Value), bare(upper))
		}
		methods = append(methods, n.Value)
	}
	e.never = e.never || len(methods) == 0
	return methods
}

// combTexts reads the conditions on headers or on parameters of the query.
func (c *comb) combTexts(f *combFields, e *combEntry, key string) (all []valueCondition) {
	n := f.get(key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		f.drop(n, key, "a mapping such as {NAME: {exact: VALUE}}")
		return nil
	}
	if len(n.Content) == 0 {
		c.findf(place(n), "%s%s is empty; name one, or leave it out", f.label, key)
		return nil
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := c.follow(n.Content[i]), c.follow(n.Content[i+1])
		if name == nil || value == nil {
			continue
		}
		at := place(n.Content[i])
		if name.Kind != yaml.ScalarNode {
			c.findf(at, "%s%s has %s for a name; it must be text", f.label, key, describe(name))
			f.dropped = true
			continue
		}
		text := valueCondition{name: name.Value}
		if key == "headers" {
			text.name = http.CanonicalHeaderKey(name.Value)
			if !isToken(name.Value) || text.name == "Host" {
				c.findf(at, "%s%s has %s, which no request has among its headers", f.label, key, quote(name.Value))
				e.never = true
			}
		}
		if line, ok := lines[name.Value]; ok {
			c.findf(at, "%s%s: %s is already in line %d; keep one of them", f.label, key, quote(name.Value), line)
			all = slices.DeleteFunc(all, func(t valueCondition) bool { return t.name == text.name })
		}
		lines[name.Value] = at.line
		if isNull11(value) {
			c.findf(place(value), "%s is empty, and so never holds; write {exact: VALUE}", valueField(f.label+key, name.Value))
			e.never = true
			continue
		}
		text.condition = c.condition(f, e, value, strings.TrimPrefix(valueField(f.label+key, name.Value), f.label))
		all = append(all, text)
	}
	return all
}

// customMatcher refuses a condition that is a class of Java.
func (c *comb) customMatcher(f *combFields, e *combEntry) {
	n := f.get("customMatcher")
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.drop(n, "customMatcher", "a mapping")
		return
	}
	handler := find(n, "customMatcherHandler", 1)
	if handler == nil || isNull11(handler) || handler.Value == "" {
		c.findf(place(n), "%scustomMatcher has no customMatcherHandler, and so is no condition; leave it out", f.label)
		return
	}
	c.findf(place(n), "%scustomMatcher asks %s, which is a class of Java; match on headers instead. Here it never holds", f.label, quote(handler.Value))
	e.never = true
}

// warnOperand warns of what is held against the path that is allowed but hardly meant.
func (c *comb) warnOperand(o *operator, at at, name string) {
	const text = ", in which the %s is only text, since there are no patterns here; write the part before it as prefix"
	warn := ""
	switch {
	case o.kind == operatorCompare:
		warn = ", which never holds, since a path starts with / and so is no number"
	case o.kind == operatorExact && o.text == "", o.text != "" && o.text[0] != '/' && (o.kind == operatorExact || o.kind == operatorPrefix):
		warn = ", which never holds, since a path starts with /"
	case strings.Contains(o.text, "{") && strings.Contains(o.text, "}"):
		warn = strings.Replace(text, "%s", "{", 1)
	case strings.Contains(o.text, "*"):
		warn = strings.Replace(text, "%s", "*", 1)
	case strings.Contains(o.text, "?"):
		warn = ", but the query is no part of the path"
	case strings.Contains(o.text, "%"):
		warn = ", but the path that it is held against is decoded"
	}
	if warn != "" {
		c.warnf(at, "%s is %s%s", name, quote(o.text), warn)
	}
}
