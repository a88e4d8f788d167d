package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

func (r row) print(out io.Writer, all []line) {
	texts := make([]string, len(r.goals))
	for i, g := range r.goals {
		texts[i] = g.text
	}
	name := r.name
	if r.cpu {
		name += ", CPU time"
	}
	heading(out, name, texts)
	w := table(out)
	for i, l := range all {
		said := ""
		if 1 <= i && i <= max(1, r.ours) {
			said = verdict(r.goals, l, all)
		}
		said += own(r.own[l.name], l, all)
		fmt.Fprintf(w, "%s\t%.1f ns\t%s\t%.1f allocs\t  %s\n", pad(l.name), median(l.nanos),
			r.compared(l, all[0]), slices.Min(l.allocs), said)
	}
	flush(w)
}

// verdict says whether a line of ours has reached the goals.
func verdict(goals []goal, ours line, all []line) string {
	if len(goals) == 0 {
		return ""
	}
	var misses []string
	for _, g := range goals {
		if by := median(g.excess(ours, all)); by > 0 {
			misses = append(misses, fmt.Sprintf("missed by %.2f%s", by, g.unit))
		}
	}
	return cmp.Or(strings.Join(misses, ", "), "met")
}

// own says which goals a line has of its own, and which of them it has reached.
func own(goals []goal, ours line, all []line) string {
	var said []string
	for _, g := range goals {
		said = append(said, g.text+": "+verdict([]goal{g}, ours, all))
	}
	return strings.Join(said, "; ")
}

// compared returns the two columns that say how l compares with raw: the median
// and the range over the rounds.
func (r row) compared(l, raw line) string {
	if r.plus {
		by := rounds(l.nanos, raw.nanos, minus)
		return fmt.Sprintf("+%.0f ns\t(%.0f-%.0f)", median(by), slices.Min(by), slices.Max(by))
	}
	by := rounds(l.nanos, raw.nanos, over)
	return fmt.Sprintf("%.2fx\t(%.2f-%.2f)", median(by), slices.Min(by), slices.Max(by))
}

func heading(out io.Writer, name string, goals []string) {
	if len(goals) > 0 {
		name += " (target: " + strings.Join(goals, ", ") + ")"
	}
	fmt.Fprintf(out, "\n%s\n", name)
}

func table(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// flush writes a table out. A table that is cut off must not look like a whole one.
func flush(w *tabwriter.Writer) {
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

// pad keeps names to the left in a table whose cells are on the right.
func pad(name string) string { return "  " + name + strings.Repeat(" ", max(0, 60-len(name))) }
