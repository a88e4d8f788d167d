package tracestore

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// String draws the trace as a tree: a line for the trace, then one for each
// span with its start since that of the trace, how long it took, and its
// attributes. Spans whose parent is not there, because it belongs to another
// process or has not ended, stand at the top.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s  %s  %s  %d spans", t.ID, t.Start().Format("15:04:05.000"), millis(t.Duration()), len(t.Spans))
	if t.Dropped > 0 {
		fmt.Fprintf(&b, ", %d more not kept", t.Dropped)
	}
	if t.Running > 0 {
		fmt.Fprintf(&b, ", %d still open", t.Running)
	}
	b.WriteByte('\n')

	lines := t.layout()
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.left))
	}
	for _, l := range lines {
		b.WriteString(l.left)
		if l.right != "" {
			b.WriteString(strings.Repeat(" ", width-utf8.RuneCountInString(l.left)))
			b.WriteString(l.right)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A line is drawn in two columns: the tree, and what there is to say.
type line struct{ left, right string }

func (t Trace) layout() []line {
	byID := make(map[trace.SpanID]bool, len(t.Spans))
	for _, s := range t.Spans {
		byID[s.ID] = true
	}
	children := make(map[trace.SpanID][]*Span, len(t.Spans))
	var top []*Span
	for _, s := range t.Spans {
		if byID[s.Parent] && s.Parent != s.ID {
			children[s.Parent] = append(children[s.Parent], s)
		} else {
			top = append(top, s)
		}
	}
	var lines []line
	var draw func(s *Span, service, first, rest string)
	draw = func(s *Span, service, first, rest string) {
		lines = append(lines, line{first + label(s, service), t.describe(s)})
		below := children[s.ID]
		bar := "  "
		if len(below) > 0 {
			bar = "│ "
		}
		for _, e := range s.Events {
			text := rest + bar + "· " + printable(e.Name)
			lines = append(lines, line{text, "  " + at(e.Time.Sub(t.Start())) + attributes(e.Attributes)})
		}
		for i, c := range below {
			if i < len(below)-1 {
				draw(c, s.Service, rest+"├─ ", rest+"│  ")
			} else {
				draw(c, s.Service, rest+"└─ ", rest+"   ")
			}
		}
	}
	for _, s := range top {
		draw(s, "", "", "")
	}
	return lines
}

// label names the service where it is another than that of the span above.
func label(s *Span, above string) string {
	if s.Service == "" || s.Service == above {
		return printable(s.Name)
	}
	return printable(s.Name) + " [" + printable(s.Service) + "]"
}

func (t Trace) describe(s *Span) string {
	text := "  " + at(s.Start.Sub(t.Start())) + fmt.Sprintf(" %10s", millis(s.End.Sub(s.Start)))
	if s.Status == codes.Error {
		text += "  ERROR"
		if s.StatusText != "" {
			text += " " + strconv.Quote(s.StatusText)
		}
	}
	return text + attributes(s.Attributes)
}

func at(d time.Duration) string { return fmt.Sprintf("%11s", "+"+millis(d)) }

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 2, 64) + "ms"
}

// unremarkable are attributes that say the same of every span of a small
// system, or again what its name says. They would fill the page.
var unremarkable = []string{
	"client.", "network.", "server.", "user_agent.",
	"http.request.method", "http.request.body.size", "http.response.body.size", "http.route", "url.scheme",
}

// prefix is left out of the names of attributes: most would begin with it.
const prefix = "watertight."

func attributes(kvs []attribute.KeyValue) string {
	var b strings.Builder
	for _, kv := range kvs {
		key := string(kv.Key)
		if slices.ContainsFunc(unremarkable, func(p string) bool { return strings.HasPrefix(key, p) }) {
			continue
		}
		value := kv.Value.String()
		if kv.Value.Type() == attribute.FLOAT64 {
			value = strconv.FormatFloat(math.Round(kv.Value.AsFloat64()*100)/100, 'f', -1, 64)
		}
		if strings.ContainsAny(value, ` "`) {
			value = strconv.Quote(value)
		}
		b.WriteString("  " + printable(strings.TrimPrefix(key, prefix)) + "=" + printable(value))
	}
	return b.String()
}

// printable quotes a text that would not stay on its line, or would do
// something to a terminal: much of it comes from callers.
func printable(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
