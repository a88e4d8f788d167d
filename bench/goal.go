package main

import (
	"fmt"
	"math"
)

// A goal is a bound on a figure of ours.
type goal struct {
	text string
	unit string

	// excess is by how much ours is above the bound, round by round. all are the
	// lines of the row, raw first.
	excess func(ours line, all []line) []float64
}

// below makes a goal of a bound on the time, which may differ from round to round.
func below(text string, bound func(all []line, round int) float64) goal {
	return goal{text, " ns", func(ours line, all []line) []float64 {
		by := make([]float64, len(ours.nanos))
		for i, nanos := range ours.nanos {
			by[i] = nanos - bound(all, i)
		}
		return by
	}}
}

// ratio allows so many times the raw operation.
func ratio(n float64) goal {
	return goal{fmt.Sprintf("<= %gx", n), "x", func(ours line, all []line) []float64 {
		return rounds(ours.nanos, all[0].nanos, func(a, b float64) float64 { return a/b - n })
	}}
}

// ratioAndRead allows so many times the raw operation and one clock read.
func ratioAndRead(n float64) goal {
	return below(fmt.Sprintf("<= %gx and a clock read", n), func(all []line, i int) float64 {
		return n*all[0].nanos[i] + find(all, clockRead).nanos[i]
	})
}

// twoReads allows two clock reads on top of another line.
func twoReads(without string) goal {
	return below("<= the line without clock reads and two of them", func(all []line, i int) float64 {
		return find(all, without).nanos[i] + 2*find(all, clockRead).nanos[i]
	})
}

// extra allows so many nanoseconds on top of the raw operation.
func extra(nanos float64) goal {
	return below(fmt.Sprintf("<= raw + %g ns", nanos), func(all []line, i int) float64 {
		return all[0].nanos[i] + nanos
	})
}

// extraOver allows so many nanoseconds on top of another line.
func extraOver(than string, nanos float64) goal {
	return below(fmt.Sprintf("<= %s + %g ns", than, nanos), func(all []line, i int) float64 {
		return find(all, than).nanos[i] + nanos
	})
}

// timesOf allows so many times another line.
func timesOf(n float64, than string) goal {
	return below(fmt.Sprintf("<= %gx %s", n, than), func(all []line, i int) float64 {
		return n * find(all, than).nanos[i]
	})
}

// addsTimes allows to add to one line so many times what another adds to raw.
func addsTimes(n float64, to, other string) goal {
	return below(fmt.Sprintf("adds <= %gx %s", n, other), func(all []line, i int) float64 {
		return find(all, to).nanos[i] + n*(find(all, other).nanos[i]-all[0].nanos[i])
	})
}

// faster than a rival.
func faster(than string) goal {
	return below("below "+than, func(all []line, i int) float64 { return find(all, than).nanos[i] })
}

// flat allows the ratio to grow so many times from a small crowd to that of the
// row. raw and few are the lines of the small one.
func flat(n float64, raw, few string) goal {
	return goal{fmt.Sprintf("<= %gx the ratio of 1 waiter", n), "x", func(ours line, all []line) []float64 {
		many := rounds(ours.nanos, all[0].nanos, over)
		one := rounds(find(all, few).nanos, find(all, raw).nanos, over)
		return rounds(many, one, func(a, b float64) float64 { return a/b - n })
	}}
}

// allocs allows so many allocations. What the runtime allocates now and then on
// its own account is not held against ours.
func allocs(n float64) goal {
	return goal{fmt.Sprintf("<= %g allocs", n), " allocs", func(ours line, _ []line) []float64 {
		return rounds(ours.allocs, ours.allocs, func(a, _ float64) float64 { return math.Round(10*a)/10 - n })
	}}
}

// allocsOver allows so many allocations on top of another line.
func allocsOver(than string, n float64) goal {
	return goal{fmt.Sprintf("<= %s + %g allocs", than, n), " allocs", func(ours line, all []line) []float64 {
		return rounds(ours.allocs, find(all, than).allocs, func(a, b float64) float64 { return math.Round(10*a)/10 - math.Round(10*b)/10 - n })
	}}
}

func find(all []line, name string) line {
	for _, l := range all {
		if l.name == name {
			return l
		}
	}
	panic("no line " + name)
}
