package policy

import (
	"strconv"
	"strings"
	"time"
)

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

// warnClientOnly warns of what a breaker on the server side does not do.
func (p *problems) warnClientOnly(d *breakerDraft) {
	if d.settle.ok() && d.settle.v == SettleBody {
		p.warnf(d.settle.at, "%s is body, which has no effect on a server: a call is settled when its handler returns; leave it out", d.settle.name)
	}
	if d.heed.ok() && d.heed.v > 0 {
		p.warnf(d.heed.at, "%s has no effect on a server, which has no upstream to ask; leave it out", d.heed.name)
	}
}

// warnPath warns of other routers' wildcards, which are plain text here.
func (p *problems) warnPath(f *field[string]) {
	if !f.ok() {
		return
	}
	for text := range strings.SplitSeq(f.v, "/") {
		switch {
		case text == "*":
			p.warnf(f.at, "%s has the segment *, which matches only a literal *; for everything below write {rest...}", f.name)
		case strings.HasPrefix(text, ":") && isWildcardName(text[1:]):
			p.warnf(f.at, "%s has the segment %s, which matches only that text; for any segment write {%s}", f.name, text, text[1:])
		}
	}
}

// warnShadowed warns of policies that never decide anything, because earlier ones
// have taken all that they could give, and of those of which that is true of one part.
// way is the way to come before them.
func (p *problems) warnShadowed(s *Set, way string) {
	// The first policy that takes a part of every request, by side.
	var taken [len(sideNames)][len(partNames)]*Rule
	for i, r := range s.rules {
		var used [len(partNames)]bool
		var by [len(partNames)]*Rule
		for _, side := range [...]Side{Server, Client} {
			for part := range part(len(partNames)) {
				switch first := &taken[side][part]; {
				case !r.has(part) || !r.Side.covers(side):
				case *first != nil:
					by[part] = later(by[part], *first)
				default:
					used[part] = true
					if len(r.entries) == 0 {
						*first = r
					}
				}
			}
		}
		label := policyLabel(r.Name, i)
		if used == [len(partNames)]bool{} {
			p.warnf(s.written[i][""], "%sit is never used: from policy %s on nothing is left for it to decide; %s", label, quote(later(by[partBulkhead], by[partBreaker]).Name), way)
			continue
		}
		if by := s.coverOf(r, partBulkhead, partBreaker); by != nil {
			p.warnf(s.written[i][""], "%sit is never used: policy %s%s takes all that it matches; %s, or leave it out", label, quote(by.Name), s.inLine(by), way)
			continue
		}
		for part := range part(len(partNames)) {
			by := by[part]
			if used[part] {
				by = s.coverOf(r, part)
			}
			if by != nil {
				p.warnf(s.written[i][""], "%sits %s is never used: policy %s%s comes first for all that it matches; %s, or leave the %[2]s out", label, partNames[part], quote(by.Name), s.inLine(by), way)
			}
		}
	}
}

// later returns the one of two rules that stands later; either may be nil.
func later(a, b *Rule) *Rule {
	if a == nil || b != nil && a.Index < b.Index {
		return b
	}
	return a
}

// inLine says where a policy is, if that is known.
func (s *Set) inLine(r *Rule) string {
	if line, _ := s.Where(r, ""); line > 0 {
		return " in line " + strconv.Itoa(line)
	}
	return ""
}

// usualDeadline is how long most callers wait for an answer at most, by the defaults of
// common clients and proxies.
const usualDeadline = 30 * time.Second

// warnLongWait warns of a wait that its caller will hardly see the end of.
func (p *problems) warnLongWait(at at, name string, wait time.Duration) {
	if wait > usualDeadline {
		p.warnf(at, "%s is %v, but most callers have given up by then: their deadline is %v or less; write a shorter one", name, wait, usualDeadline)
	}
}
