package policy

import (
	"errors"
	"strings"
)

// A routePattern is a route's pattern as a router reports it, in parts: ServeMux
// reports "GET example.com/a/{id}" as it was registered, chi "/a/{id}".
type routePattern struct {
	method, host, path string
}

// splitRoute cuts a pattern into its parts. What starts with a slash is all path,
// since a router's own syntax may have spaces in a path, as in "/{id:[a-z ]+}".
func splitRoute(s string) routePattern {
	var p routePattern
	if i := strings.IndexAny(s, "/ \t"); i >= 0 && s[i] != '/' {
		p.method, s = s[:i], strings.TrimLeft(s[i:], " \t")
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		p.host, p.path = s[:i], s[i:]
	}
	return p
}

func parseRoute(s string) (routePattern, error) {
	switch p := splitRoute(s); {
	case s == "":
		return p, errors.New("it is empty; leave route out to match every route")
	case p.path == "":
		return p, errors.New(`it must have a path, as in "/reports/{id}" or "GET /reports/{id}"`)
	case p.method != "" && !isToken(p.method), strings.ContainsAny(p.host, " \t"):
		return p, errors.New(`what is before the path must be a method, a host, or both, as in "GET example.com/reports/{id}"`)
	default:
		p.host = lower(p.host)
		return p, nil
	}
}

// match compares the path, and the method and the host if p has them: with those
// of the reported route, or where that has none, with the request's.
func (p *routePattern) match(reported *routePattern, method, host string) bool {
	if reported.path != p.path {
		return false
	}
	if reported.method != "" {
		method = reported.method
	}
	if reported.host != "" {
		host = reported.host
	}
	return (p.method == "" || p.method == method) && (p.host == "" || equalLower(host, p.host))
}
