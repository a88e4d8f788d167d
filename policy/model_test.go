package policy_test

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// model matches requests the plain way: it reads the policies as they were
// written, each time anew, with whatever the standard library has for it.
type model []policy.Policy

func (m model) match(r *policy.Request) [3]string {
	var found [3]string
	for _, p := range m {
		if p.Side != policy.Both && p.Side != r.Side {
			continue
		}
		matches := len(p.Match) == 0
		for _, e := range p.Match {
			matches = matches || m.entry(e, r)
		}
		if !matches {
			continue
		}
		if p.Exempt {
			if found == [3]string{} {
				found[2] = p.Name
			}
			break
		}
		if p.Bulkhead != nil && found[0] == "" {
			found[0] = p.Name
		}
		if p.Breaker != nil && found[1] == "" {
			found[1] = p.Name
		}
	}
	return found
}

func (m model) entry(e policy.Match, r *policy.Request) bool {
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	if len(e.Method) > 0 && !slices.Contains(e.Method, method) {
		return false
	}
	if e.Path != "" && !m.path(e.Path, r.EscapedPath) {
		return false
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, map[string]string{"http": "80", "https": "443"}[r.Scheme]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if e.Host != "" && !m.host(e.Host, host, port) {
		return false
	}
	if e.Route != "" && (r.Route == "" || !m.route(e.Route, r.Route, method, host)) {
		return false
	}
	for name, value := range e.Headers {
		if !slices.Contains(r.Header.Values(name), value) {
			return false
		}
	}
	return true
}

// path knows the patterns of the generator below, which have no escapes.
func (model) path(pattern, escaped string) bool {
	if escaped == "" {
		escaped = "/"
	}
	p, segments := strings.Split(pattern, "/")[1:], strings.Split(escaped, "/")[1:]
	for i, want := range p {
		rest := want == "" || strings.HasSuffix(want, "...}")
		if i == len(segments) {
			return false
		}
		if rest {
			return true
		}
		got, _ := url.PathUnescape(segments[i])
		last := i == len(segments)-1
		switch {
		case want == "{$}":
			if got != "" || !last {
				return false
			}
		case strings.HasPrefix(want, "{"):
			if got == "" && last {
				return false
			}
		case got != want:
			return false
		}
	}
	return len(p) == len(segments)
}

func (model) host(pattern, host, port string) bool {
	name, wantPort, _ := strings.Cut(pattern, ":")
	if wantPort != "" && wantPort != port {
		return false
	}
	if below, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasSuffix(host, below) && host != below
	}
	return host == name
}

func (model) route(want, got, method, host string) bool {
	split := func(s string) (method, host, path string) {
		if m, rest, ok := strings.Cut(s, " "); ok {
			method, s = m, rest
		}
		slash := strings.Index(s, "/")
		return method, s[:slash], s[slash:]
	}
	wantMethod, wantHost, wantPath := split(want)
	gotMethod, gotHost, gotPath := split(got)
	if gotMethod == "" {
		gotMethod = method
	}
	if gotHost == "" {
		gotHost = host
	}
	return wantPath == gotPath && (wantMethod == "" || wantMethod == gotMethod) && (wantHost == "" || wantHost == gotHost)
}

var (
	sides       = rapid.SampledFrom([]policy.Side{policy.Both, policy.Server, policy.Client})
	methods     = rapid.SampledFrom([]string{"GET", "HEAD", "POST"})
	patterns    = rapid.SampledFrom([]string{"/", "/{$}", "/a", "/a/", "/a/{id}", "/{x}/b", "/a/{rest...}", "/{x}/{y}/c"})
	paths       = rapid.SampledFrom([]string{"", "/", "/a", "/%61", "/a/", "/a/b", "/b/b", "/a//", "/a/b/c", "/a/b%2Fc", "/a/x/d"})
	hostRules   = rapid.SampledFrom([]string{"a.test", "*.test", "*.a.test", "a.test:80", "*.test:443", "b.test:8080"})
	hosts       = rapid.SampledFrom([]string{"a.test", "A.TEST.", "b.test:8080", "x.a.test", "a.test:443", "a.test:80", "test", "[::1]:80"})
	routes      = rapid.SampledFrom([]string{"/a/{id}", "GET /a/{id}", "a.test/a/{id}", "POST a.test/a/{id}", "/b"})
	headerNames = rapid.SampledFrom([]string{"X-Plan", "X-Tenant"})
	values      = rapid.SampledFrom([]string{"", "a", "b"})
)

func sometimes[T any](t *rapid.T, name string, g *rapid.Generator[T]) (v T) {
	if rapid.Bool().Draw(t, name+"?") {
		v = g.Draw(t, name)
	}
	return v
}

var matches = rapid.Custom(func(t *rapid.T) policy.Match {
	m := policy.Match{
		Method:  sometimes(t, "method", rapid.SliceOfN(methods, 1, 2)),
		Path:    sometimes(t, "path", patterns),
		Host:    sometimes(t, "host", hostRules),
		Headers: sometimes(t, "headers", rapid.MapOfN(headerNames, values, 1, 2)),
	}
	if len(m.Method) == 0 && m.Path == "" && m.Host == "" && len(m.Headers) == 0 {
		m.Path = patterns.Draw(t, "path")
	}
	return m
})

var policies = rapid.Custom(func(t *rapid.T) policy.Policy {
	p := policy.Policy{
		Side:  sides.Draw(t, "side"),
		Match: sometimes(t, "match", rapid.SliceOfN(matches, 1, 3)),
	}
	if p.Side != policy.Client && len(p.Match) > 0 {
		p.Match[0].Route = sometimes(t, "route", routes)
	}
	switch what := rapid.IntRange(0, 6).Draw(t, "what"); what {
	case 0:
		p.Exempt = true
	case 1, 2:
		p.Bulkhead = &policy.Bulkhead{MaxConcurrent: 1}
	case 3, 4:
		p.Breaker = &policy.Breaker{}
	default:
		p.Bulkhead, p.Breaker = &policy.Bulkhead{MaxConcurrent: 1}, &policy.Breaker{}
	}
	return p
})

var requests = rapid.Custom(func(t *rapid.T) *policy.Request {
	r := &policy.Request{
		Side:        rapid.SampledFrom([]policy.Side{policy.Server, policy.Client}).Draw(t, "side"),
		Method:      sometimes(t, "method", methods),
		Scheme:      rapid.SampledFrom([]string{"http", "https"}).Draw(t, "scheme"),
		Host:        hosts.Draw(t, "host"),
		EscapedPath: paths.Draw(t, "path"),
		Header:      http.Header{},
	}
	for name, v := range sometimes(t, "headers", rapid.MapOfN(headerNames, rapid.SliceOfN(values, 0, 2), 0, 2)) {
		r.Header[name] = v
	}
	if r.Side == policy.Server {
		r.Route = sometimes(t, "route", routes)
	}
	return r
})

func TestMatchAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(policies, 0, 6).Draw(t, "policies")
		for i := range list {
			list[i].Name = string(rune('a' + i))
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		for range 8 {
			r := requests.Draw(t, "request")
			require.Equal(t, model(list).match(r), outcome(set.Match(r)))
		}
	})
}
