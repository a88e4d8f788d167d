package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// combFields are the keys of one mapping of a section, and how they are read: what is
// wrong is reported, and the value is then what ServiceComb goes on with.
type combFields struct {
	c       *comb
	label   string // before the name of a key, in messages
	place   at
	values  map[string]*yaml.Node
	unknown bool // there are keys that mean nothing, reported
	dropped bool // ServiceComb drops the section for what is wrong
}

// fields reads a mapping whose keys are known. known are those that mean something,
// idle those that are known to mean nothing. misplaced says what to do about another
// key, or "".
func (c *comb) fields(n *yaml.Node, label, what string, known, idle []string, misplaced func(key string) string) *combFields {
	f := &combFields{c: c, label: label, place: place(n), values: map[string]*yaml.Node{}}
	owner := label // before what is wrong with a key itself
	if parent, ok := strings.CutSuffix(label, "."); ok {
		owner = parent + ": "
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		written, value := n.Content[i], c.follow(n.Content[i+1])
		key := c.follow(written)
		if key == nil || value == nil {
			f.dropped = true
			continue
		}
		at := place(written)
		switch {
		case isMerge(key):
			c.errorf(at, "%s%s", owner, notMerged)
		case key.Kind != yaml.ScalarNode:
			c.findf(at, "%sa key is %s; it must be text", owner, describe(key))
			f.dropped = true
		case !slices.Contains(known, key.Value) && !slices.Contains(idle, key.Value):
			msg, name := misplaced(key.Value), quote(key.Value)
			if msg == "" {
				msg = what + " has " + strings.Join(known, ", ")
				if near := meant(key.Value, known); near != "" {
					msg, name = "did you mean "+quote(near)+"?", quoteLetters(key.Value)
				}
			}
			f.unknown = true
			c.findf(at, "%sunknown key %s; %s", owner, name, msg)
		default:
			if line, ok := lines[key.Value]; ok {
				c.findf(at, "%sthe key %s is already in line %d; keep one of them", owner, quote(key.Value), line)
			}
			lines[key.Value] = written.Line
			f.values[key.Value] = value // the last one counts
		}
	}
	return f
}

// meant returns the known key that most likely was meant: one that is like the key, or
// that begins with it.
func meant(key string, known []string) string {
	if near := nearest(key, known); near != "" {
		return near
	}
	found := ""
	for _, k := range known {
		if len(key) > 3 && strings.HasPrefix(strings.ToLower(k), strings.ToLower(key)) {
			if found != "" {
				return "" // it may be either
			}
			found = k
		}
	}
	return found
}

// get returns the value of a key, or nil if it is left out. An empty value is reported
// and then left out too, as it is for ServiceComb.
func (f *combFields) get(key string) *yaml.Node {
	n := f.values[key]
	if n != nil && (isNull11(n) || n.Kind == yaml.ScalarNode && n.Value == "") {
		f.c.findf(place(n), "%s%s is empty; give it a value, or leave it out", f.label, key)
		return nil
	}
	return n
}

// drop reports a value for which ServiceComb drops the section.
func (f *combFields) drop(n *yaml.Node, key, want string) {
	f.dropped = true
	if !f.c.unfilled(n) {
		f.c.findf(place(n), "%s%s is %s; it must be %s", f.label, key, describe11(n), want)
	}
}

// describe11 says what a node is. Unlike describe it never puts a number in quotes,
// since most of what is text there may be in quotes or not.
func describe11(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && !isNull11(n) && strings.TrimSpace(n.Value) == n.Value {
		return bare(n.Value)
	}
	return describe(n)
}

// at returns where a key's value is, or where the mapping is.
func (f *combFields) at(key string) at {
	if n := f.values[key]; n != nil {
		return place(n)
	}
	return f.place
}

// count reads a whole number of at least least. Beyond most it is cut to that.
func (f *combFields) count(key string, least, most, def int) int {
	n := f.number(key)
	if n == nil {
		return def
	}
	v, odd, ok := parseInt11(n.Value)
	if n.Kind != yaml.ScalarNode || !ok || v < least {
		f.drop(n, key, "a whole number, "+strconv.Itoa(least)+" to 2147483647")
		return def
	}
	if odd {
		f.c.warnf(place(n), "%s%s is %s, which is %d in this kind of YAML; write %d", f.label, key, n.Value, v, v)
	}
	if v > most {
		f.c.warnf(place(n), "%s%s is %d, and %d is used, which is the most there is", f.label, key, v, most)
	}
	return min(v, most)
}

// number returns the value of a key that must not be empty if it is there.
func (f *combFields) number(key string) *yaml.Node {
	n := f.values[key]
	if n == nil || !isNull11(n) {
		return n
	}
	f.dropped = true
	f.c.findf(place(n), "%s%s is empty; give it a value, or leave it out", f.label, key)
	return nil
}

// order reads the place of a policy among those of its kind.
func (f *combFields) order() int {
	n := f.number("order")
	if n == nil {
		return 0
	}
	v, odd, ok := parseInt11(n.Value)
	if n.Kind != yaml.ScalarNode || !ok {
		f.drop(n, "order", "a whole number, -2147483648 to 2147483647")
		return 0
	}
	if odd {
		f.c.warnf(place(n), "%sorder is %s, which is %d in this kind of YAML; write %d", f.label, n.Value, v, v)
	}
	return v
}

// rate reads a percentage.
func (f *combFields) rate(key string, def float64) float64 {
	n := f.number(key)
	if n == nil {
		return def
	}
	v, ok := parseNumber(strings.ReplaceAll(n.Value, "_", ""))
	if n.Kind != yaml.ScalarNode || !ok || v <= 0 || v > 100 {
		want := wantRate
		if s, ok := strings.CutSuffix(n.Value, "%"); ok {
			want += ", without the percent sign: " + bare(strings.TrimSpace(s))
		}
		f.drop(n, key, want)
		return def
	}
	if v < 1 {
		f.c.warnf(place(n), "%s%s is %v, which is less than one percent; for a share of %v write %.4g", f.label, key, v, v, 100*v)
	}
	return v
}

// duration reads a duration of at least least, and of a year at most.
func (f *combFields) duration(key string, least, def time.Duration) time.Duration {
	n := f.get(key)
	if n == nil {
		return def
	}
	v, ok := parseDuration11(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || !ok:
		want := wantDuration11
		if s := respell(n.Value); s != "" && n.Kind == yaml.ScalarNode {
			want += "; write " + s
		}
		f.drop(n, key, want)
		return def
	case v < least:
		if least > 0 {
			f.drop(n, key, "at least one millisecond")
		} else {
			f.drop(n, key, "0 or more")
		}
		return def
	case v > maxDuration:
		f.c.warnf(place(n), "%s%s is %s, and 8760h is used, which is the longest there is", f.label, key, n.Value)
	}
	return min(v, maxDuration)
}

// bool reads a truth value.
func (f *combFields) bool(key string) bool {
	n := f.number(key)
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode && slices.Contains(yaml11True, strings.ToLower(n.Value)):
		return true
	case n.Kind == yaml.ScalarNode && slices.Contains(yaml11False, strings.ToLower(n.Value)):
	default:
		f.drop(n, key, "true or false")
	}
	return false
}

// text reads a text. A number is one too.
func (f *combFields) text(key string) string {
	n := f.get(key)
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		f.drop(n, key, "text")
		return ""
	}
	return n.Value
}

// name looks at the key name, which ServiceComb overwrites with that of the section.
func (f *combFields) name(section string) {
	n := f.values["name"]
	if n != nil && n.Kind == yaml.ScalarNode && !isNull11(n) && n.Value != section {
		f.c.warnf(place(n), "%sname is %s, which has no effect: the name is %s", f.label, bare(n.Value), bare(section))
	}
}
