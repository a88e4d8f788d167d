package watertight

import (
	"context"
	"sync/atomic"

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

// A mark is one call that the request is inside of. The context may outlive the
// call, in work that its handler left behind: a mark whose call was released
// says nothing any more.
type mark struct {
	entered  [2]*compartment // by role
	gated    bool            // counted at the gate, so that draining waits for it
	released atomic.Bool     // by the call's owner, once; read by whoever has the context
	outer    *mark
}

// A role is what a call enters a compartment for. It may want both of one, and
// have got only one of them further out.
type role int

const (
	forPermit  role = iota // its bulkhead, or its count where it has none
	forOutcome             // its breaker
)

// current returns the first of m and those outside of it whose call was not
// released.
func (m *mark) current() *mark {
	for m != nil && m.released.Load() {
		m = m.outer
	}
	return m
}

func (m *mark) has(as role, c *compartment) bool {
	for m = m.current(); m != nil; m = m.outer.current() {
		if m.entered[as] == c {
			return true
		}
	}
	return false
}

// inside reports whether draining waits for the request already: an exempt call
// further out does not count.
func (m *mark) inside() bool {
	for m = m.current(); m != nil; m = m.outer.current() {
		if m.gated {
			return true
		}
	}
	return false
}

// hasRule reports whether the request is in a compartment of r already, or of what
// r was before a reload.
func (m *mark) hasRule(as role, r *policy.Rule) bool {
	for m = m.current(); m != nil; m = m.outer.current() {
		if c := m.entered[as]; c != nil && c.Policy == r.Name {
			return true
		}
	}
	return false
}

// trust leaves out of d, the decision of a handler that knows no route, what it
// cannot judge: which compartment of a per: route policy is the request's. If the
// request is in one of that policy's already, a handler further out could.
func (m *mark) trust(req *policy.Request, d *policy.Decision) {
	if r := d.Breaker; r != nil && r.PerOn(req.Side) == policy.PerRoute && m.hasRule(forOutcome, r) {
		d.Breaker = nil
	}
	if r := d.Bulkhead; r != nil && r.PerOn(req.Side) == policy.PerRoute && m.hasRule(forPermit, r) {
		d.Bulkhead = nil
	}
}

// dropEntered leaves to the calls further out what they have entered.
func (c *Call) dropEntered() {
	if c.breaker.taken() && c.outer.has(forOutcome, c.breaker.compartment) {
		c.leaveBreaker()
	}
	if c.bulkhead.taken() && c.outer.has(forPermit, c.bulkhead.compartment) {
		c.leaveBulkhead()
	}
}

func (c *Call) leaveBreaker() {
	if c.breaker.compartment != c.bulkhead.compartment { // there is one pin for both
		c.breaker.unpin(0)
	}
	c.breaker = seat{}
}

func (c *Call) leaveBulkhead() {
	if c.bulkhead.compartment != c.breaker.compartment {
		c.bulkhead.unpin(0)
	}
	c.bulkhead = seat{}
}

// markOf returns the mark of the innermost call that a request with this context
// is inside of, nil if it is in none.
func (g *Guard) markOf(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{g}).(*mark)
	return m.current()
}

// Wrapped tells the Guard that one more handler admits its requests through
// it. Package middleware calls it. From the second on, admitted server
// requests carry a mark in their context, so that one that passes two such
// handlers is counted once, for as long as the outer one's call is not
// released; the mark costs the allocations of a context and a copied request,
// which is why a single handler goes without.
func (g *Guard) Wrapped() { g.wraps.Add(1) }
