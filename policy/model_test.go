package policy_test

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

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
		host, port = strings.Trim(r.Host, "[]"), map[string]string{"http": "80", "https": "443"}[r.Scheme]
	}
	port = strings.TrimLeft(port, "0")
	host = strings.Map(func(c rune) rune {
		if c < unicode.MaxASCII {
			return unicode.ToLower(c)
		}
		return c
	}, strings.TrimSuffix(host, "."))
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
	if e.PathText != (policy.Text{}) && !m.text(e.PathText, m.unescape(m.orSlash(r.EscapedPath))) {
		return false
	}
	for name, want := range e.HeaderText {
		if !slices.ContainsFunc(r.Header.Values(name), func(v string) bool { return m.text(want, v) }) {
			return false
		}
	}
	query, _ := url.ParseQuery(r.RawQuery)
	for name, want := range e.Query {
		if !slices.ContainsFunc(query[name], func(v string) bool { return m.text(want, v) }) {
			return false
		}
	}
	return !slices.ContainsFunc(e.Not, func(not policy.Match) bool { return m.entry(not, r) })
}

func (model) text(want policy.Text, got string) bool {
	return (want.Exact == "" || got == want.Exact) &&
		strings.HasPrefix(got, want.Prefix) && strings.HasSuffix(got, want.Suffix) && strings.Contains(got, want.Contains) &&
		regexp.MustCompile(want.Regexp).MatchString(got)
}

func (model) orSlash(path string) string { return cmp.Or(path, "/") }

func (model) unescape(text string) string {
	if u, err := url.PathUnescape(text); err == nil {
		return u
	}
	return text
}

func (m model) path(pattern, escaped string) bool {
	escaped = m.orSlash(escaped)
	if escaped[0] != '/' {
		return false
	}
	// The slash at the end of a path is a segment, and %2F is the same.
	segments := strings.Split(escaped, "/")[1:]
	for i, s := range segments {
		if segments[i] = m.unescape(s); s == "" && i == len(segments)-1 {
			segments[i] = "/"
		}
	}
	for want := range strings.SplitSeq(pattern[1:], "/") {
		if len(segments) == 0 {
			return false
		}
		switch {
		case want == "" || strings.HasSuffix(want, "...}"):
			return true
		case want == "{$}":
			return len(segments) == 1 && segments[0] == "/"
		case strings.HasPrefix(want, "{"):
			if segments[0] == "/" {
				return false
			}
		case segments[0] != m.unescape(want):
			return false
		}
		segments = segments[1:]
	}
	return len(segments) == 0
}

func (model) host(pattern, host, port string) bool {
	name, wantPort, err := net.SplitHostPort(pattern)
	if err != nil {
		name = strings.Trim(pattern, "[]")
	}
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
	sides     = rapid.SampledFrom([]policy.Side{policy.Both, policy.Server, policy.Client})
	methods   = rapid.SampledFrom([]string{"GET", "HEAD", "POST"})
	literals  = rapid.SampledFrom([]string{"a", "b", "c", "a%2Fb", "%61", "%2F", "é"})
	wildcards = rapid.SampledFrom([]string{"{x%d}", "{y%d}"})
	ends      = rapid.SampledFrom([]string{"", "", "", "/", "/{$}", "/{rest...}"})
	segments  = rapid.SampledFrom([]string{"a", "b", "c", "a%2Fb", "a%2fb", "%61", "%2F", "%C3%A9", "", "d"})
	hostRules = rapid.SampledFrom([]string{"a.test", "*.test", "*.a.test", "a.test:80", "*.test:443", "b.test:8080", "*.test:8080", "x.a.test", "test", "*.x.a.test", "[::1]:80", "*.é"})
	hosts     = rapid.SampledFrom([]string{"a.test", "A.TEST.", "b.test:8080", "x.a.test", "X.A.test:443", "a.test:443", "a.test:080", "test", ".test", "y.x.a.test:8080", "[::1]:80", "[::1]", "", "a.b.É", strings.Repeat("a.", 200) + "test", strings.Repeat("a", 300) + ".a.test"})
	routes    = rapid.SampledFrom([]string{"/a/{id}", "GET /a/{id}", "a.test/a/{id}", "POST a.test/a/{id}", "/b"})

	headerNames = rapid.SampledFrom([]string{"X-Plan", "X-Tenant"})
	values      = rapid.SampledFrom([]string{"", "a", "b", "ab", "ba"})
	parameters  = rapid.SampledFrom([]string{"a", "b", "a b", "é"})
	pairs       = rapid.SampledFrom([]string{"a=a", "a=b", "a=ab", "%61=b%61", "a+b=a", "a%20b=%61%62", "b", "b=", "=a", "", "a=%zz", "%zz=a", "a;b=a", "a=b;", "%C3%A9=a+b", "a=a=b", "a%=a"})
	textRules   = rapid.SampledFrom([]policy.Text{
		{}, {Exact: "a"}, {Exact: "ab"}, {Prefix: "a"}, {Suffix: "b"}, {Contains: "a"}, {Contains: "bc"}, {Regexp: "^a*$"}, {Regexp: "b"}, {Prefix: "a", Suffix: "a"}, {Exact: "ab", Contains: "b"},
	})
	pathRules = rapid.SampledFrom([]policy.Text{
		{Exact: "/"}, {Exact: "/a"}, {Exact: "/a/b"}, {Exact: "/a/b/c"}, {Exact: "*"}, {Exact: "/é"}, {Prefix: "/"}, {Prefix: "/a"}, {Prefix: "/a/b"}, {Prefix: "/a/b/"}, {Prefix: "/a/c"}, {Prefix: "/b"},
		{Suffix: "a"}, {Suffix: "/b"}, {Suffix: "a/b"}, {Suffix: "/"}, {Suffix: "c"}, {Contains: "b"}, {Contains: "//"}, {Regexp: "^/[ab]/"}, {Regexp: "c$"},
		{Prefix: "/a", Suffix: "b"}, {Prefix: "/a", Contains: "c"}, {Suffix: "b", Regexp: "^/a"}, {Exact: "/a/b", Suffix: "b"},
	})
)

var patterns = rapid.Custom(func(t *rapid.T) string {
	p := ""
	for i := range rapid.IntRange(0, 4).Draw(t, "segments") {
		segment := literals.Draw(t, "literal")
		if rapid.Bool().Draw(t, "wild") {
			segment = fmt.Sprintf(wildcards.Draw(t, "wildcard"), i)
		}
		p += "/" + segment
	}
	return cmp.Or(p+ends.Draw(t, "end"), "/")
})

var paths = rapid.Custom(func(t *rapid.T) string {
	if rapid.IntRange(0, 20).Draw(t, "odd") == 0 {
		return rapid.SampledFrom([]string{"", "*", "/"}).Draw(t, "path")
	}
	return "/" + strings.Join(rapid.SliceOfN(segments, 0, 5).Draw(t, "segments"), "/")
})

func sometimes[T any](t *rapid.T, name string, g *rapid.Generator[T]) (v T) {
	if rapid.Bool().Draw(t, name+"?") {
		v = g.Draw(t, name)
	}
	return v
}

var matches = rapid.Custom(func(t *rapid.T) policy.Match {
	m := conditions.Draw(t, "conditions")
	m.Not = sometimes(t, "not", rapid.SliceOfN(conditions, 1, 2))
	return m
})

// conditions are an entry without not, and with one thing at least.
var conditions = rapid.Custom(func(t *rapid.T) (m policy.Match) {
	for {
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			m.Method = rapid.SliceOfN(methods, 1, 3).Draw(t, "method")
		case 1, 2:
			m.Path = patterns.Draw(t, "path")
		case 3:
			m.PathText = pathRules.Draw(t, "path")
		case 4, 5:
			m.Host = hostRules.Draw(t, "host")
		case 6:
			m.Headers, m.HeaderText = rapid.MapOfN(headerNames, values, 1, 2).Draw(t, "headers"), nil
		case 7:
			m.Headers, m.HeaderText = nil, rapid.MapOfN(headerNames, textRules, 1, 2).Draw(t, "headers")
		case 8:
			m.Query = rapid.MapOfN(parameters, textRules, 1, 2).Draw(t, "query")
		}
		if rapid.Bool().Draw(t, "enough") {
			return m
		}
	}
})

var policies = rapid.Custom(func(t *rapid.T) policy.Policy {
	p := policy.Policy{
		Side:  sides.Draw(t, "side"),
		Match: sometimes(t, "match", rapid.SliceOfN(matches, 1, 3)),
	}
	if p.Side != policy.Client && len(p.Match) > 0 {
		p.Match[0].Route = sometimes(t, "route", routes)
		for i := range p.Match[0].Not {
			p.Match[0].Not[i].Route = sometimes(t, "route", routes)
		}
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
		Scheme:      rapid.SampledFrom([]string{"http", "https", "ws"}).Draw(t, "scheme"),
		Host:        hosts.Draw(t, "host"),
		EscapedPath: paths.Draw(t, "path"),
		RawQuery:    strings.Join(rapid.SliceOfN(pairs, 0, 4).Draw(t, "query"), "&"),
		Header:      http.Header{},
	}
	if rapid.Bool().Draw(t, "decoded") {
		r.Path = model{}.unescape(r.EscapedPath)
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
		list := rapid.SliceOfN(policies, 0, 12).Draw(t, "policies")
		for i := range list {
			list[i].Name = fmt.Sprint(i)
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		for range 8 {
			r := requests.Draw(t, "request")
			d := set.Match(r)
			require.Equal(t, model(list).match(r), outcome(d))
			require.Equal(t, policy.MatchLinear(set, r), d)
		}
	})
}

// TestMatchAmongMany is the same for so many policies that all parts of the index have
// much to tell apart. The model would take too long; what is held against the index is
// each policy by itself, on which it agrees with the model.
func TestMatchAmongMany(t *testing.T) {
	for seed := range 8 {
		var list []policy.Policy
		for i := range 6000 {
			p := policies.Example(10_000*seed + i)
			if slices.ContainsFunc(p.Match, isBroad) || len(p.Match) == 0 {
				continue // it would leave nothing for those behind
			}
			p.Name = fmt.Sprint(i)
			list = append(list, p)
		}
		set, err := policy.New(policy.Config{Policies: list})
		require.NoError(t, err)
		found := map[string]bool{}
		for i := range 1000 {
			r := requests.Example(10_000*seed + i)
			want := policy.MatchLinear(set, r)
			require.Equal(t, want, set.Match(r), "%+v", r)
			found[fmt.Sprint(outcome(want))] = true
		}
		require.Greater(t, len(found), 60, "these requests tell too little apart")
	}
}

// isBroad reports whether an entry asks for less than two things, or for almost nothing.
func isBroad(m policy.Match) bool {
	things := 0
	for _, asked := range []bool{
		len(m.Method) > 0, len(m.Path) > len("/{x0}/"), len(m.PathText.Exact+m.PathText.Prefix+m.PathText.Suffix) > len("/a"),
		len(m.Host) > len("*.test"), len(m.Headers) > 0, len(m.HeaderText) > 1, len(m.Query) > 0,
	} {
		if asked {
			things++
		}
	}
	return things < 2
}
