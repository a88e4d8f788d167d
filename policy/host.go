package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A hostPattern matches one host or, if below is set, every host below it.
type hostPattern struct {
	name  string // lower-case, no brackets, no dots at the end
	port  string // empty: any
	below bool
}

// parseHost compiles s, or says in the error why s is not a host and what would
// be one.
func parseHost(s string) (hostPattern, error) {
	var p hostPattern
	switch {
	case s == "":
		return p, errors.New("it is empty; leave host out to match every host")
	case s == "*":
		return p, errors.New("it is no host; leave host out to match every host")
	case strings.Contains(s, "://"):
		return p, fmt.Errorf("a scheme does not belong in host; write %s", bare(trimURL(s)))
	case strings.ContainsAny(s, "/?#"):
		return p, fmt.Errorf("a path does not belong in host; write %s, and the path under path", bare(trimURL(s)))
	case strings.Contains(s, "@"):
		return p, errors.New("a user does not belong in host; write only what follows the @")
	case strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || strings.ContainsRune("\x7f%,;{}\"'\\", c) }):
		return p, errors.New(`it is not a host; write one such as "payments.internal", "*.internal" or "[::1]:8080"`)
	}
	host, below := strings.CutPrefix(s, "*.")
	name, port := splitHost(host)
	if port == "" && strings.HasSuffix(host, ":") {
		return p, errors.New("the port is missing; write it, or leave the colon out for any port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return p, fmt.Errorf("%s is not a port; it must be 1 to 65535", quote(port))
	}
	switch name = lower(name); {
	case strings.Contains(name, "*"):
		return p, errors.New(`a * may only stand for what is before the first dot, as in "*.internal"`)
	case name == "":
		return p, errors.New(`the name is missing; write one such as "payments.internal" or "*.internal"`)
	case strings.ContainsAny(name, "[]") || len(name) > maxHostName:
		return p, errors.New(`it is not a host; write one such as "payments.internal", "*.internal" or "[::1]:8080"`)
	case strings.Contains(name, ":"):
		addr, err := netip.ParseAddr(name)
		if err != nil || below {
			return p, fmt.Errorf("%s is not an IPv6 address", quote(name))
		}
		if host[0] != '[' || addr.String() != name {
			// Requests are compared as text, so only one way to write it can match.
			return p, fmt.Errorf("an IPv6 address must be in brackets and in its shortest form; write %s", quote("["+addr.String()+"]"))
		}
	}
	return hostPattern{name: name, port: port, below: below}, nil
}

// trimURL returns what is most likely the host in s.
func trimURL(s string) string {
	if i := strings.Index(s, "://"); i >= 0 {
		s = s[i+3:]
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		s = s[:i]
	}
	return s
}

// match reports whether the pattern matches a host as splitHost returns it. An
// empty port is the default of the scheme; with an empty scheme that may be 80
// or 443.
func (p *hostPattern) match(scheme, name, port string) bool {
	if p.port != "" && p.port != port {
		if port != "" || p.port != "80" && p.port != "443" {
			return false
		}
		if d := defaultPort(scheme); scheme != "" && d != p.port {
			return false
		}
	}
	if p.below {
		cut := len(name) - len(p.name)
		return cut > 1 && name[cut-1] == '.' && equalLower(name[cut:], p.name) && !isAddress(name)
	}
	return equalLower(name, p.name)
}

// isAddress reports whether a name is, or looks like, an IPv6 address. Such a one is
// below no host, whatever it ends with.
func isAddress(name string) bool { return strings.IndexByte(name, ':') >= 0 }

// equalLower reports whether s in lower case is lower. Only ASCII has case here,
// as in the names of hosts.
func equalLower(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		if toLower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

// lower returns s in lower case, in the sense of equalLower.
func lower(s string) string { return string(appendLower(nil, s, len(s))) }

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// defaultPort returns the port of http and https, and "" for other schemes.
func defaultPort(scheme string) string {
	switch {
	case equalLower(scheme, "http"):
		return "80"
	case equalLower(scheme, "https"):
		return "443"
	}
	return ""
}

// splitHost cuts "name:port" into its parts. The name loses the brackets of an
// IPv6 address and dots at its end; the port loses zeros at its front, and is
// empty if there is none. Whatever has colons and is not of that form is a name.
func splitHost(host string) (name, port string) {
	name = host
	switch colon := strings.IndexByte(host, ':'); {
	case strings.HasPrefix(host, "["):
		end := strings.IndexByte(host, ']')
		if end == len(host)-1 {
			name = host[1:end]
		} else if end > 0 && strings.LastIndexByte(host, ':') == end+1 {
			name, port = host[1:end], host[end+2:]
		}
	case colon >= 0 && strings.LastIndexByte(host, ':') == colon:
		name, port = host[:colon], host[colon+1:]
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:]
	}
	for strings.HasSuffix(name, ".") {
		name = name[:len(name)-1]
	}
	return name, port
}
