package policy

import "bytes"

// A radix is a place in a radix tree of texts, reached by all that the places before
// it and it itself are labelled with. It takes a walk along a text to find every
// text of the tree that this one begins with, or ends with, in the other direction.
type radix struct {
	label string   // the step to here; empty only at the root
	first []byte   // the byte at which the label of each of next begins
	next  []*radix // no two begin with the same byte
	whole group    // of those that want the text to be over here
	part  group    // of those that do not mind what follows
}

// A direction is that in which a tree reads texts.
type direction bool

const (
	fromStart direction = false
	fromEnd   direction = true
)

// cut cuts off the n bytes of s that come first.
func (d direction) cut(s string, n int) (near, far string) {
	if d == fromEnd {
		return s[len(s)-n:], s[:len(s)-n]
	}
	return s[:n], s[n:]
}

// first returns the byte of s that comes first.
func (d direction) first(s string) byte {
	if d == fromEnd {
		return s[len(s)-1]
	}
	return s[0]
}

// common returns how many bytes come first in both a and b.
func (d direction) common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) {
		i, j := n, n
		if d == fromEnd {
			i, j = len(a)-1-n, len(b)-1-n
		}
		if a[i] != b[j] {
			break
		}
		n++
	}
	return n
}

// place returns the place of a text in the tree, which may be nil.
func (d direction) place(root **radix, s string) *radix {
	if *root == nil {
		*root = new(radix)
	}
	r := *root
	for s != "" {
		i := bytes.IndexByte(r.first, d.first(s))
		if i < 0 {
			leaf := &radix{label: s}
			r.first, r.next = append(r.first, d.first(s)), append(r.next, leaf)
			return leaf
		}
		next := r.next[i]
		shared := d.common(next.label, s)
		if shared < len(next.label) {
			// Split the step: what is beyond the shared part gets a place of its own.
			near, far := d.cut(next.label, shared)
			next.label = far
			next = &radix{label: near, first: []byte{d.first(far)}, next: []*radix{next}}
			r.next[i] = next
		}
		r = next
		_, s = d.cut(s, shared)
	}
	return r
}

// followText follows the decoded path from r on.
func (s *search) followText(r *radix, d direction) {
	text := s.decodedPath()
	for {
		s.askGroup(&r.part)
		if text == "" {
			s.askGroup(&r.whole)
			return
		}
		i := bytes.IndexByte(r.first, d.first(text))
		if i < 0 {
			return
		}
		r = r.next[i]
		if len(text) < len(r.label) {
			return
		}
		var step string
		if step, text = d.cut(text, len(r.label)); step != r.label {
			return
		}
	}
}
