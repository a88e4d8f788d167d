package soak

import (
	"fmt"
	"time"
)

// progress prints a line.
func (s *soak) progress() {
	b := s.books
	var refused int64
	for _, n := range b.rejected {
		refused += n.Load()
	}
	var inside, queued int
	for _, c := range s.guard.Snapshot().Compartments {
		if c.Bulkhead != nil {
			inside += c.Bulkhead.InFlight
			queued += c.Bulkhead.Queued
		}
	}
	fmt.Fprintf(s.out, "%4.0fs  arrived %d, granted %d, rejected %d, left %d, tripped %d; now %d in flight, %d queued\n",
		time.Since(s.begun).Seconds(), b.arrived.Load(), b.granted.Load(), refused, b.left.Load(), b.trips.Load(), inside, queued)
}

// summary tells what happened, and whether it added up.
func (s *soak) summary(err error) {
	b := s.books
	fmt.Fprintf(s.out, "\n%s: the limits changed %d times, an upstream its mood %d times, the books were closed %d times\n",
		time.Since(s.begun).Round(time.Second), s.reloads, s.moods, s.settlements)
	fmt.Fprintf(s.out, "  calls     arrived %d = granted %d", b.arrived.Load(), b.granted.Load())
	for _, r := range reasons {
		fmt.Fprintf(s.out, " + %s %d", r, b.rejected[r].Load())
	}
	fmt.Fprintf(s.out, " + left %d\n", b.left.Load())
	fmt.Fprintf(s.out, "  permits   granted %d = given back %d, of these by the garbage collector %d\n",
		b.grants[1].Load(), b.releases[1].Load(), b.leaks.Load())
	fmt.Fprintf(s.out, "  requests  received %d, handled %d; permits granted %d = given back %d\n",
		b.received.Load(), b.handled.Load(), b.grants[0].Load(), b.releases[0].Load())
	fmt.Fprintf(s.out, "  breakers  tripped %d times\n", b.trips.Load())
	if err == nil {
		fmt.Fprintln(s.out, "everything balances, nothing is left")
	}
}
