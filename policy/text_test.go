package policy_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// asks returns a set of one policy with one entry.
func asks(t require.TestingT, m policy.Match) func(policy.Request) bool {
	set := mustNew(t, policy.Policy{Name: "p", Match: []policy.Match{m}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}})
	return func(r policy.Request) bool {
		r.Side = policy.Server
		return set.Match(&r).Bulkhead != nil
	}
}

func TestConditionsOnATextOfAllKinds(t *testing.T) {
	for _, tt := range []struct {
		text    policy.Text
		yes, no []string
	}{
		{policy.Text{}, []string{"", "a"}, nil},
		{policy.Text{Exact: "a"}, []string{"a"}, []string{"A", "", "aa"}},
		{policy.Text{Prefix: "v1"}, []string{"v1", "v10"}, []string{"v", "av1", "V1"}},
		{policy.Text{Suffix: ".json"}, []string{".json", "a.json"}, []string{"a.json/", "json", "a.JSON"}},
		{policy.Text{Contains: "b"}, []string{"b", "abc"}, []string{"", "ac", "aBc"}},
		{policy.Text{Regexp: "b"}, []string{"abc", "b"}, []string{"ac"}},
		{policy.Text{Regexp: "^[a-c]+$"}, []string{"abc"}, []string{"abcd", ""}},
		{policy.Text{Regexp: "(?i)^ABC$"}, []string{"abc", "aBc"}, []string{"abcd"}},
		{policy.Text{Prefix: "v1", Suffix: "s", Contains: "am", Regexp: "^.{8}$"}, []string{"v1/teams"}, []string{"v1/teams/", "v1/seams2", "v1/taems", "v2/teams"}},
		{policy.Text{Exact: "ab", Prefix: "a"}, []string{"ab"}, []string{"a", "abc"}},
	} {
		byHeader := asks(t, policy.Match{HeaderText: map[string]policy.Text{"x-plan": tt.text}})
		byQuery := asks(t, policy.Match{Query: map[string]policy.Text{"plan": tt.text}})
		for want, texts := range map[bool][]string{true: tt.yes, false: tt.no} {
			for _, text := range texts {
				assert.Equal(t, want, byHeader(policy.Request{Header: http.Header{"X-Plan": {text}}}), "%+v, header %q", tt.text, text)
				assert.Equal(t, want, byQuery(policy.Request{RawQuery: "plan=" + text}), "%+v, parameter %q", tt.text, text)
				assert.Equal(t, want, byQuery(policy.Request{RawQuery: "p%6Can=" + escapeAll(text)}), "%+v, escaped parameter %q", tt.text, text)
			}
		}
		assert.False(t, byHeader(policy.Request{}), "%+v, no header", tt.text)
		assert.False(t, byQuery(policy.Request{RawQuery: "Plan=a"}), "%+v, no parameter", tt.text)
	}
}

func escapeAll(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
	}
	return b.String()
}

// One value must fulfil the whole condition.
func TestConditionIsAboutOneValue(t *testing.T) {
	both := policy.Text{Prefix: "a", Suffix: "b"}
	byHeader := asks(t, policy.Match{HeaderText: map[string]policy.Text{"X": both}})
	assert.False(t, byHeader(policy.Request{Header: http.Header{"X": {"a", "b"}}}))
	assert.True(t, byHeader(policy.Request{Header: http.Header{"X": {"c", "ab"}}}))
	byQuery := asks(t, policy.Match{Query: map[string]policy.Text{"x": both}})
	assert.False(t, byQuery(policy.Request{RawQuery: "x=a&x=b"}))
	assert.True(t, byQuery(policy.Request{RawQuery: "x=c&x=a+b"}))
}

// A pattern sees the escaped path, a condition the decoded one.
func TestPathAsACondition(t *testing.T) {
	for _, tt := range []struct {
		text    policy.Text
		escaped string
		want    bool
	}{
		{policy.Text{Exact: "/a/b"}, "/a/b", true},
		{policy.Text{Exact: "/a/b"}, "/a%2Fb", true},
		{policy.Text{Exact: "/a b"}, "/a%20b", true},
		{policy.Text{Exact: "/a%b"}, "/a%25b", true},
		{policy.Text{Exact: "/a"}, "/a/", false},
		{policy.Text{Exact: "/"}, "", true},
		{policy.Text{Exact: "*"}, "*", true},
		{policy.Text{Prefix: "/a/"}, "/a/b/c", true},
		{policy.Text{Prefix: "/a/"}, "/a", false},
		{policy.Text{Prefix: "/"}, "*", false},
		{policy.Text{Suffix: "/b"}, "/a%2fb", true},
		{policy.Text{Contains: "//"}, "/a//b", true},
		{policy.Text{Regexp: "^/v[0-9]+/"}, "/v12/a", true},
		{policy.Text{Regexp: "^/v[0-9]+/"}, "/v/a", false},
		{policy.Text{Prefix: "/a", Suffix: "c"}, "/a/b", false},
		{policy.Text{Prefix: "/a", Suffix: "b"}, "/a/b", true},
	} {
		matches := asks(t, policy.Match{PathText: tt.text})
		assert.Equal(t, tt.want, matches(policy.Request{EscapedPath: tt.escaped}), "%+v, %s", tt.text, tt.escaped)
		decoded, err := url.PathUnescape(tt.escaped)
		require.NoError(t, err)
		assert.Equal(t, tt.want, matches(policy.Request{EscapedPath: tt.escaped, Path: decoded}), "%+v, %s", tt.text, tt.escaped)
	}
	matches := asks(t, policy.Match{Path: "/{a}/b", PathText: policy.Text{Contains: "x"}})
	assert.True(t, matches(policy.Request{EscapedPath: "/x/b"}))
	assert.False(t, matches(policy.Request{EscapedPath: "/y/b"}), "both must hold")
	assert.False(t, matches(policy.Request{EscapedPath: "/x/c"}), "both must hold")
}

func TestNot(t *testing.T) {
	matches := asks(t, policy.Match{
		Path: "/a/",
		Not: []policy.Match{
			{Method: []string{"GET"}, HeaderText: map[string]policy.Text{"X-Cache": {Exact: "warm"}}},
			{Path: "/a/b"},
		},
	})
	warm := http.Header{"X-Cache": {"warm"}}
	assert.True(t, matches(policy.Request{EscapedPath: "/a/c"}))
	assert.False(t, matches(policy.Request{EscapedPath: "/c"}), "the entry itself must hold")
	assert.False(t, matches(policy.Request{EscapedPath: "/a/c", Header: warm}), "all of an entry of not holds")
	assert.True(t, matches(policy.Request{EscapedPath: "/a/c", Header: warm, Method: "PUT"}), "a part of it does")
	assert.False(t, matches(policy.Request{EscapedPath: "/a/b"}), "another entry holds")

	everythingBut := asks(t, policy.Match{Not: []policy.Match{{Route: "/x"}}})
	assert.True(t, everythingBut(policy.Request{Route: "/y", RouteKnown: true}))
	assert.True(t, everythingBut(policy.Request{}), "a route that is not known is not that route")
	assert.False(t, everythingBut(policy.Request{Route: "GET /x", RouteKnown: true}))
	set := mustNew(t, policy.Policy{Name: "p", Per: policy.PerPolicy, Match: []policy.Match{{Not: []policy.Match{{Route: "/x"}}}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1}})
	assert.True(t, set.UsesRoutes())
}

func TestNotHasNoNot(t *testing.T) {
	_, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "a",
		Match:    []policy.Match{{Path: "/", Not: []policy.Match{{Path: "/a", Not: []policy.Match{{Path: "/b"}}}}}},
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	assert.EqualError(t, err, `policy "a": match[0].not[0] has a not of its own; give the policy one more entry instead`)
}

// The parameters of a query are those that a handler sees.
func TestQueryAgreesWithTheStandardLibrary(t *testing.T) {
	parts := []string{"a", "b", "&", "=", "+", "%", "%61", "%2B", "%zz", "%4", ";", "é", "%C3%A9", " "}
	rapid.Check(t, func(t *rapid.T) {
		raw := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(t, "query"), "")
		name := rapid.SampledFrom([]string{"a", "b", "a a", "ab", "é", "+", "%"}).Draw(t, "name")
		want := rapid.SampledFrom([]string{"", "a", "b", "a b", "é"}).Draw(t, "value")
		values, _ := url.ParseQuery(raw)
		text := policy.Text{Exact: want}
		if want == "" {
			text = policy.Text{Regexp: "^$"}
		}
		matches := asks(t, policy.Match{Query: map[string]policy.Text{name: text}})
		require.Equal(t, slices.Contains(values[name], want), matches(policy.Request{RawQuery: raw}), "%q", raw)
	})
}

func TestQueryOfTooManyParametersHasNone(t *testing.T) {
	matches := asks(t, policy.Match{Query: map[string]policy.Text{"a": {}}})
	for n, want := range map[int]bool{9_999: true, 10_000: false} {
		raw := "a=b" + strings.Repeat("&", n)
		values, _ := url.ParseQuery(raw)
		assert.Equal(t, want, values.Has("a"))
		assert.Equal(t, want, matches(policy.Request{RawQuery: raw}))
	}
}

func TestHeaderKey(t *testing.T) {
	key := func(value string) string { return string(policy.AppendHeaderKey([]byte("k: "), value))[len("k: "):] }
	long := strings.Repeat("x", 64)
	for _, value := range []string{"acme", "Acme Ltd. (EU)", "~", " ", long} {
		assert.Equal(t, value, key(value))
	}
	assert.Equal(t, "(none)", key(""))
	for _, value := range []string{long + "x", "(none)", "(overflow)", "(", "a\tb", "\xff", "\x7f", key(long + "x")} {
		assert.Regexp(t, `^[ -~]{1,41}…[0-9a-f]{20}$`, key(value))
	}
	// The hash is SHA-256, so that the same value has the same key in every process.
	assert.Equal(t, "M??ller…a78429899bb825ce667d", key("Müller"))
}

func TestHeaderKeysAreBoundedAndDistinct(t *testing.T) {
	values := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a(]{0,70}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		keyA, keyB := string(policy.AppendHeaderKey(nil, a)), string(policy.AppendHeaderKey(nil, b))
		require.LessOrEqual(t, len(keyA), 64)
		require.True(t, strings.ContainsFunc(keyA, unicode.IsPrint) && !strings.ContainsFunc(keyA, unicode.IsControl), "%q", keyA)
		require.Equal(t, a == b, keyA == keyB, "%q %q", a, b)
		// No value has the key of another value, or of another kind of request.
		again := string(policy.AppendHeaderKey(nil, keyA))
		require.True(t, a == keyA || again != keyA, "%q", keyA)
		require.NotEqual(t, "(overflow)", keyA)
		require.Equal(t, a == "", keyA == "(none)")
	})
}

func TestPerHeaderOfAConfig(t *testing.T) {
	ok := &policy.Bulkhead{MaxConcurrent: 1}
	set := mustNew(t, policy.Policy{Name: "a", Per: policy.PerHeader, Header: "x-tenant", Bulkhead: ok})
	assert.Equal(t, "X-Tenant", set.Rules()[0].Header)
	for want, p := range map[string]policy.Policy{
		`policy "a": per is host, but there is a Header; write PerHeader, or leave the header out`: {Name: "a", Per: policy.PerHost, Header: "X", Bulkhead: ok},
		`policy "a": per is header without a name; write one, as in header:X-Tenant`:               {Name: "a", Per: policy.PerHeader, Bulkhead: ok},
		`policy "a": mode is Mode(2); it must be Enforce or Observe`:                               {Name: "a", Mode: 2, Bulkhead: ok},
	} {
		_, err := policy.New(policy.Config{Policies: []policy.Policy{p}})
		assert.EqualError(t, err, want)
	}
}

func TestExpressionsThatAreNone(t *testing.T) {
	for expr, want := range map[string]string{
		"(":       `it is not a regular expression: missing closing ): "("`,
		"a**":     `it is not a regular expression: invalid nested repetition operator: "**"`,
		"(?=a)":   `"(?=" is not part of RE2, whose syntax this is: there is no look-around and no back-reference`,
		`(a)\1`:   `it is not a regular expression: invalid escape sequence: "\\1"`,
		"[b-\na]": `it is not a regular expression: invalid character class range: "b-\n"`,
		"\xff":    `it is not a regular expression: invalid UTF-8: "\xff"`,
	} {
		_, err := policy.New(policy.Config{Policies: []policy.Policy{{
			Name: "a", Match: []policy.Match{{PathText: policy.Text{Regexp: expr}}}, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		}}})
		require.Error(t, err)
		assert.Contains(t, err.Error(), "; "+want)
	}
}

func TestWarningsOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		`path: {prefix: "/a%20b"}`:            `policy "a": match[0].path.prefix is "/a%20b", but prefix sees the path with its escapes decoded; write "/a b"`,
		`path: {exact: "/a?b=c"}`:             `policy "a": match[0].path.exact has a question mark, but the path does not include the query; give the query's parameters under query`,
		`path: {suffix: "/{id}"}`:             `policy "a": match[0].path.suffix has braces, which are plain text for suffix; a pattern is written as path: /reports/{id}`,
		`path: {prefix: "/a/*"}`:              `policy "a": match[0].path.prefix ends with *, which is plain text for prefix; leave it out`,
		`query: {"a%5B%5D": {exact: b}}`:      `policy "a": match[0].query has "a%5B%5D", but names are compared with their escapes decoded; write "a[]"`,
		`not: {path: {contains: "%2F"}}`:      `policy "a": match[0].not.path.contains is "%2F", but contains sees the path with its escapes decoded; write "/"`,
		`path: {regexp: "^/a/.*%20{2}[?]*$"}`: "",
		`path: {exact: "*"}`:                  "",
	} {
		set, err := policy.Parse("f", []byte("version: 1\npolicies:\n  - name: a\n    match: [{"+text+"}]\n    breaker: {}\n"))
		require.NoError(t, err, text)
		var got string
		for _, w := range set.Warnings() {
			got += w.Msg
		}
		assert.Equal(t, want, got, text)
	}
}
