package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// file reads the whole file.
func (d *decoder) file(n *yaml.Node) *draft {
	dr := &draft{}
	o, ok := d.object(n, &fileScope, "the file", "")
	if !ok {
		return dr
	}
	if version := read(d, o, "version", readVersion); !version.set {
		d.errorf(o.place, "version is missing; a policy file starts with version: 1")
	}
	if n := o.values["defaults"]; n != nil {
		if o, ok := d.object(n, &defaultsScope, "defaults", "defaults."); ok {
			dr.maxCompartments = read(d, o, "maxCompartments", readCount)
			dr.idle = read(d, o, "idle", readDuration)
		}
	}
	if n := o.values["policies"]; n != nil {
		dr.policies = d.policies(n)
	} else if !o.lost("policies") {
		d.errorf(o.place, "policies is missing; it lists what is limited, and may be []")
	}
	return dr
}

func (d *decoder) policies(n *yaml.Node) []policyDraft {
	list, ok := d.list(n, "policies", "- name: NAME for each policy")
	if !ok {
		return nil
	}
	if len(list.Content) == 0 {
		d.warnf(place(list), "policies is empty: nothing is limited")
	}
	var policies []policyDraft
	for i, n := range list.Content {
		if p, ok := d.policy(n, i); ok {
			policies = append(policies, p)
		}
	}
	return policies
}

func (d *decoder) policy(n *yaml.Node, index int) (policyDraft, bool) {
	label := policyLabel(nameIn(n), index)
	d.label, d.strayed = label, false
	defer func() { d.label = "" }()
	o, ok := d.object(n, &policyScope, elementName("policies", index), label)
	if !ok {
		return policyDraft{}, false
	}
	p := policyDraft{
		place:  o.place,
		label:  label,
		broken: o.lost("bulkhead") || o.lost("breaker"),
		name:   read(d, o, "name", readText),
		side:   read(d, o, "side", readSide),
		per:    read(d, o, "per", readPer),
		mode:   read(d, o, "mode", readMode),
		exempt: read(d, o, "exempt", readBool),
	}
	if n := o.values["match"]; n != nil {
		p.match = d.match(n, label+"match")
	}
	if n := o.values["bulkhead"]; n != nil {
		p.bulkhead = d.bulkhead(n, label+"bulkhead")
		p.broken = p.broken || p.bulkhead == nil
	}
	if n := o.values["breaker"]; n != nil {
		p.breaker = d.breaker(n, label+"breaker")
		p.broken = p.broken || p.breaker == nil
	}
	if n := o.values["reject"]; n != nil {
		p.reject = d.reject(n, label+"reject")
	}
	p.broken = p.broken || d.strayed
	return p, true
}

// nameIn looks for a policy's name ahead of all checks, for the messages that
// come before it.
func nameIn(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; n.Content[i].Value == "name" && v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" {
			return v.Value
		}
	}
	return ""
}

func (d *decoder) match(n *yaml.Node, name string) []matchDraft {
	list, ok := d.list(n, name, "- before each entry, as in [{path: /reports/}]")
	if !ok {
		return nil
	}
	if len(list.Content) == 0 {
		d.errorf(place(list), "%s is empty; give it an entry, or leave it out to match everything", name)
	}
	return d.entries(list, &matchScope, name)
}

func (d *decoder) entries(list *yaml.Node, s *scope, name string) []matchDraft {
	entries := make([]matchDraft, len(list.Content))
	for i, n := range list.Content {
		entries[i] = d.entry(n, s, elementName(name, i))
	}
	return entries
}

// not reads what must not match: a list as match is, or its only entry.
func (d *decoder) not(n *yaml.Node, name string) []matchDraft {
	switch list := d.follow(n); {
	case list == nil:
		return nil
	case list.Kind == yaml.MappingNode:
		// The node as it was written, since follow counts what it follows.
		return []matchDraft{d.entry(n, &notScope, name)}
	case list.Kind != yaml.SequenceNode || len(list.Content) == 0:
		d.errorf(place(list), "%s is %s; write what must not match, as in {path: /reports/}, or leave it out", name, describe(list))
		return nil
	default:
		return d.entries(list, &notScope, name)
	}
}

func (d *decoder) entry(n *yaml.Node, s *scope, name string) matchDraft {
	m := matchDraft{label: name, broken: true}
	before := len(d.errors)
	o, ok := d.object(n, s, name, name+".")
	if !ok {
		return m
	}
	m.place = o.place
	d.path(o, name+".path", &m)
	m.route = read(d, o, "route", readText)
	m.host = read(d, o, "host", readText)
	if n := o.values["method"]; n != nil {
		m.methods = d.methods(n, name+".method")
	}
	if n := o.values["headers"]; n != nil {
		m.headers = d.values(n, name+".headers", "X-Plan: {exact: free}")
	}
	if n := o.values["query"]; n != nil {
		m.query = d.values(n, name+".query", "watch: {exact: \"true\"}")
	}
	if n := o.values["not"]; n != nil {
		m.not = d.not(n, name+".not")
	}
	m.broken = len(d.errors) > before
	return m
}

func (d *decoder) methods(n *yaml.Node, name string) []field[string] {
	list, ok := d.list(n, name, aloneMethod(n))
	if !ok {
		return nil
	}
	if len(list.Content) == 0 {
		d.errorf(place(list), "%s is empty; list methods such as GET, or leave it out for all", name)
	}
	methods := make([]field[string], len(list.Content))
	for i, n := range list.Content {
		methods[i].name = elementName(name, i)
		readNode(d, &methods[i], n, readText)
	}
	return methods
}

// path reads the key of an entry that is either a pattern or a condition on a text.
func (d *decoder) path(entry *object, name string, m *matchDraft) {
	n := entry.values["path"]
	if n == nil || n.Kind != yaml.MappingNode && (n.Kind != yaml.AliasNode || n.Alias.Kind != yaml.MappingNode) {
		m.path = read(d, entry, "path", readText)
		return
	}
	if written := n.Content; len(written) == 2 && isNull(written[1]) && !slices.Contains(textScope.keys, written[0].Value) {
		d.errorf(place(n), "%s is a mapping in YAML; inside [] and {} a pattern with braces must be in quotes, as in {path: \"/reports/{id}\"}", name)
		return
	}
	m.pathText = d.text(n, name)
}

// values reads the conditions on headers or on parameters, by their names.
func (d *decoder) values(n *yaml.Node, name, example string) []valueDraft {
	if n = d.follow(n); n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		d.errorf(place(n), "%s is %s; it must be a mapping such as {%s}", name, describe(n), example)
		return nil
	}
	var values []valueDraft
	d.pairs(n, func(key, value *yaml.Node) {
		values = append(values, valueDraft{
			name: field[string]{name: name, at: place(key), v: key.Value, set: true},
			text: d.text(value, valueField(name, key.Value)),
		})
	})
	return values
}

// text reads a condition on a text.
func (d *decoder) text(n *yaml.Node, name string) (t textDraft) {
	switch v := d.follow(n); {
	case v == nil:
		return nil
	case isNull(v), v.Kind != yaml.ScalarNode && len(v.Content) == 0:
		d.errorf(place(v), "%s is %s; write {exact: VALUE}", name, describe(v))
		return nil
	case v.Kind == yaml.ScalarNode:
		d.errorf(place(v), "%s is %s; write {exact: %s}", name, describe(v), inFlow(v))
		return nil
	}
	o, ok := d.object(n, &textScope, name, name+".")
	if !ok {
		return nil
	}
	for kind, key := range operatorNames {
		if o.values[key] != nil {
			t = append(t, operatorDraft{operatorKind(kind), read(d, o, key, readText)})
		}
	}
	return t
}

func (d *decoder) bulkhead(n *yaml.Node, name string) *bulkheadDraft {
	o, ok := d.object(n, &bulkheadScope, name, name+".")
	if !ok {
		return nil
	}
	return &bulkheadDraft{
		place:         o.place,
		label:         name,
		maxConcurrent: read(d, o, "maxConcurrent", readCount),
		maxQueue:      read(d, o, "maxQueue", readCount),
		maxWait:       read(d, o, "maxWait", readDuration),
	}
}

func (d *decoder) breaker(n *yaml.Node, name string) *breakerDraft {
	o, ok := d.object(n, &breakerScope, name, name+".")
	if !ok {
		return nil
	}
	b := &breakerDraft{
		place:        o.place,
		failureRate:  read(d, o, "failureRate", readRate),
		slowCall:     read(d, o, "slowCall", readDuration),
		slowCallRate: read(d, o, "slowCallRate", readRate),
		minCalls:     read(d, o, "minCalls", readCount),
		settle:       read(d, o, "settle", readSettle),
		force:        read(d, o, "force", readForce),
	}
	d.openFor(o, name+".openFor", b)
	if n := o.values["window"]; n != nil {
		b.window = field[struct{}]{name: name + ".window", at: place(n), set: true, bad: true}
		before := len(d.errors)
		if o, ok := d.object(n, &windowScope, name+".window", name+".window."); ok {
			b.windowCalls = read(d, o, "calls", readCount)
			b.windowTime = read(d, o, "time", readDuration)
			b.window.bad = len(d.errors) > before
		}
	}
	if n := o.values["halfOpen"]; n != nil {
		if o, ok := d.object(n, &halfOpenScope, name+".halfOpen", name+".halfOpen."); ok {
			b.halfOpenCalls = read(d, o, "calls", readCount)
			b.probeTimeout = read(d, o, "probeTimeout", readDuration)
			b.halfOpenMaxWait = read(d, o, "maxWait", readDuration)
		}
	}
	if n := o.values["failureStatus"]; n != nil {
		b.failureStatusList.name, b.failureStatusList.at, b.failureStatusList.set = name+".failureStatus", place(n), true
		_, problem := readStatusRange(n)
		if list, ok := d.list(n, name+".failureStatus", alone(n, problem == "", "[500-599]")); ok {
			for i, n := range list.Content {
				f := field[StatusRange]{name: elementName(name+".failureStatus", i)}
				readNode(d, &f, n, readStatusRange)
				b.failureStatusList.v = append(b.failureStatusList.v, f)
			}
		}
	}
	return b
}

// openFor reads the key of a breaker that is either a duration or a mapping.
func (d *decoder) openFor(breaker *object, name string, b *breakerDraft) {
	n := breaker.values["openFor"]
	if n == nil || n.Kind != yaml.MappingNode && (n.Kind != yaml.AliasNode || n.Alias.Kind != yaml.MappingNode) {
		b.openFor = read(d, breaker, "openFor", readDuration)
		return
	}
	before := len(d.errors)
	o, ok := d.object(n, &openForScope, name, name+".")
	if !ok {
		return
	}
	if len(o.values) == 0 && len(d.errors) == before {
		d.errorf(o.place, "%s is empty; write a duration such as 30s, or {initial: 5s, max: 2m}", name)
	}
	b.openFor = read(d, o, "initial", readDuration)
	b.openForMax = read(d, o, "max", readDuration)
	b.multiplier = read(d, o, "multiplier", readFactor)
	b.jitter = read(d, o, "jitter", readShare)
	b.heed = read(d, o, "retryAfter", readDuration)
}

func (d *decoder) reject(n *yaml.Node, name string) rejectDraft {
	r := rejectDraft{given: field[struct{}]{name: name, at: place(n), set: true}}
	o, ok := d.object(n, &rejectScope, name, name+".")
	if !ok {
		return r
	}
	r.retryAfter = read(d, o, "retryAfter", readDuration)
	if n := o.values["status"]; n != nil {
		if o, ok := d.object(n, &statusScope, name+".status", name+".status."); ok {
			for i, reason := range reasonNames {
				if o.values[reason] != nil {
					r.status = append(r.status, statusDraft{Reason(i), read(d, o, reason, readCount)})
				}
			}
		}
	}
	return r
}
