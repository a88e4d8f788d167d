package watertight

import (
	"context"
	"time"
)

// An EvictEvent tells of a compartment that was dropped at rest: no call was inside,
// and its breaker, if any, was closed. Its key gets a new one when it comes back.
type EvictEvent struct {
	Compartment
	Cause  string        // "idle": at rest for longer than the policies' idle; "bound": longest at rest when a new key found maxCompartments
	Rested time.Duration // since the last call left it
}

// An OverflowEvent tells that new keys of a policy have to share one compartment, since
// there are maxCompartments and none is at rest; or that they no longer have to.
type OverflowEvent struct {
	Compartment      // the shared one
	Began       bool // the first new key has come in there; else the first one since then has got a compartment of its own
	Max         int  // maxCompartments
}

const (
	evictedIdle  = "idle"
	evictedBound = "bound"
)

// A tableChange is what a table has done to find room for a key, in an order with others.
// It is told when the lock of the table has been left; one of the two is set.
type tableChange struct {
	evict    *EvictEvent
	overflow *OverflowEvent
}

// watchTables reports whether some hook wants to hear of tables.
func (h *hookSets) watchTables() bool {
	if h == nil {
		return false
	}
	for i := range h.sets {
		if h.sets[i].Evict != nil || h.sets[i].Overflow != nil {
			return true
		}
	}
	return false
}

func (h *hookSets) tableChanges(ctx context.Context, changes []tableChange) {
	for _, c := range changes {
		if c.evict != nil {
			h.evict(ctx, *c.evict)
		} else {
			h.overflow(ctx, *c.overflow)
		}
	}
}

func (h *hookSets) evict(ctx context.Context, e EvictEvent) {
	for i := range h.sets {
		if f := h.sets[i].Evict; f != nil {
			h.call(i, "Evict", func() { f(ctx, e) })
		}
	}
}

func (h *hookSets) overflow(ctx context.Context, e OverflowEvent) {
	for i := range h.sets {
		if f := h.sets[i].Overflow; f != nil {
			h.call(i, "Overflow", func() { f(ctx, e) })
		}
	}
}
