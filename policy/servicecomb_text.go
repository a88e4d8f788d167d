package policy

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A textMap says where in the file the characters of a scalar stand. The YAML that a
// scalar holds is parsed by itself, so its nodes have places in the scalar alone.
type textMap struct {
	whole    at // the scalar itself: where everything is if nothing better is known
	segments []segmentAt
}

// A segmentAt is a run of characters of one line of a text that stand side by side in
// one line of the file.
type segmentAt struct{ inText, inFile at }

// place returns where in the file a place of the text is.
func (m *textMap) place(p at) at {
	i, found := slices.BinarySearchFunc(m.segments, p, func(s segmentAt, p at) int {
		return cmp.Or(cmp.Compare(s.inText.line, p.line), cmp.Compare(s.inText.column, p.column))
	})
	if !found {
		i--
	}
	if i < 0 || m.segments[i].inText.line != p.line {
		return m.whole
	}
	s := m.segments[i]
	return at{s.inFile.line, s.inFile.column + p.column - s.inText.column}
}

// sourceLines returns the lines of a file as the places of nodes count them.
func sourceLines(data []byte) []string {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// mapText maps the text of a scalar. It walks through the file as a YAML parser does.
// If it does not meet the text there, the map has only the scalar's own place.
func mapText(lines []string, n *yaml.Node) *textMap {
	m := &textMap{whole: place(n)}
	w := walker{lines: lines, line: n.Line}
	if w.line < 1 || w.line > len(lines) {
		return m
	}
	ok := false
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		ok = w.literal(n.Value)
	case n.Style&yaml.FoldedStyle != 0:
		ok = w.folded(n.Value)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		ok = w.find(n.Column, '"') && w.flow('"') && w.text.String() == n.Value
	case n.Style&yaml.SingleQuotedStyle != 0:
		ok = w.find(n.Column, '\'') && w.flow('\'') && w.text.String() == n.Value
	default:
		ok = w.plain(n.Column, n.Value)
	}
	if ok {
		m.segments = w.segments
	}
	return m
}

// A walker goes through a scalar in the file and gathers the segments of its text.
type walker struct {
	lines    []string
	line     int    // in the file, from 1
	rest     string // what is left of that line
	column   int    // of rest, from 1
	text     strings.Builder
	at       at // in the text, of what comes next
	segments []segmentAt
}

// mark begins a segment.
func (w *walker) mark() {
	if w.at == (at{}) {
		w.at = at{1, 1}
	}
	w.segments = append(w.segments, segmentAt{w.at, at{w.line, w.column}})
}

// emit adds a piece of text.
func (w *walker) emit(s string) {
	if w.at == (at{}) {
		w.at = at{1, 1}
	}
	w.text.WriteString(s)
	for _, c := range s {
		w.at.column++
		if c == '\n' {
			w.at = at{w.at.line + 1, 1}
		}
	}
}

// literal maps a block of text that keeps its lines: those that follow the indicator.
func (w *walker) literal(value string) bool {
	value = strings.TrimSuffix(value, "\n")
	for i, text := range strings.Split(value, "\n") {
		if w.line+1+i > len(w.lines) {
			return false
		}
		raw := w.lines[w.line+i]
		if !strings.HasSuffix(raw, text) {
			return false
		}
		indent := utf8.RuneCountInString(raw[:len(raw)-len(text)])
		w.segments = append(w.segments, segmentAt{at{1 + i, 1}, at{w.line + 1 + i, 1 + indent}})
	}
	return true
}

// folded maps a block of text whose lines are joined. A line of the text is one line
// of the file, or several with a space between.
func (w *walker) folded(value string) bool {
	next := w.line // index of the line after the indicator
	for i, text := range strings.Split(strings.TrimRight(value, "\n"), "\n") {
		column := 1
		for first := true; first || text != ""; first = false {
			for text != "" && next < len(w.lines) && strings.TrimSpace(w.lines[next]) == "" {
				next++ // stands for a line break of the text, or for none
			}
			if next >= len(w.lines) {
				return false
			}
			raw := w.lines[next]
			content := strings.TrimLeft(raw, " ")
			if spaces := len(text) - len(strings.TrimLeft(text, " ")); spaces > 0 {
				content = text[:spaces] + content // more indented than the block
			}
			rest, ok := strings.CutPrefix(text, content)
			if !ok || !strings.HasSuffix(raw, content) || rest != "" && rest[0] != ' ' {
				return false
			}
			w.segments = append(w.segments, segmentAt{at{1 + i, column}, at{next + 1, 1 + utf8.RuneCountInString(raw) - utf8.RuneCountInString(content)}})
			column += utf8.RuneCountInString(content) + 1
			text = strings.TrimPrefix(rest, " ")
			next++
		}
	}
	return true
}

// find goes to the character after the first quote in the line from the column on.
func (w *walker) find(column int, quote byte) bool {
	raw := w.lines[w.line-1]
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(raw)
		raw = raw[size:]
	}
	i := strings.IndexByte(raw, quote)
	if i < 0 {
		return false
	}
	w.rest = raw[i+1:]
	w.column = column + utf8.RuneCountInString(raw[:i+1])
	return true
}

// flow goes through a quoted scalar up to its end.
func (w *walker) flow(quote byte) bool {
	fresh := true // a segment begins here
	for {
		if w.rest == "" {
			if !w.fold() {
				return false
			}
			fresh = true
			continue
		}
		_, size := utf8.DecodeRuneInString(w.rest)
		piece, text := w.rest[:size], w.rest[:size]
		switch {
		case quote == '\'' && strings.HasPrefix(w.rest, "''"):
			piece, text = "''", "'"
		case w.rest[0] == quote:
			return true
		case quote == '"' && w.rest == `\`:
			// The line goes on in the next one, without a space.
			w.line++
			if w.line > len(w.lines) {
				return false
			}
			w.rest = strings.TrimLeft(w.lines[w.line-1], " \t")
			w.column = 1 + len(w.lines[w.line-1]) - len(w.rest)
			fresh = true
			continue
		case quote == '"' && w.rest[0] == '\\':
			var ok bool
			if piece, text, ok = unquote(w.rest); !ok {
				return false
			}
		}
		// Most spaces stay, but those at the end of a line go.
		if strings.Trim(w.rest, " \t") == "" {
			w.rest = ""
			continue
		}
		if fresh {
			w.mark()
		}
		w.emit(text)
		w.rest = w.rest[len(piece):]
		w.column += utf8.RuneCountInString(piece)
		fresh = piece != text
	}
}

// fold ends a line of a quoted scalar: one line break is a space, each further one
// a line break.
func (w *walker) fold() bool {
	breaks := 0
	for w.rest == "" {
		w.line++
		breaks++
		if w.line > len(w.lines) {
			return false
		}
		w.rest = strings.TrimLeft(w.lines[w.line-1], " \t")
		w.column = 1 + len(w.lines[w.line-1]) - len(w.rest)
	}
	if breaks == 1 {
		w.emit(" ")
	} else {
		w.emit(strings.Repeat("\n", breaks-1))
	}
	return true
}

// unquote reads an escape at the front of s, and returns it and what it stands for.
func unquote(s string) (escape, text string, ok bool) {
	if len(s) < 2 {
		return "", "", false
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if digits > 0 {
		if len(s) < 2+digits {
			return "", "", false
		}
		r, err := strconv.ParseUint(s[2:2+digits], 16, 32)
		return s[:2+digits], string(rune(r)), err == nil
	}
	text, ok = map[byte]string{
		'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
		' ': " ", '"': `"`, '\'': "'", '/': "/", '\\': `\`, 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
	}[s[1]]
	return s[:2], text, ok
}

// plain maps a scalar without quotes that stands in one line.
func (w *walker) plain(column int, value string) bool {
	raw := w.lines[w.line-1]
	i := 0
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(raw[i:])
		i += size
	}
	before, _, ok := strings.Cut(raw[i:], value)
	if !ok || strings.Contains(value, "\n") {
		return false
	}
	w.segments = []segmentAt{{at{1, 1}, at{w.line, column + utf8.RuneCountInString(before)}}}
	return true
}
