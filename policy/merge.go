package policy

import "go.yaml.in/yaml/v3"

// A merger gives mappings the keys of those that they merge by <<: what a mapping has
// itself comes first, then what the first of the merged ones has.
//
// It leaves alone what cannot be merged, to be reported where it is read; in what
// belongs to others it is not our business.
type merger struct {
	left int // nodes that may still come in, since each merge may bring many
}

// mergeKeys merges in all mappings under n. A value that comes in keeps its place.
func mergeKeys(n *yaml.Node) {
	m := merger{maxAliased}
	m.walk(n)
}

// walk goes in the order of the file, in which an anchor stands before its aliases: what
// is merged is done, unless it contains the mapping that merges it: then it is too large.
func (m *merger) walk(n *yaml.Node) {
	for _, child := range n.Content {
		m.walk(child)
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			if from, ok := m.merged(n.Content[i+1]); ok {
				m.merge(n, i, from)
			}
			return // a second one is a repeated key
		}
	}
}

// notMerged says what is wrong with a << that is still there.
const notMerged = "<< must come once, with an alias of a mapping, or a list of such, that does not contain it and is not too large; write the keys out"

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge"
}

// merged returns the mappings that a value of << stands for.
func (m *merger) merged(value *yaml.Node) (from []*yaml.Node, ok bool) {
	all := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		all = value.Content
	}
	for _, n := range all {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n.Kind != yaml.MappingNode {
			return nil, false
		}
		m.left -= size(n, m.left) // all, if n contains the mapping that merges it
		from = append(from, n)
	}
	return from, m.left > 0
}

// merge puts the keys of other mappings in the place of the merge key at i.
func (m *merger) merge(into *yaml.Node, i int, from []*yaml.Node) {
	pairs := append(into.Content[:i:i], into.Content[i+2:]...)
	has := map[string]bool{}
	for i := 0; i < len(pairs); i += 2 {
		has[keyOf(pairs[i])] = true
	}
	for _, n := range from {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := keyOf(n.Content[i]); !has[key] {
				has[key] = true
				pairs = append(pairs, n.Content[i], n.Content[i+1])
			}
		}
	}
	into.Content = pairs
}

func keyOf(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Value
}
