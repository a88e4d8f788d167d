package policy

import (
	"math"
	"slices"
	"strings"
)

// An index finds the policies of one side that a request is about, without a look
// at the others.
//
// It knows of each entry of each policy where a request must lead to have a chance
// of matching it: to a host, there to a path, there to a header's value or a method; or,
// if the entry has a route, to that. A request follows all ways that are open to it, of
// which there are few: its host's and those of the wildcards above it, and there its
// path's. What it meets at the end of a way is held against the best found so far, so the
// order of the ways makes no difference.
//
// At the end of a way the value of a header may still tell apart the entries there. What
// no way can tell, such as a query, is left to [entry.match]. The entries with nothing but
// that are asked one by one, in their order.
type index struct {
	candidates []candidate  // in order of precedence
	routes     table[group] // by the path of the pattern
	anyHost    tree
	hosts      map[string]*ports
	below      map[string]*ports // "*.internal" is under internal
	labels     int               // the most labels of a name in below
}

// A candidate is one entry of a policy, or the policy itself if it has none and so
// matches everything. Its number is its place in the index.
type candidate struct {
	rule     *Rule
	entry    *entry
	bulkhead bool // it ends the search for a bulkhead
	breaker  bool // it ends the search for a breaker
	decided  bool // whoever comes to it need not be asked anything more
}

// ports are the entries for a host, by the port that they ask for.
type ports struct {
	any    *tree
	number table[tree]
}

// A tree holds entries by the path that they ask for.
type tree struct {
	other    group  // whatever the path
	segments *node  // by pattern
	start    *radix // by exact, or by prefix
	end      *radix // by suffix
}

// A group is entries to which the same ways lead, up to a header or the method.
type group struct {
	any     []int32 // ascending
	methods table[[]int32]
	headers table[headerWay]
}

// A headerWay leads to the entries that ask for one value of a header.
type headerWay struct {
	values table[[]int32]
	all    []int32 // ascending
}

func (g *group) add(n int32, e *entry) {
	if name, value, ok := e.exactHeader(); ok {
		h := g.headers.make(name)
		h.all = append(h.all, n)
		numbers := h.values.make(value)
		*numbers = append(*numbers, n)
		return
	}
	methods := e.methods
	if len(methods) == 0 {
		g.any = append(g.any, n)
		return
	}
	for _, m := range methods {
		numbers := g.methods.make(m)
		// A method may be listed twice, but an entry is asked once.
		if have := *numbers; len(have) == 0 || have[len(have)-1] != n {
			*numbers = append(have, n)
		}
	}
}

// exactHeader returns the first header of which the entry wants one value alone.
func (e *entry) exactHeader() (name, value string, ok bool) {
	for _, h := range e.headers {
		for _, o := range h.condition {
			if o.kind == operatorExact {
				return h.name, o.text, true
			}
		}
	}
	return "", "", false
}

// add puts a policy behind all others.
func (ix *index) add(r *Rule) {
	c := candidate{
		rule:     r,
		bulkhead: r.Bulkhead != nil || r.Exempt,
		breaker:  r.Breaker != nil || r.Exempt,
	}
	if len(r.entries) == 0 {
		c.decided = true
		ix.anyHost.other.add(int32(len(ix.candidates)), &entry{})
		ix.candidates = append(ix.candidates, c)
	}
	for i := range r.entries {
		e := &r.entries[i]
		g, decided := ix.place(e)
		c.entry = e
		c.decided = decided && len(e.headers) == 0 && len(e.query) == 0 && len(e.not) == 0 && e.caller == ""
		g.add(int32(len(ix.candidates)), e)
		ix.candidates = append(ix.candidates, c)
	}
}

// place returns where an entry belongs, and whether its host, path and route are
// right for every request that comes there.
func (ix *index) place(e *entry) (g *group, decided bool) {
	if e.route.path != "" {
		return ix.routes.make(e.route.path), false
	}
	t := ix.treeOf(&e.host)
	if e.pattern != "" {
		if t.segments == nil {
			t.segments = new(node)
		}
		return t.segments.place(&e.path), len(e.text) == 0
	}
	at := func(kind operatorKind) int {
		return slices.IndexFunc(e.text, func(o operator) bool { return o.kind == kind })
	}
	alone := len(e.text) <= 1
	if i := at(operatorExact); i >= 0 {
		return &fromStart.place(&t.start, e.text[i].text).whole, alone
	}
	if i := at(operatorPrefix); i >= 0 {
		return &fromStart.place(&t.start, e.text[i].text).part, alone
	}
	if i := at(operatorSuffix); i >= 0 {
		return &fromEnd.place(&t.end, e.text[i].text).part, alone
	}
	return &t.other, len(e.text) == 0
}

func (ix *index) treeOf(h *hostPattern) *tree {
	if h.name == "" {
		return &ix.anyHost
	}
	names := &ix.hosts
	if h.below {
		names = &ix.below
		ix.labels = max(ix.labels, 1+strings.Count(h.name, "."))
	}
	if *names == nil {
		*names = make(map[string]*ports)
	}
	p := (*names)[h.name]
	if p == nil {
		p = new(ports)
		(*names)[h.name] = p
	}
	if h.port == "" {
		if p.any == nil {
			p.any = new(tree)
		}
		return p.any
	}
	return p.number.make(h.port)
}

// nobody is the number of no candidate. It is higher than any other.
const nobody = math.MaxInt32

// A search is the way of one request through an index.
type search struct {
	*index
	parts
	bulkhead, breaker int32 // the candidates that end these searches; nobody: none so far
}

// find returns the candidates at which the searches of a request end, nil where
// none does.
func (ix *index) find(r *Request) (bulkhead, breaker *candidate) {
	if len(ix.candidates) == 0 {
		return nil, nil
	}
	s := search{index: ix, bulkhead: nobody, breaker: nobody}
	s.take(r)
	if s.hasRoute && !ix.routes.isEmpty() {
		s.askGroup(ix.routes.get(s.routeParts().path))
	}
	s.followPath(&ix.anyHost)
	if ix.hosts != nil || ix.below != nil {
		s.followHost()
	}
	if s.bulkhead != nobody {
		bulkhead = &ix.candidates[s.bulkhead]
	}
	if s.breaker != nobody {
		breaker = &ix.candidates[s.breaker]
	}
	return bulkhead, breaker
}

func (c *candidate) pattern() string {
	if c.entry == nil {
		return ""
	}
	return c.entry.pattern
}

// followHost follows the ways that begin with a host.
func (s *search) followHost() {
	// No name that an entry has is longer; of a longer one the end can be below one.
	name, _ := s.hostParts()
	cut := max(0, len(name)-maxHostName-1)
	var buf [maxHostName + 1]byte
	lower := appendLower(buf[:0], name[cut:], len(buf))
	s.followPort(s.hosts[string(lower)])
	if isAddress(name) {
		return
	}
	end := len(lower)
	for range s.labels {
		for end--; end >= 0 && lower[end] != '.'; {
			end--
		}
		if end+cut < 1 || end < 0 {
			return // nothing is in front of the dot
		}
		s.followPort(s.below[string(lower[end+1:])])
	}
}

func (s *search) followPort(p *ports) {
	if p == nil {
		return
	}
	s.followPath(p.any)
	switch _, port := s.hostParts(); {
	case port != "":
		s.followPath(p.number.get(port))
	case s.scheme == "": // may be either
		s.followPath(p.number.get("80"))
		s.followPath(p.number.get("443"))
	default:
		s.followPath(p.number.get(defaultPort(s.scheme)))
	}
}

func (s *search) followPath(t *tree) {
	if t == nil {
		return
	}
	s.askGroup(&t.other)
	if t.segments != nil && s.path[0] == '/' { // "*", the path of OPTIONS *, is in no subtree
		s.followSegments(t.segments, s.path)
	}
	if t.start != nil {
		s.followText(t.start, fromStart)
	}
	if t.end != nil {
		s.followText(t.end, fromEnd)
	}
}

func (s *search) askGroup(g *group) {
	if g == nil {
		return
	}
	s.ask(g.any)
	if numbers := g.methods.get(s.method); numbers != nil {
		s.ask(*numbers)
	}
	for _, h := range g.headers.few {
		h.value.each(s.header[h.key], s.ask)
	}
	if g.headers.many != nil { // a request names fewer
		for name, values := range s.header {
			if h := g.headers.many[name]; h != nil {
				h.each(values, s.ask)
			}
		}
	}
}

// each has the entries asked that want one of the values. Whoever repeats a value has all
// of them asked, once, rather than some as often as it is repeated.
func (h *headerWay) each(values []string, ask func(numbers []int32)) {
	left := len(h.all)
	for _, v := range values {
		numbers := h.values.get(v)
		if numbers == nil {
			continue
		}
		if left -= len(*numbers); left < 0 {
			ask(h.all)
			return
		}
		ask(*numbers)
	}
}

// ask holds candidates against the best so far.
func (s *search) ask(numbers []int32) {
	for _, n := range numbers {
		if n > s.bulkhead && n > s.breaker {
			return // as are all that follow
		}
		c := &s.candidates[n]
		bulkhead, breaker := c.bulkhead && n < s.bulkhead, c.breaker && n < s.breaker
		if !bulkhead && !breaker || !c.decided && !c.entry.match(&s.parts) {
			continue
		}
		if bulkhead {
			s.bulkhead = n
		}
		if breaker {
			s.breaker = n
		}
	}
}
