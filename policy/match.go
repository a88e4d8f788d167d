package policy

import "net/http"

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
}

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
	return Decision{}
}

type entry struct{}
