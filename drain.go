package watertight

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/watertight-go/watertight/policy"
)

// A gate counts the calls inside one side and, once shut, tells when the last
// has left.
//
// The count and whether the gate is shut are one atomic, so that leave learns
// both of the same instant. As two they would betray a call that enters between
// them: its predecessor leaves and counts 0, it enters, the gate is shut, and
// then the predecessor looks, finds the gate shut, and takes it for empty.
//
// A call that finds the gate shut counts until it has turned round. That can
// make the last one inside leave at a count of 1, but then the other counts 0
// when it turns. Once 0 was reached shut, nobody is inside ever after.
type gate struct {
	state atomic.Int64  // how many are inside, plus shut once it is shut
	gone  atomic.Bool   // empty was closed
	empty chan struct{} // closed when nobody is inside a shut gate
}

// shut leaves the lower bits to the count, and makes the state negative.
const shut = math.MinInt64

func (g *gate) init() { g.empty = make(chan struct{}) }

// enter reports whether the gate is open; leave must follow if it is.
func (g *gate) enter() bool {
	if g.state.Add(1) < 0 {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.state.Add(-1) == shut {
		g.markEmpty()
	}
}

func (g *gate) close() {
	if g.state.Or(shut)&^shut == 0 {
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
// When the last request has left, the pools are closed and run what they have
// accepted; then the client side is shut as well and Drain waits for its calls,
// response bodies included. It returns nil when nothing
// but exempt calls is in flight, or ctx.Err() if ctx ends first; the Guard stays
// shut either way, and Drain may be called again to wait longer. It may be
// called by several goroutines at once, but a handler or hook that waits for it
// waits for itself.
func (g *Guard) Drain(ctx context.Context) error {
	g.draining.Store(true)
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		if s == policy.Client {
			if err := g.pools.drain(ctx); err != nil {
				return err
			}
		}
		sd := &g.sides[sideIndex(s)]
		sd.gate.close()
		g.closeSide(s)
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
