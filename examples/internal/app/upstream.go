package app

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// upstreamName allows what needs no escape in a path, so that there is one way
// to write it.
var upstreamName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ParseUpstream takes NAME=URL apart, as the flag -upstream has it.
func ParseUpstream(s string) (name, base string, err error) {
	name, base, ok := strings.Cut(s, "=")
	if !ok {
		return "", "", errors.New("want NAME=URL")
	}
	_, err = parseUpstream(name, base)
	return name, base, err
}

func parseUpstreams(upstreams map[string]string) (map[string]*url.URL, error) {
	parsed := make(map[string]*url.URL, len(upstreams))
	for name, base := range upstreams {
		u, err := parseUpstream(name, base)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		parsed[name] = u
	}
	return parsed, nil
}

func parseUpstream(name, base string) (*url.URL, error) {
	if !upstreamName.MatchString(name) {
		return nil, fmt.Errorf("name %q: want letters, digits, and . _ - after the first", name)
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("URL %q: want http://HOST:PORT or https://HOST:PORT", u.Redacted())
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("URL %q: must have no user, query or fragment", u.Redacted())
	}
	return u, nil
}
