package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watertight-go/watertight"
)

// A tally listens to a Guard and keeps what its snapshot does not have: how many
// calls had to wait, how long they were inside, and what the breakers did.
type tally struct {
	mu          sync.Mutex // guards the fields below
	waited      map[watertight.Compartment]int
	inside      map[watertight.Compartment][]time.Duration
	transitions []watertight.TransitionEvent
}

func newTally() *tally {
	return &tally{
		waited: make(map[watertight.Compartment]int),
		inside: make(map[watertight.Compartment][]time.Duration),
	}
}

type grantedAt struct{ *tally }

func (t *tally) hooks() watertight.Hooks {
	return watertight.Hooks{
		Wait: func(_ context.Context, e watertight.WaitEvent) {
			if e.Result == "granted" {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.waited[e.Compartment]++
			}
		},
		Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
			return context.WithValue(ctx, grantedAt{t}, time.Now())
		},
		Release: func(ctx context.Context, e watertight.ReleaseEvent) {
			if at, ok := ctx.Value(grantedAt{t}).(time.Time); ok {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.inside[e.Compartment] = append(t.inside[e.Compartment], time.Since(at))
			}
		},
		Transition: func(_ context.Context, e watertight.TransitionEvent) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.transitions = append(t.transitions, e)
		},
	}
}

// of returns what was tallied for a compartment.
func (t *tally) of(c watertight.CompartmentSnapshot) (waited int, p50, p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, n := range t.waited {
		if k.Policy == c.Policy && k.Side.String() == c.Side && k.Key == c.Key {
			waited = n
		}
	}
	for k, ds := range t.inside {
		if k.Policy == c.Policy && k.Side.String() == c.Side && k.Key == c.Key {
			p50, p99 = quantile(ds, 0.50), quantile(ds, 0.99)
		}
	}
	return waited, p50, p99
}

// breakers returns the transitions so far.
func (t *tally) breakers() []watertight.TransitionEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.transitions)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
