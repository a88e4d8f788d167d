package watertight

import (
	"context"

	"github.com/watertight-go/watertight/policy"
)

// A request can meet the same Guard twice, for instance by chi's Use and With.
// Without a mark it would need two permits of one compartment and, at a limit
// of one, wait for itself. The mark says which compartments a request is in
// already; those are not entered again.
//
// Only the server side reads and writes it: a gateway's request context flows
// into its client calls, which are calls of their own.

type markKey struct{ g *Guard }

type mark struct {
	entered [2]*compartment
	gated   bool // counted at the gate, so that draining waits for it
	outer   *mark
}

func (m *mark) has(c *compartment) bool {
	for ; m != nil; m = m.outer {
		if m.entered[0] == c || m.entered[1] == c {
			return true
		}
	}
	return false
}

// inside reports whether draining waits for the request already: an exempt call
// further out does not count.
func (m *mark) inside() bool {
	for ; m != nil; m = m.outer {
		if m.gated {
			return true
		}
	}
	return false
}

// hasRule reports whether the request is in a compartment of r already.
func (m *mark) hasRule(r *policy.Rule) bool {
	for ; m != nil; m = m.outer {
		for _, c := range m.entered {
			if c != nil && c.rule == r {
				return true
			}
		}
	}
	return false
}

func (g *Guard) markOf(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{g}).(*mark)
	return m
}

// Wrapped tells the Guard that one more handler admits its requests through
// it. Package middleware calls it. From the second on, admitted server
// requests carry a mark in their context, so that one that passes two such
// handlers is counted once; the mark costs the allocations of a context and a
// copied request, which is why a single handler goes without.
func (g *Guard) Wrapped() { g.wraps.Add(1) }
