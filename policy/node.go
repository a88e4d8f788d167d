package policy

import "strings"

// A node is a place in a tree of path patterns. The segments before it lead there.
type node struct {
	literals table[node] // by the next segment, decoded
	heads    byteSet     // their first bytes
	wild     *node       // by any next segment but "/"
	exact    group       // of the patterns that end here
	below    group       // of the patterns of all that is below
}

// place returns where a pattern leads from n.
func (n *node) place(p *pathPattern) *group {
	for i := range p.segments {
		switch s := &p.segments[i]; {
		case !s.wild:
			n.heads.add(s.literal[0])
			n = n.literals.make(s.literal)
		case n.wild == nil:
			n.wild = new(node)
			fallthrough
		default:
			n = n.wild
		}
	}
	if p.subtree {
		return &n.below
	}
	return &n.exact
}

// followSegments follows the path from n on. It comes to no node twice.
func (s *search) followSegments(n *node, path string) {
	for {
		if path == "" {
			s.askGroup(&n.exact)
			return
		}
		s.askGroup(&n.below)
		if n.wild == nil && !s.escaped && path != "/" && !n.heads.has(path[1]) {
			return
		}
		var text string
		text, path = cutSegment(path)
		literal, wild := n.next(text, s.escaped)
		switch {
		case literal == nil && wild == nil:
			return
		case literal == nil:
			n = wild
		default:
			if wild != nil {
				s.followSegments(wild, path)
			}
			n = literal
		}
	}
}

// cutSegment cuts the first segment off a path that is not empty. The slash that ends
// a path is a segment; see [segment].
func cutSegment(path string) (text, rest string) {
	if path == "/" {
		return "/", ""
	}
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[1 : 1+end], path[1+end:]
	}
	return path[1:], ""
}

// next returns the nodes that a segment leads to.
func (n *node) next(text string, escaped bool) (literal, wild *node) {
	wild = n.wild
	if escaped && strings.IndexByte(text, '%') >= 0 {
		var buf [64]byte
		if b, ok := appendUnescaped(buf[:0], text, false); ok {
			if string(b) == "/" {
				wild = nil
			}
			return n.literals.get(string(b)), wild
		} // else it is what it is
	}
	if text == "/" {
		wild = nil
	}
	return n.literals.get(text), wild
}

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (b *byteSet) add(c byte)      { b[c/64] |= 1 << (c % 64) }
func (b *byteSet) has(c byte) bool { return b[c/64]&(1<<(c%64)) != 0 }
