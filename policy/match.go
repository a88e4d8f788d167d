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
	// Path is [net/url.URL.Path]. Empty: what EscapedPath decodes to, which may
	// have to be allocated.
	Path string
	// RawQuery is [net/url.URL.RawQuery].
	RawQuery string
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
func (s *Set) Match(r *Request) (d Decision) {
	ix := &s.server
	switch r.Side {
	case Server:
	case Client:
		if s.hosted && r.Host == "" {
			return d
		}
		ix = &s.client
	default:
		return d
	}
	bulkhead, breaker := ix.find(r)
	if bulkhead != nil && bulkhead == breaker && bulkhead.rule.Exempt {
		d.Exempt = bulkhead.rule
		return d
	}
	// One that is exempt ended this search, but was not the first to match.
	if bulkhead != nil && !bulkhead.rule.Exempt {
		d.Bulkhead, d.BulkheadPattern = bulkhead.rule, bulkhead.pattern()
	}
	if breaker != nil && !breaker.rule.Exempt {
		d.Breaker, d.BreakerPattern = breaker.rule, breaker.pattern()
	}
	return d
}

// An entry is a compiled Match: what is set must hold.
type entry struct {
	methods []string
	pattern string // the text of path; empty: any path
	path    pathPattern
	text    condition    // of the decoded path; none: any path
	route   routePattern // no path: any route
	host    hostPattern  // no name: any host
	headers []valueCondition
	query   []valueCondition
	not     []entry
	caller  string // of a ServiceComb file: the service that calls a server; empty: any
}

// A valueCondition is what a value of the header or parameter with that name must
// fulfil.
type valueCondition struct {
	name string
	condition
}

// match asks the cheap questions first.
func (e *entry) match(p *parts) bool {
	if len(e.methods) > 0 && !slices.Contains(e.methods, p.method) {
		return false
	}
	if e.pattern != "" && !e.path.match(p.path, p.escaped) {
		return false
	}
	if e.host.name != "" {
		if name, port := p.hostParts(); !e.host.match(p.scheme, name, port) {
			return false
		}
	}
	if e.route.path != "" {
		if name, _ := p.hostParts(); !e.route.match(p.routeParts(), p.method, name) {
			return false
		}
	}
	if len(e.text) > 0 && !e.text.match(p.decodedPath()) {
		return false
	}
	for i := range e.headers {
		if h := &e.headers[i]; !h.matchAny(p.header[h.name]) {
			return false
		}
	}
	if e.caller != "" && !calledBy(p.header, e.caller) {
		return false
	}
	for i := range e.query {
		if !matchQuery(p.query, &e.query[i]) {
			return false
		}
	}
	for i := range e.not {
		if e.not[i].match(p) {
			return false
		}
	}
	return true
}

// parts are a request taken apart, once for all policies, and no further than they
// ask. They do not hold the request itself, which would then have to be allocated.
type parts struct {
	method, scheme string
	path           string
	escaped        bool   // path has an escape
	text           string // path, decoded; empty: not yet known
	query          string
	header         http.Header

	rawHost    string
	host, port string
	split      bool // host and port are known

	rawRoute string
	route    routePattern // no path: not yet known
	hasRoute bool
}

func (p *parts) take(r *Request) {
	p.method = cmp.Or(r.Method, http.MethodGet)
	p.scheme = r.Scheme
	p.path = cmp.Or(r.EscapedPath, "/")
	p.escaped = strings.IndexByte(p.path, '%') >= 0
	p.text = r.Path
	p.query = r.RawQuery
	p.header = r.Header
	p.rawHost = r.Host
	p.rawRoute = r.Route
	p.hasRoute = r.Route != ""
}

func (p *parts) decodedPath() string {
	if p.text == "" {
		p.text = unescape(p.path)
	}
	return p.text
}

// hostParts returns the host as splitHost does.
func (p *parts) hostParts() (name, port string) {
	if !p.split {
		p.host, p.port = splitHost(p.rawHost)
		p.split = true
	}
	return p.host, p.port
}

func (p *parts) routeParts() *routePattern {
	if p.route.path == "" && p.hasRoute {
		p.route = splitRoute(p.rawRoute)
	}
	return &p.route
}
