package policy

import "slices"

// Keys returns every key that a policy file may have.
func Keys() (keys []string) {
	for _, s := range scopes {
		keys = append(keys, s.keys...)
	}
	return keys
}

// MatchLinear is Set.Match without the index: every policy is asked, in order.
func MatchLinear(s *Set, r *Request) (d Decision) {
	var p parts
	p.take(r)
	for _, rule := range s.rules {
		if !rule.Side.covers(r.Side) {
			continue
		}
		pattern, ok := "", len(rule.entries) == 0
		for i := range rule.entries {
			if e := &rule.entries[i]; !ok && e.match(&p) {
				pattern, ok = e.pattern, true
			}
		}
		switch {
		case !ok:
			continue
		case rule.Exempt:
			if d.Bulkhead == nil && d.Breaker == nil {
				d.Exempt = rule
			}
			return d
		}
		if rule.Bulkhead != nil && d.Bulkhead == nil {
			d.Bulkhead, d.BulkheadPattern = rule, pattern
		}
		if rule.Breaker != nil && d.Breaker == nil {
			d.Breaker, d.BreakerPattern = rule, pattern
		}
	}
	return d
}

// ServiceCombKeys returns every kind and key that a ServiceComb file may have.
func ServiceCombKeys() []string {
	return slices.Concat(combKinds, groupKeys, groupIdle, combEntryKeys, combEntryIdle, combOperators, combBulkheadKeys, combBreakerKeys)
}
