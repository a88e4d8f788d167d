package policy

// MatchNamed is Match as if the policy with that name stood first and matched the
// request. Its pattern is that of its own entry that matches, or empty if none
// does. ok is false if the set has no policy of that name for the request's side.
func (s *Set) MatchNamed(name string, r *Request) (d Decision, ok bool) {
	rule := s.named(name, r.Side)
	if rule == nil {
		return d, false
	}
	if rule.Exempt {
		return Decision{Exempt: rule}, true
	}
	d = s.Match(r)
	d.Exempt = nil
	pattern := rule.patternFor(r)
	if rule.Bulkhead != nil {
		d.Bulkhead, d.BulkheadPattern = rule, pattern
	}
	if rule.Breaker != nil {
		d.Breaker, d.BreakerPattern = rule, pattern
	}
	return d, true
}

// named returns the policy of that name which works on a side, or nil.
func (s *Set) named(name string, side Side) *Rule {
	switch side {
	case Server:
		return s.byName[0][name]
	case Client:
		return s.byName[1][name]
	}
	return nil
}

// patternFor returns the path pattern of the first entry that matches a request.
func (r *Rule) patternFor(req *Request) string {
	var p parts
	p.take(req)
	for i := range r.entries {
		if r.entries[i].match(&p) {
			return r.entries[i].pattern
		}
	}
	return ""
}
