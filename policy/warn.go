package policy

import "strings"

func (p *problems) warnQueue(d *bulkheadDraft, b *BulkheadSettings) {
	switch {
	case d.maxQueue.ok() && b.MaxQueue > 0 && !d.maxWait.bad && b.MaxWait == 0:
		p.warnf(d.maxQueue.at, "%s has no effect without maxWait, since nobody waits; say how long", d.maxQueue.name)
	case d.maxWait.ok() && b.MaxWait > 0 && d.maxQueue.ok() && b.MaxQueue == 0:
		p.warnf(d.maxWait.at, "%s has no effect with maxQueue 0, since nobody may queue; leave one out", d.maxWait.name)
	}
}

func (p *problems) warnMinCalls(d *breakerDraft, minCalls, window int) {
	if d.minCalls.set {
		p.warnf(d.minCalls.at, "%s is %d, more than the window's %d calls can hold; %d is used", d.minCalls.name, minCalls, window, window)
		return
	}
	p.warnf(d.windowCalls.at, "%s is %d, less than the default minCalls of %d; minCalls %d is used", d.windowCalls.name, window, minCalls, window)
}

// warnPath warns of other routers' wildcards, which are plain text here.
func (p *problems) warnPath(f *field[string]) {
	for text := range strings.SplitSeq(f.v, "/") {
		switch {
		case text == "*":
			p.warnf(f.at, "%s has the segment *, which matches only a literal *; for everything below write {rest...}", f.name)
		case strings.HasPrefix(text, ":") && isWildcardName(text[1:]):
			p.warnf(f.at, "%s has the segment %s, which matches only that text; for any segment write {%s}", f.name, text, text[1:])
		}
	}
}

// warnShadowed warns of policies that can never decide anything, because earlier
// ones that match everything have taken all that they could give.
func (p *problems) warnShadowed(s *Set, d *draft) {
	// What an earlier policy takes from every request, on each side, and which
	// policy that is.
	var bulkhead, breaker [len(sideNames)]*Rule
	for i, r := range s.rules {
		var by *Rule
		live := false
		for _, side := range [...]Side{Server, Client} {
			if !r.Side.covers(side) {
				continue
			}
			switch {
			case (r.Bulkhead != nil || r.Exempt) && bulkhead[side] == nil,
				(r.Breaker != nil || r.Exempt) && breaker[side] == nil:
				live = true
			case r.Bulkhead != nil || r.Exempt:
				by = bulkhead[side]
			default:
				by = breaker[side]
			}
			if len(r.entries) > 0 {
				continue
			}
			if r.Bulkhead != nil || r.Exempt {
				bulkhead[side] = or(bulkhead[side], r)
			}
			if r.Breaker != nil || r.Exempt {
				breaker[side] = or(breaker[side], r)
			}
		}
		if !live {
			pd := &d.policies[i]
			p.warnf(pd.name.at, "%sit is never used: policy %s before it matches everything; move it up", pd.label, quote(by.Name))
		}
	}
}

func or(a, b *Rule) *Rule {
	if a != nil {
		return a
	}
	return b
}
