package watertight

import (
	"context"

	"github.com/watertight-go/watertight/policy"
)

// A LimitChangeEvent tells of a bulkhead's new limit.
type LimitChangeEvent struct {
	Compartment        // without a key: all compartments that the policy has on that side
	From, To    int    // permits; 0: no bulkhead
	Cause       string // "reload"
}

const changedByReload = "reload"

// limitChanges returns the limits that change from one generation to the next: those
// of policies that stay, one for each side.
func limitChanges(old, next *generation) (changes []LimitChangeEvent) {
	for i, s := range []policy.Side{policy.Server, policy.Client} {
		was := make(map[place]*policy.Rule)
		for j, p := range old.places[i] {
			was[p] = old.set.Rules()[j]
		}
		for j, p := range next.places[i] {
			r := next.set.Rules()[j]
			if p.empty() || was[p] == nil {
				continue
			}
			if from, to := limitOf(was[p]), limitOf(r); from != to {
				changes = append(changes, LimitChangeEvent{
					Compartment: Compartment{Policy: r.Name, Side: s, Per: r.PerOn(s)},
					From:        from,
					To:          to,
					Cause:       changedByReload,
				})
			}
		}
	}
	return changes
}

func limitOf(r *policy.Rule) int {
	if r.Bulkhead == nil {
		return 0
	}
	return r.Bulkhead.MaxConcurrent
}

func (h *hookSets) limitChange(ctx context.Context, e LimitChangeEvent) {
	for i := range h.sets {
		if f := h.sets[i].LimitChange; f != nil {
			h.call(i, "LimitChange", func() { f(ctx, e) })
		}
	}
}
