package watertight

import (
	"context"
	"sync/atomic"

	"github.com/watertight-go/watertight/policy"
)

// A gate counts the calls inside one side and, once shut, tells when the last
// has left.
//
// enter counts first and looks at shut second; shutting writes shut first and
// looks at the count second. Whichever comes first in the order of these
// atomics, either the newcomer sees the gate shut or shutting sees the
// newcomer, so nobody slips in after empty was closed.
type gate struct {
	inside atomic.Int64
	shut   atomic.Bool
	gone   atomic.Bool   // empty was closed
	empty  chan struct{} // closed when nobody is inside a shut gate
}

func (g *gate) init() { g.empty = make(chan struct{}) }

// enter reports whether the gate is open; leave must follow if it is.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if g.shut.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.inside.Add(-1) == 0 && g.shut.Load() {
		g.markEmpty()
	}
}

func (g *gate) close() {
	g.shut.Store(true)
	if g.inside.Load() == 0 {
		g.markEmpty()
	}
}

func (g *gate) markEmpty() {
	if g.gone.CompareAndSwap(false, true) {
		close(g.empty)
	}
}

// Drain shuts the Guard down in good order, and for good. From the moment it
// is called [Guard.Ready] is false, and on the server side queued and new
// requests are refused as draining (503), those that no policy matches
// included; exempt ones still pass. Keep the listener open meanwhile, so that
// load balancers hear the refusals, and call http.Server.Shutdown afterwards.
//
// Calls that are inside go on, and so does the client side, which they need.
// When the last request has left, the client side is shut as well and Drain
// waits for its calls, response bodies included. It returns nil when nothing
// is in flight, or ctx.Err() if ctx ends first; the Guard stays shut either
// way, and Drain may be called again to wait longer.
func (g *Guard) Drain(ctx context.Context) error {
	g.draining.Store(true)
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		sd := &g.sides[sideIndex(s)]
		sd.gate.close()
		for _, p := range sd.places {
			if p.table != nil {
				p.table.close()
			} else if p.fixed != nil && p.fixed.bulkhead != nil {
				p.fixed.bulkhead.Close()
			}
		}
		select {
		case <-sd.gate.empty:
		default:
			select {
			case <-sd.gate.empty:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Ready reports whether new calls are taken: true until [Guard.Drain] is
// called. It is what a readiness probe should answer.
func (g *Guard) Ready() bool { return !g.draining.Load() }
