package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// refuseTies reports policies of a kind with the same order that can be about the same
// request: which of them ServiceComb takes is chance. The policies are in order.
func (c *comb) refuseTies(all []*combPolicy) {
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].order == all[start].order {
			end++
		}
		same := all[start:end]
		for i, first := range ties(same) {
			if first >= 0 {
				p, other := same[i], same[first]
				c.findf(p.orderAt, "%sits order is %d, as that of %s in line %d, which can match the same requests; give them different orders, the smaller to the one that goes first", p.label(), p.order, quote(other.name), other.key.line)
			}
		}
		start = end
	}
}

// ties returns for each policy the first one before it that can be about the same
// request, or -1.
//
// Most groups say how the path begins. Of these only such pairs are looked at of which
// one begins as the other does. They are found by going through all beginnings in
// order, with those at hand that the current one begins with; so thousands of policies
// without an order of their own take no time that anybody would notice.
func ties(all []*combPolicy) []int {
	first := make([]int, len(all))
	for i := range first {
		first[i] = -1
	}
	meet := func(i, j int) {
		if later := max(i, j); i != j && all[i].group.meets(all[j].group) && (first[later] < 0 || min(i, j) < first[later]) {
			first[later] = min(i, j)
		}
	}
	type beginning struct {
		text   string
		policy int
	}
	var begin []beginning
	for i, p := range all {
		texts, ok := p.group.beginnings()
		if !ok {
			for j := range all {
				meet(i, j)
			}
		}
		for _, text := range texts {
			begin = append(begin, beginning{text, i})
		}
	}
	slices.SortFunc(begin, func(a, b beginning) int {
		return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.policy, b.policy))
	})
	var outer []beginning
	for _, b := range begin {
		for len(outer) > 0 && !strings.HasPrefix(b.text, outer[len(outer)-1].text) {
			outer = outer[:len(outer)-1]
		}
		for _, o := range outer {
			meet(o.policy, b.policy)
		}
		outer = append(outer, b)
	}
	return first
}

// beginnings returns how the paths begin that a group matches, one text for each of its
// entries. ok is false if they may begin in any way.
func (g *combGroup) beginnings() (texts []string, ok bool) {
	for i := range g.entries {
		e := &g.entries[i]
		if e.never {
			continue
		}
		longest := ""
		for _, o := range e.path {
			if (o.kind == operatorExact || o.kind == operatorPrefix) && len(o.text) > len(longest) {
				longest = o.text
			}
		}
		if longest == "" {
			return nil, false
		}
		texts = append(texts, longest)
	}
	return texts, true
}

// meets reports whether there may be a request that both groups match.
func (g *combGroup) meets(other *combGroup) bool {
	for i := range g.entries {
		for j := range other.entries {
			if g.entries[i].meets(&other.entries[j]) {
				return true
			}
		}
	}
	return false
}

// meets reports whether there may be a request that both entries match. It looks for a
// condition of which one denies the other.
func (e *combEntry) meets(other *combEntry) bool {
	switch {
	case e.never || other.never:
	case e.service != "" && other.service != "" && e.service != other.service:
	case len(e.methods) > 0 && len(other.methods) > 0 && !slices.ContainsFunc(e.methods, func(m string) bool { return slices.Contains(other.methods, m) }):
	case e.path.denies(other.path):
	case textsDeny(e.headers, other.headers), textsDeny(e.queries, other.queries):
	default:
		return true
	}
	return false
}

// textsDeny reports whether a header or parameter that both name cannot be as both
// want it, if it comes once.
func textsDeny(a, b []valueCondition) bool {
	for i := range a {
		for j := range b {
			if a[i].name == b[j].name && a[i].condition.denies(b[j].condition) {
				return true
			}
		}
	}
	return false
}

// denies reports whether no text fulfils both conditions. It does not see all of these
// cases, but what it reports is one.
func (c condition) denies(other condition) bool {
	for i := range c {
		for j := range other {
			if c[i].denies(&other[j]) {
				return true
			}
		}
	}
	return false
}

func (o *operator) denies(other *operator) bool {
	switch {
	case o.kind == operatorExact:
		return !other.match(o.text)
	case other.kind == operatorExact:
		return !o.match(other.text)
	case o.kind == operatorPrefix && other.kind == operatorPrefix:
		return !strings.HasPrefix(o.text, other.text) && !strings.HasPrefix(other.text, o.text)
	case o.kind == operatorSuffix && other.kind == operatorSuffix:
		return !strings.HasSuffix(o.text, other.text) && !strings.HasSuffix(other.text, o.text)
	}
	return false
}

// set builds the rules: those for servers first, then those for clients. The two sides
// share no compartment, so a name may be on both.
func (c *comb) set() *Set {
	s := &Set{
		defaults: Defaults{MaxCompartments: defaultMaxCompartments, Idle: defaultIdle},
		// What is kept for each instance says nothing of a call whose instance is not
		// known.
		hosted: true,
	}
	for _, side := range []struct {
		side              Side
		per               Per
		bulkhead, breaker string
	}{
		{Server, PerPolicy, kindBulkhead, kindCircuitBreaker},
		{Client, PerHost, kindInstanceBulkhead, kindInstanceIsolation},
	} {
		for _, j := range join(side.side, c.policiesOf(side.bulkhead), c.policiesOf(side.breaker)) {
			j.Index = len(s.rules)
			j.Per = side.per
			s.add(j.Rule, j.written)
		}
	}
	c.others()
	c.warnUnused()
	c.warnShadowed(s, "give it a smaller order")
	if len(s.rules) == 0 && len(c.errors) == 0 {
		c.warnf(c.start(), "nothing in this file limits a request here")
	}
	return s
}

// start is where the first key of ServiceComb is.
func (c *comb) start() at {
	key, _ := topKey(c.docs, isServiceComb)
	return place(key)
}

// A placedRule is a rule with where its settings are written.
type placedRule struct {
	*Rule
	written map[string]at
}

// join makes one list of two, each in its own order. A bulkhead and a breaker of the same
// name become one rule, as long as both orders allow it.
//
// They do not where two names are in one order in the one list, and in the other order
// in the other list. Then the later of the two stays in two parts.
func join(side Side, bulkheads, breakers []*combPolicy) (rules []placedRule) {
	next := 0 // of breakers
	for _, b := range bulkheads {
		i := slices.IndexFunc(breakers[next:], func(p *combPolicy) bool { return p.name == b.name })
		r := b.rule(side)
		if i >= 0 {
			for _, p := range breakers[next : next+i] {
				rules = append(rules, p.rule(side))
			}
			r.Breaker = breakers[next+i].breaker
			maps.Copy(r.written, breakers[next+i].written)
			next += i + 1
		}
		rules = append(rules, r)
	}
	for _, p := range breakers[next:] {
		rules = append(rules, p.rule(side))
	}
	apart(rules)
	return rules
}

// apart gives the breakers that could not be joined a name of their own.
func apart(rules []placedRule) {
	names := map[string]int{}
	for _, r := range rules {
		names[r.Name]++
	}
	for _, r := range rules {
		for r.Bulkhead == nil && names[r.Name] > 1 {
			names[r.Name]--
			r.Name += " (breaker)"
			names[r.Name]++
		}
	}
}

// rule compiles a policy.
func (p *combPolicy) rule(side Side) placedRule {
	r := &Rule{
		Name:       p.name,
		Side:       side,
		Bulkhead:   p.bulkhead,
		Breaker:    p.breaker,
		RetryAfter: defaultRetryAfter,
		status:     defaultStatus,
	}
	for i := range p.group.entries {
		if e := &p.group.entries[i]; !e.never {
			r.entries = append(r.entries, e.compile(side))
		}
	}
	written := map[string]at{"": p.key}
	maps.Copy(written, p.written)
	return placedRule{r, written}
}

// compile compiles an entry for one side. What the other service is called a client
// knows by the host; a server is told by the caller.
func (e *combEntry) compile(side Side) entry {
	c := entry{
		methods: e.methods,
		text:    e.path,
		headers: e.headers,
		query:   e.queries,
	}
	if side == Client {
		c.host.name = lower(e.service)
	} else {
		c.caller = e.service
	}
	return c
}
