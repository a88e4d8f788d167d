package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// A holding is a row of the table that shows what things occupy that have been
// used once and are idle.
type holding struct {
	name   string
	goal   int64 // B
	owners []owner
}

// An owner makes n of its things.
type owner struct {
	name string
	make func(n int) any
}

func holdings() []holding {
	gatesHeld := holding{name: "memory held, idle: bulkhead", goal: 128}
	for _, g := range gates {
		gatesHeld.owners = append(gatesHeld.owners, owner{g.name, many(func() gate {
			g := g.open(10, 10)
			g.pass(context.Background(), 1)
			return g
		})})
	}
	circuitsHeld := holding{name: "memory held, idle: breaker", goal: 512}
	for _, c := range circuits {
		circuitsHeld.owners = append(circuitsHeld.owners, owner{c.name, many(func() circuit {
			c := c.open()
			c.succeed(context.Background(), 1)
			return c
		})})
	}
	return []holding{gatesHeld, circuitsHeld, {
		name: "memory held, idle: all there is for one more key, bulkhead and breaker",
		goal: 1024,
		owners: []owner{
			{"watertight, per host", hostCompartments},
			{"watertight, per route", routeCompartments},
			{"failsafe-go (no slow-call rate), in a map", failsafePairs},
		},
	}}
}

func many[T any](open func() T) func(n int) any {
	return func(n int) any {
		all := make([]T, n)
		for i := range all {
			all[i] = open()
		}
		return all
	}
}

// The compartments of a guard, with their keys and their share of its table.

func hostCompartments(n int) any {
	return compartments(n, func(i int) policy.Request {
		return policy.Request{Side: policy.Client, Method: "GET", Scheme: "http", Host: host(i), EscapedPath: "/"}
	})
}

func routeCompartments(n int) any {
	return compartments(n, func(i int) policy.Request {
		return policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/", Route: fmt.Sprintf("/things%06d/{id}", i), RouteKnown: true}
	})
}

func host(i int) string { return fmt.Sprintf("shard%06d.internal", i) }

func compartments(n int, to func(i int) policy.Request) *watertight.Guard {
	g := guard(withBulkhead + ", " + withBreaker)
	for i := range n {
		r := to(i)
		call, err := g.Admit(context.Background(), &r)
		must(err == nil)
		call.SettleStatus(200)
		call.Release()
	}
	must(len(g.Snapshot().Compartments) >= n)
	return g
}

func failsafePairs(n int) any {
	type pair struct {
		gate    gate
		circuit circuit
	}
	all := make(map[string]pair)
	for i := range n {
		p := pair{openFailsafe(10, 10), openFailsafeCount()}
		p.gate.pass(context.Background(), 1)
		p.circuit.succeed(context.Background(), 1)
		all[host(i)] = p
	}
	return all
}

func (h holding) print(out io.Writer) {
	heading(out, h.name, []string{fmt.Sprintf("<= %d B", h.goal)})
	w := table(out)
	for i, o := range h.owners {
		held, verdict := o.measure(), ""
		if i == 0 {
			verdict = h.verdict(held)
		}
		fmt.Fprintf(w, "%s\t%d B\t  %s\n", pad(o.name), held, verdict)
	}
	flush(w)
}

func (h holding) verdict(held int64) string {
	if held > h.goal {
		return fmt.Sprintf("missed by %d B", held-h.goal)
	}
	return "met"
}

// measure returns the bytes that one takes. There are so many of them that what
// the runtime does on the side is nothing beside them.
func (o owner) measure() int64 {
	const n = 1 << 14
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := o.make(n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	return (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
}
