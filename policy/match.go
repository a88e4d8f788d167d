package policy

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// A Request is what policies see of an HTTP request. It is meant to be built on
// the stack: nothing keeps it.
type Request struct {
	// Side is Server or Client. On any other no policy matches.
	Side Side
	// Method is the HTTP method. Empty: GET.
	Method string
	// Scheme is "http" or "https"; it gives the port if Host has none. Empty:
	// not known.
	Scheme string
	// Host is the host with its port, if written: the URL's on a client, the
	// Host header's on a server.
	Host string
	// EscapedPath is what [net/url.URL.EscapedPath] returns. Empty: "/".
	EscapedPath string
	// Header may be nil. Its keys are in canonical form.
	Header http.Header
	// Route is the pattern of the route that will serve the request, as the
	// server's router reports it. Empty: no route, or not known.
	Route string
	// RouteKnown reports whether a router was asked for Route.
	RouteKnown bool
	// Key, if not empty, divides the calls of policies with per: host, in place
	// of the host. No policy matches by it. What is longer than MaxKey is cut
	// there.
	Key string
}

// MaxKey is the length in bytes of the longest [Request].Key.
const MaxKey = 255

// A Decision says which policies limit a request. All fields are zero if none
// does.
type Decision struct {
	// Bulkhead is the first matching policy with a bulkhead, or nil.
	Bulkhead *Rule
	// Breaker is the first matching policy with a breaker, or nil; it is
	// often the same as Bulkhead.
	Breaker *Rule
	// Exempt is the policy that exempts the request from all, or nil. If it
	// is set, Bulkhead and Breaker are nil.
	Exempt *Rule
	// BulkheadPattern is the path pattern of the entry by which the policy in
	// Bulkhead matched. Empty: it has none.
	BulkheadPattern string
	// BreakerPattern is the same for Breaker.
	BreakerPattern string
}

// Match finds the policies for a request: the first that matches and has a
// bulkhead, and the first that matches and has a breaker. A matching policy
// that is exempt ends both searches. It allocates nothing.
func (s *Set) Match(r *Request) Decision {
	var d Decision
	rules := s.server
	switch r.Side {
	case Server:
	case Client:
		rules = s.client
	default:
		return d
	}
	p := parts{
		request: r,
		method:  cmp.Or(r.Method, "GET"),
		path:    cmp.Or(r.EscapedPath, "/"),
		route:   splitRoute(r.Route),
	}
	p.escaped = strings.IndexByte(p.path, '%') >= 0
	p.host, p.port = splitHost(r.Host)
	for _, rule := range rules {
		bulkhead := rule.Bulkhead != nil && d.Bulkhead == nil
		breaker := rule.Breaker != nil && d.Breaker == nil
		if !bulkhead && !breaker && !rule.Exempt {
			continue
		}
		pattern, ok := rule.match(&p)
		if !ok {
			continue
		}
		if rule.Exempt {
			if d.Bulkhead == nil && d.Breaker == nil {
				d.Exempt = rule
			}
			return d
		}
		if bulkhead {
			d.Bulkhead, d.BulkheadPattern = rule, pattern
		}
		if breaker {
			d.Breaker, d.BreakerPattern = rule, pattern
		}
		if d.Bulkhead != nil && d.Breaker != nil {
			return d
		}
	}
	return d
}

// match returns the path pattern of the first entry that matches.
func (r *Rule) match(p *parts) (pattern string, ok bool) {
	if len(r.entries) == 0 {
		return "", true
	}
	for i := range r.entries {
		if e := &r.entries[i]; e.match(p) {
			return e.pattern, true
		}
	}
	return "", false
}

// An entry is a compiled Match: what is set must hold.
type entry struct {
	methods []string
	pattern string // the text of path; empty: any path
	path    pathPattern
	route   routePattern // no path: any route
	host    hostPattern  // no name: any host
	headers []headerValue
}

type headerValue struct{ name, value string }

// match asks the cheap questions first.
func (e *entry) match(p *parts) bool {
	if len(e.methods) > 0 && !slices.Contains(e.methods, p.method) {
		return false
	}
	if e.pattern != "" && !e.path.match(p.path, p.escaped) {
		return false
	}
	if e.host.name != "" && !e.host.match(p.request.Scheme, p.host, p.port) {
		return false
	}
	if e.route.path != "" && !e.route.match(&p.route, p.method, p.host) {
		return false
	}
	for i := range e.headers {
		h := &e.headers[i]
		if !slices.Contains(p.request.Header[h.name], h.value) {
			return false
		}
	}
	return true
}

// parts are a request taken apart, once for all policies.
type parts struct {
	request    *Request
	method     string
	path       string
	escaped    bool // path has an escape
	route      routePattern
	host, port string
}
