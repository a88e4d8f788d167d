package policy

// MatchNamed is Match as if the policy with that name stood first and matched the
// request. Its pattern is that of its own entry that matches, or empty if none
// does. ok is false if the set has no policy of that name for the request's side.
func (s *Set) MatchNamed(name string, r *Request) (d Decision, ok bool) {
	rules := s.server
	switch r.Side {
	case Server:
	case Client:
		rules = s.client
	default:
		return d, false
	}
	for i, rule := range rules {
		if rule.Name != name {
			continue
		}
		if rule.Exempt {
			return Decision{Exempt: rule}, true
		}
		only := rules[i : i+1]
		alone := (&Set{server: only, client: only}).Match(r)
		d = s.Match(r)
		d.Exempt = nil
		if rule.Bulkhead != nil {
			d.Bulkhead, d.BulkheadPattern = rule, alone.BulkheadPattern
		}
		if rule.Breaker != nil {
			d.Breaker, d.BreakerPattern = rule, alone.BreakerPattern
		}
		return d, true
	}
	return d, false
}
