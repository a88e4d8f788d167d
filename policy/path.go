package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
)

// A pathPattern is the path part of a pattern of net/http.ServeMux. It matches
// the paths that a ServeMux with that one pattern would serve, except that no
// path is cleaned or redirected first.
type pathPattern struct {
	segments []segment
	subtree  bool // anything below matches too; the slash before it must be there
}

// A segment matches what stands between two slashes of a path.
//
// As in ServeMux, the slash that ends a path is a segment of its own, "/", which
// only a literal matches: the pattern "/a/{$}" is the literals "a" and "/". The
// escaped segment "%2F" decodes to the same text, and is then the same.
type segment struct {
	literal string // decoded
	wild    bool   // any segment except "/"
}

// parsePath compiles s, or says in the error why s is not a pattern and what
// would be one.
func parsePath(s string) (pathPattern, error) {
	var p pathPattern
	if err := checkPathText(s); err != nil {
		return p, err
	}
	names := map[string]bool{}
	for rest := s; rest != ""; {
		text, more, found := strings.Cut(rest[1:], "/")
		last := !found
		rest = rest[1+len(text):]
		switch {
		case text == "":
			// checkPathText leaves no empty segment but the last.
			p.subtree = true
			return p, nil
		case !strings.Contains(text, "{"):
			p.segments = append(p.segments, segment{literal: unescape(text)})
			continue
		case text[0] != '{' || text[len(text)-1] != '}':
			return p, fmt.Errorf("a wildcard must be a whole segment, as in /{id}, but %s is not", bare(text))
		}
		name := text[1 : len(text)-1]
		if name == "$" {
			if !last {
				return p, fmt.Errorf("{$} must come last, but %s follows", bare("/"+more))
			}
			p.segments = append(p.segments, segment{literal: "/"})
			return p, nil
		}
		name, multi := strings.CutSuffix(name, "...")
		switch {
		case multi && !last:
			return p, fmt.Errorf("%s must come last, but %s follows", bare(text), bare("/"+more))
		case strings.Contains(name, ":"):
			return p, fmt.Errorf("%s has a condition, which path does not take; write %s, or give the router's pattern as route", bare(text), bare("{"+name[:strings.IndexByte(name, ':')]+"}"))
		case !isWildcardName(name):
			return p, fmt.Errorf("%s is not a wildcard; its name must be made of letters, digits and _, as in {id}", bare(text))
		case names[name]:
			return p, fmt.Errorf("the wildcard name %s comes twice; give each its own", bare(name))
		}
		names[name] = true
		if multi {
			p.subtree = true
			return p, nil
		}
		p.segments = append(p.segments, segment{wild: true})
	}
	return p, nil
}

// checkPathText refuses what is not a clean path, before its segments are read.
// ServeMux accepts some of it, but serves no request for it.
func checkPathText(s string) error {
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("a path holds no control characters; write %s", url.PathEscape(s[i:i+1]))
	}
	if !strings.HasPrefix(s, "/") {
		switch _, p, found := strings.Cut(s, " "); {
		case found && strings.HasPrefix(p, "/"):
			return fmt.Errorf("a method does not belong in path; write path: %s and the method under method", bare(p))
		case strings.Contains(s, "/"):
			return errors.New("it must start with /; a host belongs under host")
		}
		return fmt.Errorf("it must start with /; write %s", bare("/"+s))
	}
	if strings.Contains(s, " ") {
		return errors.New("a path holds no spaces; write %20")
	}
	if strings.Contains(s, "?") {
		return errors.New("a query does not belong in path; give its parameters under query, or write %3F for a question mark in the path")
	}
	clean := path.Clean(s)
	if strings.HasSuffix(s, "/") && clean != "/" {
		clean += "/"
	}
	if clean != s {
		return fmt.Errorf("it is not a clean path; write %s", bare(clean))
	}
	return nil
}

func isWildcardName(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != ""
}

// match reports whether the pattern matches a path; escaped says whether that has
// any %XX.
func (p *pathPattern) match(path string, escaped bool) bool {
	if path == "" || path[0] != '/' {
		return false // "*", the path of OPTIONS *, is not in any subtree
	}
	for i := range p.segments {
		if path == "" {
			return false
		}
		text := "/"
		if path == "/" {
			path = ""
		} else {
			end := strings.IndexByte(path[1:], '/') + 1
			if end == 0 {
				end = len(path)
			}
			text, path = path[1:end], path[end:]
		}
		if !p.segments[i].match(text, escaped) {
			return false
		}
	}
	return p.subtree == (path != "")
}

func (s *segment) match(text string, escaped bool) bool {
	want := s.literal
	if s.wild {
		want = "/"
	}
	equal := text == want
	if escaped {
		equal = unescapesTo(text, want)
	}
	return equal != s.wild
}

// unescape decodes %XX, and leaves text with a broken escape as it is.
func unescape(text string) string {
	if u, err := url.PathUnescape(text); err == nil {
		return u
	}
	return text
}

// unescapesTo reports whether unescape(text) == want, without building it.
func unescapesTo(text, want string) bool {
	first := strings.IndexByte(text, '%')
	if first < 0 {
		return text == want
	}
	escapes := 0
	for i := first; i < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		if i+2 >= len(text) || unhex(text[i+1]) > 15 || unhex(text[i+2]) > 15 {
			return text == want // broken, so not decoded
		}
		escapes++
		i += 2
	}
	if len(text)-2*escapes != len(want) {
		return false
	}
	for i, j := 0, 0; j < len(want); i, j = i+1, j+1 {
		c := text[i]
		if c == '%' {
			c = unhex(text[i+1])<<4 | unhex(text[i+2])
			i += 2
		}
		if c != want[j] {
			return false
		}
	}
	return true
}

// unhex returns the value of a hex digit, and more than 15 if c is not one.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
