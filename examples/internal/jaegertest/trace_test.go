package jaegertest_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A trace is one that Jaeger has.
type trace struct {
	id    string
	spans []*span
}

// A span is one of a trace.
type span struct {
	id       string
	parentID string // "": none
	name     string
	service  string
	start    time.Time
	duration time.Duration
	tags     map[string]any
	types    map[string]string // of the tags, as Jaeger calls them
	links    []spanRef         // FOLLOWS_FROM
}

// A spanRef names a span, of this trace or another.
type spanRef struct{ traceID, spanID string }

// text returns a tag that is a string, "" if there is none.
func (s *span) text(tag string) string {
	v, _ := s.tags[tag].(string)
	return v
}

// number returns a tag that is a number, -1 if there is none. No span has one
// that is negative.
func (s *span) number(tag string) float64 {
	if v, ok := s.tags[tag].(float64); ok {
		return v
	}
	return -1
}

func (s *span) end() time.Time { return s.start.Add(s.duration) }

// named returns the spans of that name.
func (tr *trace) named(name string) []*span {
	return tr.where(func(s *span) bool { return s.name == name })
}

// where returns the spans for which ok holds, in order of their start.
func (tr *trace) where(ok func(*span) bool) []*span {
	var found []*span
	for _, s := range tr.spans {
		if ok(s) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *span) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.name, b.name))
	})
	return found
}

// parent returns the span's parent, nil if it is not in the trace.
func (tr *trace) parent(s *span) *span {
	for _, p := range tr.spans {
		if p.id == s.parentID {
			return p
		}
	}
	return nil
}

// under returns the children of a span.
func (tr *trace) under(s *span) []*span {
	return tr.where(func(c *span) bool { return c.parentID == s.id })
}

// beside returns the spans of the given name that tell of the same call in the
// same compartment.
func (tr *trace) beside(s *span, name string) []*span {
	return tr.where(func(o *span) bool {
		return o.name == name && o.parentID == s.parentID &&
			o.tags["watertight.policy"] == s.tags["watertight.policy"] && o.tags["watertight.side"] == s.tags["watertight.side"]
	})
}

// tops returns the spans whose parent is not in the trace.
func (tr *trace) tops() []*span {
	return tr.where(func(s *span) bool { return tr.parent(s) == nil })
}

// shape draws the trace as a tree of names.
func (tr *trace) shape() string { return tr.draw(func(s *span) string { return s.name }) }

// String draws the trace with all that is known of it.
func (tr *trace) String() string {
	return "trace " + tr.id + "\n" + tr.draw(func(s *span) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s (%s, %s)", s.name, s.service, s.duration)
		for _, k := range slices.Sorted(maps.Keys(s.tags)) {
			fmt.Fprintf(&b, " %s=%v", k, s.tags[k])
		}
		return b.String()
	})
}

func (tr *trace) draw(line func(*span) string) string {
	var b strings.Builder
	var draw func(spans []*span, indent string)
	draw = func(spans []*span, indent string) {
		for _, s := range spans {
			b.WriteString(indent + line(s) + "\n")
			draw(tr.under(s), indent+"  ")
		}
	}
	draw(tr.tops(), "")
	return b.String()
}
