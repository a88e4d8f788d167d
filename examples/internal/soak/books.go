package soak

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

var reasons = []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining}

// books are kept three times over: by what callers and handlers saw, by what the hooks
// were told, and by the Guard, whose Snapshot has to say the same.
type books struct {
	// What callers saw. granted are those whose call was let out.
	arrived, granted, left atomic.Int64
	rejected               map[policy.Reason]*atomic.Int64

	// What the servers saw: requests that came, and handlers that ran.
	received, handled atomic.Int64

	// What the hooks were told, by side.
	grants, releases, rejects [2]atomic.Int64
	beyond                    atomic.Int64 // grants at which more permits were out than there are
	trips, leaks              atomic.Int64
}

func newBooks() *books {
	b := &books{rejected: make(map[policy.Reason]*atomic.Int64)}
	for _, r := range reasons {
		b.rejected[r] = new(atomic.Int64)
	}
	return b
}

func side(s policy.Side) int {
	if s == policy.Client {
		return 1
	}
	return 0
}

func (b *books) hooks() watertight.Hooks {
	return watertight.Hooks{
		Grant: func(_ context.Context, e watertight.GrantEvent) context.Context {
			b.grants[side(e.Side)].Add(1)
			if e.InFlight > e.Limit {
				b.beyond.Add(1)
			}
			return nil
		},
		Release: func(_ context.Context, e watertight.ReleaseEvent) {
			b.releases[side(e.Side)].Add(1)
			if e.Leaked {
				b.leaks.Add(1)
			}
		},
		Reject: func(_ context.Context, e watertight.RejectEvent) { b.rejects[side(e.Side)].Add(1) },
		Transition: func(_ context.Context, e watertight.TransitionEvent) {
			if e.To.String() == "open" {
				b.trips.Add(1)
			}
		},
	}
}

// decided books what became of a call that had arrived.
func (b *books) decided(reached bool, err error) {
	var refused *watertight.RejectedError
	switch {
	case reached:
		b.granted.Add(1)
	case errors.As(err, &refused):
		b.rejected[refused.Reason].Add(1)
	default:
		b.left.Add(1)
	}
}

// look checks what has to hold at every moment, with everybody at it: of the calls
// that arrived no more are undecided than there are callers, and no permit is out that
// was not granted or beyond the limit.
func (b *books) look(g *watertight.Guard, callers int) error {
	// What comes later in a call's life is read first, so that it cannot be ahead.
	var problems []string
	for _, s := range []policy.Side{policy.Server, policy.Client} {
		released := b.releases[side(s)].Load()
		if granted := b.grants[side(s)].Load(); released > granted {
			problems = append(problems, fmt.Sprintf("%s: %d permits came back, %d were granted", s, released, granted))
		}
	}
	atFirst := b.arrived.Load()
	decided := b.granted.Load() + b.left.Load()
	for _, n := range b.rejected {
		decided += n.Load()
	}
	if arrived := b.arrived.Load(); arrived < decided {
		problems = append(problems, fmt.Sprintf("%d calls were decided, %d arrived", decided, arrived))
	}
	if undecided := atFirst - decided; undecided > int64(callers) {
		problems = append(problems, fmt.Sprintf("%d calls are undecided, and there are %d callers", undecided, callers))
	}
	if n := b.beyond.Load(); n > 0 {
		problems = append(problems, fmt.Sprintf("%d permits were granted beyond the limit", n))
	}
	for _, c := range g.Snapshot().Compartments {
		if c.InFlight < 0 || c.Bulkhead != nil && (c.Bulkhead.InFlight < 0 || c.Bulkhead.Queued < 0 || c.Bulkhead.Queued > callers) {
			problems = append(problems, fmt.Sprintf("%s %s: %d in flight, bulkhead %+v", c.Side, c.Key, c.InFlight, c.Bulkhead))
		}
	}
	return problemsError(problems)
}

// close checks that everything adds up, with everybody at rest.
func (b *books) close(g *watertight.Guard) error {
	// Handlers may still be at it whose caller has left, bodies that were dropped wait
	// for the garbage collector, abandoned ones for the end of their context.
	var problems []string
	for end := time.Now().Add(30 * time.Second); ; {
		if problems = b.imbalances(g); len(problems) == 0 || time.Now().After(end) {
			return problemsError(problems)
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *books) imbalances(g *watertight.Guard) (problems []string) {
	same := func(what string, a, b int64) {
		if a != b {
			problems = append(problems, fmt.Sprintf("%s: %d and %d", what, a, b))
		}
	}
	var granted, left, inside, queued, refused [2]int64
	byReason := make(map[policy.Reason]int64)
	for _, c := range g.Snapshot().Compartments {
		s := 0
		if c.Side == policy.Client.String() {
			s = 1
		}
		granted[s] += int64(c.Granted)
		left[s] += int64(c.Left)
		inside[s] += c.InFlight
		if c.Bulkhead != nil {
			queued[s] += int64(c.Bulkhead.Queued)
		}
		for _, r := range reasons {
			n := int64(c.Rejected[r.String()])
			refused[s] += n
			if s == 1 {
				byReason[r] += n
			}
		}
	}
	sum := b.granted.Load() + b.left.Load()
	for _, r := range reasons {
		n := b.rejected[r].Load()
		sum += n
		same("refused as "+r.String()+", as callers and Guard count", n, byReason[r])
	}
	same("calls arrived, and granted + rejected + left", b.arrived.Load(), sum)
	same("calls granted, as callers and Guard count", b.granted.Load(), granted[1])
	same("callers that left, as callers and Guard count", b.left.Load(), left[1])
	same("requests received, and granted + rejected + left", b.received.Load(), granted[0]+refused[0]+left[0])
	same("handlers run, and requests granted", b.handled.Load(), granted[0])
	for s, name := range []string{"server", "client"} {
		same(name+": granted, as Guard and hooks count", granted[s], b.grants[s].Load())
		same(name+": granted, and given back", b.grants[s].Load(), b.releases[s].Load())
		same(name+": rejected, as Guard and hooks count", refused[s], b.rejects[s].Load())
		same(name+": in flight, and nobody", inside[s], 0)
		same(name+": queued, and nobody", queued[s], 0)
	}
	same("granted beyond the limit, and never", b.beyond.Load(), 0)
	return problems
}

func problemsError(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New("the books do not balance:\n  " + strings.Join(problems, "\n  "))
}
