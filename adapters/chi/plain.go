package watertightchi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// A plain is a place in a tree of those routes of a router whose patterns are made
// of whole segments only: literal ones and {name}. A path is found here in less than a third of
// the time that it takes with chi's own look-up and a context for that.
//
// It never says that there is no route, and where anything else could have a say it
// says nothing, so that chi is asked. What it relies on is what chi documents: {name}
// stands for any text up to the next slash; literal text comes before {name}, and
// {name} before *; and what leads nowhere, or to a route of other methods, is tried
// the next way. Hence it is right about a path if
//
//   - no segment of the path is empty: whether {name} takes that depends on where
//     it stands;
//   - before each turn to a {name} that is followed, nothing but literal segments and
//     names begins in the same place. For chi would try a {name:regexp} first, and
//     text with a name in it, such as v{name}, as well.
type plain struct {
	literals []plainLiteral // few; else many
	many     map[string]*plain
	name     *plain // by {name}
	// unclear says that something else begins here: a {name:regexp}, a *, or text with
	// a name in it. Where * begins a router may be mounted, and that takes the path that
	// ends here, too, unlisted.
	unclear bool
	ends    []plainRoute
}

type plainLiteral struct {
	text string
	*plain
}

// A plainRoute is one that ends in a place.
type plainRoute struct {
	method  string
	pattern string // as chi reports it
}

const fewLiterals = 6 // up to here, to look through them takes less time than a map

// newPlain returns the tree of a router, nil if it is not chi's own, about which
// nothing is known.
func newPlain(routes chi.Routes, list []chi.Route) *plain {
	if _, ok := routes.(*chi.Mux); !ok {
		return nil
	}
	root := new(plain)
	for _, route := range list {
		root.add(route.Pattern, route.Handlers)
	}
	return root
}

func (n *plain) add(pattern string, handlers map[string]http.Handler) {
	reported := (&chi.Context{RoutePatterns: []string{pattern}}).RoutePattern()
	for rest := pattern; rest != ""; {
		var text string
		text, rest = firstSegment(rest)
		switch {
		case text == "":
			return // only paths that have an empty segment get there
		case !strings.ContainsAny(text, "{}*"):
			n = n.literal(text)
		case text[0] == '{' && text[len(text)-1] == '}' && !strings.ContainsAny(text[1:len(text)-1], "{}:*"):
			if n.name == nil {
				n.name = new(plain)
			}
			n = n.name
		default:
			n.unclear = true
			return
		}
	}
	for method := range handlers {
		if method != "*" { // that is for all methods, each of which is listed by its own name
			n.ends = append(n.ends, plainRoute{method, reported})
		}
	}
}

// firstSegment cuts a path, or a pattern, that is not empty behind its first segment.
func firstSegment(path string) (text, rest string) {
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[1 : 1+end], path[1+end:]
	}
	return path[1:], ""
}

// literal returns the place to which a literal segment leads, made if need be.
func (n *plain) literal(text string) *plain {
	next := n.next(text)
	switch {
	case next != nil:
		return next
	case n.many == nil && len(n.literals) < fewLiterals:
		next = new(plain)
		n.literals = append(n.literals, plainLiteral{text, next})
		return next
	case n.many == nil:
		n.many = make(map[string]*plain)
		for _, l := range n.literals {
			n.many[l.text] = l.plain
		}
	}
	next = new(plain)
	n.many[text] = next
	return next
}

func (n *plain) next(text string) *plain {
	if n.many != nil {
		return n.many[text]
	}
	for i := range n.literals {
		if n.literals[i].text == text {
			return n.literals[i].plain
		}
	}
	return nil
}

// find returns the pattern of the route that a path takes, "" if chi has to be asked.
func (n *plain) find(method, path string) string {
	if n == nil || path == "" || path[0] != '/' {
		return ""
	}
	pattern, _ := n.follow(method, path)
	return pattern
}

// follow tries the ways from n on, in chi's order. clear says whether all that is left
// to try is known, in case that none of them was right.
func (n *plain) follow(method, path string) (pattern string, clear bool) {
	for path != "" {
		var text string
		text, path = firstSegment(path)
		if text == "" {
			return "", false
		}
		next := n.next(text)
		if next != nil && n.name == nil && !n.unclear {
			n = next // the only way
			continue
		}
		if next != nil {
			if pattern, clear := next.follow(method, path); pattern != "" || !clear {
				return pattern, clear
			}
		}
		if n.unclear || n.name == nil {
			return "", !n.unclear
		}
		n = n.name
	}
	if i := slices.IndexFunc(n.ends, func(r plainRoute) bool { return r.method == method }); i >= 0 {
		return n.ends[i].pattern, true
	}
	return "", !n.unclear
}
