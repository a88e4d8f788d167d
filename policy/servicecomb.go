package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A comb reads the governance files of ServiceComb and Spring Cloud Huawei.
//
// It turns them into rules directly, without a draft: their values have other ranges
// and other defaults, and a policy that is wrong is not replaced by its defaults, but
// dropped. What is there in two steps, here too: the sections of the file first,
// wherever in it they are, then what they say.
type comb struct {
	*decoder
	lenient bool
	lines   []string     // of the file
	docs    []*yaml.Node // the roots of its documents
	self    service

	filled   map[string]bool // texts with placeholders that were reported; whether they have a value
	resolved int             // how many texts with placeholders were looked at

	sections map[string][]section // by kind, in the order of the file
	groups   map[string]*combGroup
}

// A section is one key below one kind, with what it holds.
type section struct {
	kind string
	name string
	key  at // where the name is written
	node *yaml.Node
}

// label is how messages call the section; what is wrong with it follows.
func (s *section) label() string { return s.kind + " " + quote(s.name) + ": " }

const (
	kindMatchGroup        = "matchGroup"
	kindBulkhead          = "bulkhead"
	kindInstanceBulkhead  = "instanceBulkhead"
	kindCircuitBreaker    = "circuitBreaker"
	kindInstanceIsolation = "instanceIsolation"
)

var (
	// The kinds that become policies.
	policyKinds = []string{kindBulkhead, kindInstanceBulkhead, kindCircuitBreaker, kindInstanceIsolation}
	// The kinds that ServiceComb has beside these.
	otherKinds = []string{"rateLimiting", "identifierRateLimiting", "retry", "timeLimiter", "cache", "faultInjection", "loadbalance", "mapper"}
	combKinds  = slices.Concat([]string{kindMatchGroup}, policyKinds, otherKinds)
)

// isServiceComb reports whether a key at the top of a file belongs to the
// governance files of ServiceComb and Spring Cloud Huawei.
func isServiceComb(key string) bool {
	return key == "servicecomb" || strings.HasPrefix(key, "servicecomb.")
}

// belongsToServiceComb reports whether a document has something for ServiceComb.
func belongsToServiceComb(docs []*yaml.Node) bool {
	key, _ := topKey(docs, isServiceComb)
	return key != nil
}

func rootsOf(docs []*yaml.Node) []*yaml.Node {
	roots := make([]*yaml.Node, len(docs))
	for i, doc := range docs {
		roots[i] = doc.Content[0]
	}
	return roots
}

// topKeys calls f for the keys at the top of a document.
func topKeys(doc *yaml.Node, f func(key, value *yaml.Node)) {
	for i := 0; doc.Kind == yaml.MappingNode && i+1 < len(doc.Content); i += 2 {
		f(doc.Content[i], doc.Content[i+1])
	}
}

// topKey returns the first key at the top of the documents for which ok holds, and its
// value, or nil.
func topKey(docs []*yaml.Node, ok func(key string) bool) (key, value *yaml.Node) {
	for _, doc := range docs {
		topKeys(doc, func(k, v *yaml.Node) {
			if key == nil && ok(k.Value) {
				key, value = k, v
			}
		})
	}
	return key, value
}

func is(want string) func(string) bool { return func(key string) bool { return key == want } }

// serviceComb reads the documents of a file that belongs to ServiceComb.
func (p *problems) serviceComb(data []byte, docs []*yaml.Node, o loadOptions) (*Set, error) {
	c := &comb{
		decoder:  &decoder{problems: p, aliased: maxAliased},
		lenient:  o.lenient,
		lines:    sourceLines(data),
		docs:     docs,
		self:     o.service,
		filled:   map[string]bool{},
		sections: map[string][]section{},
		groups:   map[string]*combGroup{},
	}
	if native, _ := topKey(docs, is("policies")); native != nil {
		other, _ := topKey(docs, isServiceComb)
		c.errorf(place(native), "policies belongs to a native policy file, and %s in line %d to a ServiceComb file; a file is one or the other: move policies into a file of its own, or rewrite what is under servicecomb as policies", bare(other.Value), other.Line)
		sortByPosition(p.errors)
		return nil, p.errors
	}
	if c.self == (service{}) {
		c.self = c.identity()
	}
	for _, doc := range docs {
		c.gatherFrom(doc)
	}
	for _, s := range c.sections[kindMatchGroup] {
		c.groups[s.name] = c.group(&s)
	}
	set := c.set()
	sortByPosition(p.errors)
	if len(p.errors) > 0 {
		return nil, p.errors
	}
	sortByPosition(p.warns)
	set.warnings = p.warns
	return set, nil
}

// findf reports what ServiceComb itself passes over or drops.
func (c *comb) findf(at at, format string, args ...any) {
	if c.lenient {
		c.warnf(at, format, args...)
	} else {
		c.errorf(at, format, args...)
	}
}

// gatherFrom gathers the sections of one document.
func (c *comb) gatherFrom(doc *yaml.Node) {
	if key, _ := topKey([]*yaml.Node{doc}, isServiceComb); key == nil {
		return
	} else if profile := c.profile(doc); profile != "" {
		c.errorf(place(key), "this document is for the Spring profile %s, and which profiles are active is not known here; put what holds for this program into a file of its own", quote(profile))
		return
	}
	seen := map[string]int{}
	topKeys(doc, func(key, value *yaml.Node) {
		if !isServiceComb(key.Value) {
			if looksLikeKind(key, value) {
				c.findf(place(key), "%s stands beside servicecomb, where it means nothing; indent it, so that it is below servicecomb", bare(key.Value))
			}
			return
		}
		// In what belongs to others a key may come twice, if that is what they want.
		if line, ok := seen[key.Value]; ok {
			c.errorf(place(key), "the key %s is already in line %d; keep one of them", quote(key.Value), line)
			return
		}
		seen[key.Value] = key.Line
		path := strings.TrimPrefix(strings.TrimPrefix(key.Value, "servicecomb"), ".")
		c.gather(path, key, value)
	})
}

// profile returns the profile of Spring that a document is for, or "".
func (c *comb) profile(doc *yaml.Node) string {
	for _, path := range []string{"spring.config.activate.on-profile", "spring.profiles"} {
		if n := find(doc, path, maxNesting); n != nil && n.Kind == yaml.ScalarNode {
			return n.Value
		}
	}
	return ""
}

// gather goes down from a key to the sections. path is what stands between
// servicecomb and the value, in one key or in several.
func (c *comb) gather(path string, key, value *yaml.Node) {
	kind, name, _ := strings.Cut(path, ".")
	switch {
	case path != "" && !slices.Contains(combKinds, kind):
		c.notAKind(kind, key, value)
	case name != "":
		c.section(kind, name, key, value)
	default:
		n := c.follow(value)
		if n == nil {
			return
		}
		if isNull11(n) {
			return // all of it commented out
		}
		switch {
		case n.Kind == yaml.MappingNode:
		case slices.Contains(otherKinds, kind):
			c.section(kind, "", key, n)
			return
		case kind == "":
			c.findf(place(n), "servicecomb is %s; it must be a mapping of matchGroup and of the kinds of policies", describe(n))
			return
		default:
			c.findf(place(n), "%s is %s; it must be a mapping with a key for each name", kind, describe(n))
			return
		}
		c.pairs(n, func(key, value *yaml.Node) {
			c.gather(strings.TrimPrefix(path+"."+key.Value, "."), key, value)
		})
	}
}

func (c *comb) section(kind, name string, key, value *yaml.Node) {
	s := section{kind: kind, name: name, key: place(key), node: value}
	if i := slices.IndexFunc(c.sections[kind], func(other section) bool { return other.name == name }); i >= 0 {
		first := c.sections[kind][i]
		c.findf(s.key, "%sthis name is already in line %d; keep one of them", s.label(), first.key.line)
		c.sections[kind][i] = s // the last one counts
		return
	}
	c.sections[kind] = append(c.sections[kind], s)
}

// notAKind looks at a key below servicecomb that is no kind. Most are other parts of
// ServiceComb, and none of our business.
func (c *comb) notAKind(kind string, key, value *yaml.Node) {
	const below = "unknown key %s below servicecomb"
	if kind == "match" {
		c.findf(place(key), below+"; it is an older name: write matchGroup, and give each policy the name of its matchGroup", quote(kind))
		return
	}
	if near := nearest(kind, combKinds); near != "" && (slices.Contains(policyKinds, near) || near == kindMatchGroup) {
		c.findf(place(key), below+"; did you mean %s?", quote(kind), near)
		return
	}
	if k := looksLike(value); k != "" {
		c.findf(place(key), below+", but it holds what belongs in %s; check the indentation", quote(kind), k)
	}
}

// looksLikeKind reports whether a key at the top of a file, and what it holds, were
// most likely meant to stand below servicecomb. Its name alone does not say so: an
// application may well have a bulkhead of its own.
func looksLikeKind(key, value *yaml.Node) bool {
	kind, name, _ := strings.Cut(key.Value, ".")
	switch {
	case kind != kindMatchGroup && !slices.Contains(policyKinds, kind):
		return false
	case name != "" || value.Kind != yaml.MappingNode:
		return looksLike(value) != ""
	}
	for i := 1; i < len(value.Content); i += 2 {
		if looksLike(value.Content[i]) != "" {
			return true
		}
	}
	return false
}

// looksLike returns the kind to which what n holds, at any depth but in few steps,
// most likely belongs, or "".
func looksLike(n *yaml.Node) string {
	for _, hint := range []struct{ key, kind string }{
		{"matches", kindMatchGroup},
		{"maxConcurrentCalls", kindBulkhead + " or " + kindInstanceBulkhead},
		{"maxWaitDuration", kindBulkhead + " or " + kindInstanceBulkhead},
		{"slidingWindowSize", kindCircuitBreaker + " or " + kindInstanceIsolation},
		{"minimumNumberOfCalls", kindCircuitBreaker + " or " + kindInstanceIsolation},
		{"failureRateThreshold", kindCircuitBreaker + " or " + kindInstanceIsolation},
	} {
		if n.Kind == yaml.ScalarNode && strings.Contains("\n"+n.Value, "\n"+hint.key+":") {
			return hint.kind
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Value == hint.key || value.Kind == yaml.ScalarNode && strings.Contains("\n"+value.Value, "\n"+hint.key+":") {
				return hint.kind
			}
		}
	}
	return ""
}

// others names what is not loaded, a warning for each kind.
func (c *comb) others() {
	for _, kind := range otherKinds {
		all := c.sections[kind]
		if len(all) == 0 {
			continue
		}
		const shown = 3
		var names []string
		for _, s := range all[:min(len(all), shown)] {
			names = append(names, quote(s.name))
		}
		list, have := strings.Join(names, ", "), "have"
		switch more := len(all) - shown; {
		case more > 0:
			list += fmt.Sprintf(" and %d more", more)
		case len(all) == 1:
			have = "has"
		}
		c.warnf(all[0].key, "%s is not something that this package does; %s %s no effect here", kind, list, have)
	}
}

// warnUnused warns of groups without a policy.
func (c *comb) warnUnused() {
	used := map[string]bool{}
	for kind, all := range c.sections {
		for _, s := range all {
			used[s.name] = used[s.name] || kind != kindMatchGroup
		}
	}
	for _, s := range c.sections[kindMatchGroup] {
		if !used[s.name] {
			c.warnf(s.key, "%sno policy has that name, so the group is of no use", s.label())
		}
	}
}

// content returns the node that a section holds: YAML of its own, or the YAML within a
// text. It returns nil, with the problem reported, if there is none.
func (c *comb) content(s *section) *yaml.Node {
	n := c.follow(s.node)
	if n == nil {
		return nil
	}
	if isNull11(n) || n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) == "" {
		c.findf(place(n), "%sit is empty; write what it is, or leave the name out", s.label())
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		c.fillIn(n)
		return n
	}
	m := mapText(c.lines, n)
	docs, err := documents([]byte(n.Value), 2)
	switch {
	case err != nil:
		at, msg := syntaxProblem([]byte(n.Value), err)
		c.findf(m.place(at), "%sthe text is not valid YAML: %s", s.label(), msg)
		return nil
	case len(docs) == 0 || isNull11(docs[0].Content[0]):
		c.findf(place(n), "%sthe text is empty; write what it is, or leave the name out", s.label())
		return nil
	case len(docs) > 1:
		c.findf(m.place(place(docs[1])), "%sa second document starts here; a text holds one", s.label())
		return nil
	}
	root := docs[0].Content[0]
	move(root, m)
	mergeKeys(root)
	c.fillIn(root)
	return root
}

// move gives the nodes of a text their places in the file.
func move(n *yaml.Node, m *textMap) {
	p := m.place(place(n))
	n.Line, n.Column = p.line, p.column
	for _, child := range n.Content {
		move(child, m)
	}
}
