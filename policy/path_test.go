package policy_test

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// pathMatcher returns a function that reports whether a policy with that path
// pattern matches an escaped path.
func pathMatcher(pattern string) (func(escaped string) bool, error) {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "p",
		Match:    []policy.Match{{Path: pattern}},
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		return nil, err
	}
	return func(escaped string) bool {
		return set.Match(&policy.Request{Side: policy.Server, EscapedPath: escaped}).Bulkhead != nil
	}, nil
}

func TestPathMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"/healthz", []string{"/healthz", "/%68ealthz"}, []string{"/", "/healthz/", "/healthzz", "/Healthz", "/a/healthz", "//healthz"}},
		{"/", []string{"/", "", "/a", "//", "/a/b/", "/%2F"}, []string{"*", "a"}},
		{"/{$}", []string{"/", ""}, []string{"/a", "//"}},
		{"/a/", []string{"/a/", "/a/b", "/a//", "/a/b/c"}, []string{"/a", "/ab/"}},
		{"/a/{$}", []string{"/a/"}, []string{"/a", "/a/b"}},
		{"/a/{id}", []string{"/a/b", "/a/b%20c", "/a/%252F", "/a/b%2Fc", "/a/%zz", "/a/%4"}, []string{"/a", "/a/", "/a/b/", "/a/b/c"}},
		{"/a/{id}/c", []string{"/a/b/c", "/a//c"}, []string{"/a/b/d", "/a/c", "/a/b/c/"}},
		{"/a/{rest...}", []string{"/a/", "/a/b", "/a/b/c/"}, []string{"/a"}},
		{"/{a}/{b}/{rest...}", []string{"/x/y/", "/x/y/z"}, []string{"/x/y"}},
		{"/caf%C3%A9", []string{"/caf%C3%A9", "/caf%c3%a9", "/caf\u00e9"}, []string{"/caf%C3", "/cafe"}},
		{"/café", []string{"/caf%C3%A9"}, nil},
		{"/100%", []string{"/100%", "/100%25"}, []string{"/100"}},
		{"/a b", nil, nil},
		// As in ServeMux, an escaped slash alone in its segment is not told from
		// the slash that ends a path.
		{"/a/{b}", []string{"/a/x%2F"}, []string{"/a/%2F", "/a/%2f"}},
	} {
		match, err := pathMatcher(tt.pattern)
		if tt.yes == nil && tt.no == nil {
			assert.Error(t, err, tt.pattern)
			continue
		}
		require.NoError(t, err)
		for _, p := range tt.yes {
			assert.True(t, match(p), "pattern %s, path %s", tt.pattern, p)
		}
		for _, p := range tt.no {
			assert.False(t, match(p), "pattern %s, path %s", tt.pattern, p)
		}
	}
}

// serveMux is the model: it reports whether a ServeMux with that one pattern
// serves a request by the pattern, or that the pattern is refused.
func serveMux(pattern string) (serves func(method string, u *url.URL) bool, refused bool) {
	h := new(marker)
	mux := http.NewServeMux()
	defer func() { refused = recover() != nil }()
	mux.Handle(pattern, h)
	return func(method string, u *url.URL) bool {
		got, _ := mux.Handler(&http.Request{Method: method, URL: u})
		return got == http.Handler(h) // else it is a redirect, a 404 or a 405
	}, false
}

// A marker can be told from every other handler.
type marker struct{ _ byte }

func (*marker) ServeHTTP(http.ResponseWriter, *http.Request) {}

// checkPath compares one pattern and one path with ServeMux.
//
// A ServeMux cleans the path of a request first, and redirects if that changed
// it; only for CONNECT it does not. So CONNECT shows the matching alone, on any
// path, and where the path is clean a GET must agree. The trailing-slash redirect
// it does for both shows as another handler, which is "no match", as it should be.
func checkPath(t require.TestingT, pattern, escaped string) {
	match, err := pathMatcher(pattern)
	serves, refused := serveMux(pattern)
	if refused {
		// It may also have a method or a host, which are no part of path here.
		require.Error(t, err, "ServeMux refuses pattern %q", pattern)
		return
	}
	if err != nil {
		require.False(t, acceptable(pattern), "pattern %q: %v", pattern, err)
		return
	}
	unescaped, err := url.PathUnescape(escaped)
	if err != nil {
		unescaped, escaped = escaped, ""
	}
	u := &url.URL{Path: unescaped, RawPath: escaped}
	escaped = u.EscapedPath()
	if !strings.HasPrefix(escaped, "/") {
		return // the parsers of net/http let no other path through, except *
	}
	require.Equal(t, serves("CONNECT", u), match(escaped), "pattern %q, path %q", pattern, escaped)
	if clean(escaped) {
		require.Equal(t, serves("GET", u), match(escaped), "GET: pattern %q, path %q", pattern, escaped)
	}
}

// acceptable reports whether a pattern that ServeMux accepts is one that a policy
// must accept too: not one that no request can match.
func acceptable(pattern string) bool {
	return strings.HasPrefix(pattern, "/") && clean(pattern) &&
		!strings.Contains(pattern, "?") && !strings.ContainsFunc(pattern, unicode.IsControl)
}

func clean(p string) bool {
	c := path.Clean(p)
	return p == c || c != "/" && p == c+"/"
}

func TestPathMatchesLikeServeMux(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "A", "%61", "%2F", "%2f", "a%2Fb", "%25", "%", "%zz", "é", "%C3%A9", "", ".", "..", "a b", "{", "}", "?", "*", ":id", "+"})
	wild := rapid.SampledFrom([]string{"{a}", "{b}", "{c...}", "{$}", "{}", "{a", "a{b}", "{1}", "{ä1_}", "{a.b}", "{...}", "{a:x}"})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(segment, wild), 0, 5).Draw(t, "pattern")
		pattern := rapid.SampledFrom([]string{"/", "/", "/", "/", "", "h/", "GET /"}).Draw(t, "start") + strings.Join(parts, "/")
		// Half of the paths are made from the pattern, or few would match.
		var segments []string
		if rapid.Bool().Draw(t, "like") {
			for _, p := range parts {
				switch {
				case p == "{$}":
					p = ""
				case strings.HasPrefix(p, "{"):
					p = segment.Draw(t, "value")
				}
				segments = append(segments, p)
			}
		} else {
			segments = rapid.SliceOfN(segment, 0, 5).Draw(t, "path")
		}
		checkPath(t, pattern, "/"+strings.Join(segments, "/"))
	})
}

func FuzzPathMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{"/", "/"}, {"/a/{id}", "/a/%2F"}, {"/a/{$}", "/a/"}, {"/a/{rest...}", "/a/b//c"},
		{"/{a}/{a}", "/x/y"}, {"/a//b", "/a//b"}, {"/%2F", "/"}, {"/%zz", "/%zz"}, {"GET /a", "/a"}, {"h/a", "/a"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, escaped string) { checkPath(t, pattern, escaped) })
}
