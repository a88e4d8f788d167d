package policy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxAliased bounds the nodes that are reached through aliases, and are so read
// more often than they are written. What is not behind an alias is bounded by
// the size of the file.
const maxAliased = 100_000

// A decoder turns YAML nodes into a draft. It reports what is wrong with their
// form; what is wrong with the values is for compile to find.
type decoder struct {
	*problems
	aliased int    // what is left of maxAliased
	label   string // of the policy that is being read, if it is one
	strayed bool   // something that limits stands in a wrong place of that policy
}

// follow returns the node that n stands for: n itself, or an alias's target. It
// returns nil, with the problem reported, for an alias that expands to too much.
func (d *decoder) follow(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	if d.aliased > 0 {
		d.aliased -= size(n.Alias, d.aliased)
		if d.aliased <= 0 {
			d.errorf(place(n), "with the alias *%s the file expands to too much; write the value out", n.Value)
		}
	}
	if d.aliased <= 0 {
		return nil
	}
	return n.Alias // never an alias itself: YAML gives those no anchors
}

// size counts the nodes under n, aliases followed, up to limit. An anchor that
// contains its own alias so counts as limit.
func size(n *yaml.Node, limit int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	count := 1
	for _, child := range n.Content {
		if count >= limit {
			return limit
		}
		count += size(child, limit-count)
	}
	return count
}

func place(n *yaml.Node) at { return at{n.Line, n.Column} }

// An object is a mapping whose keys are checked.
type object struct {
	place  at
	prefix string // with a key behind it, the name of a field
	values map[string]*yaml.Node
	meant  map[string]bool // keys that were probably meant by unknown ones
}

// object reads a mapping. name is what messages call it, prefix what they put
// before its keys. If n is no mapping, it reports that and returns false.
func (d *decoder) object(n *yaml.Node, s *scope, name, prefix string) (*object, bool) {
	if n = d.follow(n); n == nil {
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		d.errorf(place(n), "%s is %s; it must be a mapping of %s", name, describe(n), strings.Join(s.keys, ", "))
		return nil, false
	}
	o := &object{place: place(n), prefix: prefix, values: map[string]*yaml.Node{}, meant: map[string]bool{}}
	misspelt := map[string]*yaml.Node{}
	d.pairs(n, func(key, value *yaml.Node) {
		if slices.Contains(s.keys, key.Value) {
			o.values[key.Value] = value
			return
		}
		msg, meant, near := s.problemWith(key.Value)
		d.errorf(place(key), "%s%s", d.label, msg)
		for _, k := range meant {
			o.meant[k] = true
		}
		misspelt[near] = value
		d.strayed = d.strayed || slices.Contains([]string{"bulkhead", "breaker", "exempt"}, key.Value)
	})
	// What is under a misspelt key is read, so that all that is wrong with it is told at
	// once. With an error told, nothing else comes of it.
	for key, value := range misspelt {
		if key != "" && o.values[key] == nil {
			o.values[key] = value
		}
	}
	return o, true
}

// pairs calls f for each key of a mapping and its value, except for repeated keys
// and those that are not text: these it reports.
func (d *decoder) pairs(n *yaml.Node, f func(key, value *yaml.Node)) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		written, value := n.Content[i], n.Content[i+1]
		key := d.follow(written)
		if key == nil {
			continue
		}
		switch {
		case isMerge(key):
			d.errorf(place(written), "%s%s", d.label, notMerged)
			continue
		case key.Kind != yaml.ScalarNode:
			d.errorf(place(written), "%sa key is %s; it must be text", d.label, describe(key))
			continue
		}
		if line, ok := lines[key.Value]; ok {
			d.errorf(place(written), "%sthe key %s is already in line %d; keep one of them", d.label, quote(key.Value), line)
			continue
		}
		lines[key.Value] = written.Line
		f(key, value)
	}
}

// lost reports whether a key is not there, but was probably meant by one that is
// reported as unknown.
func (o *object) lost(key string) bool { return o.values[key] == nil && o.meant[key] }

// read reads one value of an object. parse returns what is wrong with the node,
// or "".
func read[T any](d *decoder, o *object, key string, parse func(*yaml.Node) (T, string)) field[T] {
	f := field[T]{name: o.prefix + key}
	if n := o.values[key]; n != nil {
		readNode(d, &f, n, parse)
	} else if o.meant[key] {
		f.set, f.bad = true, true
	}
	return f
}

func readNode[T any](d *decoder, f *field[T], n *yaml.Node, parse func(*yaml.Node) (T, string)) {
	f.set = true
	if n = d.follow(n); n == nil {
		f.bad = true
		return
	}
	f.at = place(n)
	f.text = n.Value
	var problem string
	if f.v, problem = parse(n); problem != "" {
		f.bad = true
		d.errorf(f.at, "%s %s", f.name, problem)
	}
}

// list returns the node of a list. If n is no list, it reports that and returns
// false.
func (d *decoder) list(n *yaml.Node, name, example string) (*yaml.Node, bool) {
	if n = d.follow(n); n == nil {
		return nil, false
	}
	if n.Kind == yaml.SequenceNode {
		return n, true
	}
	d.errorf(place(n), "%s is %s; it must be a list: write %s", name, describe(n), example)
	return nil, false
}

// alone is the list that has the scalar n alone, if that would be right, or else
// the example.
func alone(n *yaml.Node, right bool, example string) string {
	if n.Kind == yaml.ScalarNode && !isNull(n) && right {
		return "[" + bare(n.Value) + "]"
	}
	return example
}

// aloneMethod is alone for methods, of which it makes what they most likely are.
func aloneMethod(n *yaml.Node) string {
	method := strings.ToUpper(n.Value)
	return alone(&yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: method}, methodList.MatchString(method), "[GET]")
}

var methodList = regexp.MustCompile(`^[A-Z]+(, *[A-Z]+)*$`)

func elementName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
