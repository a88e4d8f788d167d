package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

func TestHostMatch(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, tt := range []struct {
		host    string
		yes, no []string // scheme, space, host
	}{
		{"payments.internal",
			[]string{"https payments.internal", "https Payments.INTERNAL", "http payments.internal:8080", "http payments.internal.", " payments.internal"},
			[]string{"http internal", "http a.payments.internal", "http payments.internal.example", "http payments-internal", "http "}},
		{"PAYMENTS.internal.", []string{"http payments.internal"}, nil},
		{"*.internal",
			[]string{"http a.internal", "http a.b.Internal:99", "http a.internal."},
			[]string{"http internal", "http .internal", "http ainternal", "http aaa-internal", "http internal.a"}},
		{"*.internal:8080", []string{"http a.internal:8080", "http a.internal:08080"}, []string{"http a.internal", "http a.internal:80"}},
		{"a.b:443",
			[]string{"https a.b", "https a.b:443", "http a.b:443", "HTTPS a.b", " a.b"},
			[]string{"http a.b", "https a.b:80", "ftp a.b"}},
		{"a.b:80", []string{"http a.b", " a.b", " a.b:80"}, []string{"https a.b", " a.b:443"}},
		{"a.b:81", []string{"http a.b:81"}, []string{"http a.b", " a.b"}},
		{"[::1]", []string{"http [::1]", "http [::1]:8080"}, []string{"http [::2]", "http 1"}},
		{"[2001:db8::a]:8080", []string{"http [2001:DB8::A]:8080"}, []string{"http [2001:db8::a]"}},
		{"127.0.0.1", []string{"http 127.0.0.1:1"}, []string{"http 127.0.0.10"}},
		// No name is longer than that, but a request may have any.
		{"*." + long, []string{"http x." + long, "http " + strings.Repeat("y", 300) + "." + long}, []string{"http " + long, "http ." + long, "http x" + long}},
		{long, []string{"http " + long}, []string{"http x" + long, "http x." + long}},
		// Only ASCII has case: U+212A, the Kelvin sign, is not a k.
		{"k.example", []string{"http K.example"}, []string{"http \u212a.example"}},
		{"BüCHER.example", []string{"http bücher.example", "http BüCHER.example"}, []string{"http BÜCHER.example"}},
	} {
		set, err := policy.New(policy.Config{Policies: []policy.Policy{{
			Name:     "p",
			Match:    []policy.Match{{Host: tt.host}},
			Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		}}})
		require.NoError(t, err)
		matches := func(request string) bool {
			scheme, host, _ := strings.Cut(request, " ")
			return set.Match(&policy.Request{Side: policy.Client, Scheme: scheme, Host: host}).Bulkhead != nil
		}
		for _, r := range tt.yes {
			assert.True(t, matches(r), "host %s, request to %q", tt.host, r)
		}
		for _, r := range tt.no {
			assert.False(t, matches(r), "host %s, request to %q", tt.host, r)
		}
	}
}

// E53.
func TestAppendHostKey(t *testing.T) {
	for _, tt := range []struct {
		side         policy.Side
		scheme, host string
		want         string
	}{
		{policy.Client, "https", "example.com", "https://example.com:443"},
		{policy.Client, "https", "EXAMPLE.com", "https://example.com:443"},
		{policy.Client, "HTTPS", "example.com:443", "https://example.com:443"},
		{policy.Client, "https", "example.com.", "https://example.com:443"},
		{policy.Client, "https", "example.com:", "https://example.com:443"},
		{policy.Client, "http", "example.com", "http://example.com:80"},
		{policy.Client, "", "example.com", "http://example.com:80"},
		{policy.Client, "http", "example.com:443", "http://example.com:443"},
		{policy.Client, "http", "example.com:08080", "http://example.com:8080"},
		{policy.Client, "http", "[::1]:80", "http://[::1]:80"},
		{policy.Client, "http", "[::1]", "http://[::1]:80"},
		{policy.Client, "http", "::1", "http://[::1]:80"},
		{policy.Client, "unix", "socket", "unix://socket"},
		{policy.Client, "http", "", "http://:80"},
		{policy.Server, "http", "example.com", "example.com"},
		{policy.Server, "https", "Example.COM.", "example.com"},
		{policy.Server, "", "example.com:80", "example.com"},
		{policy.Server, "", "example.com:443", "example.com"},
		{policy.Server, "https", "example.com:8443", "example.com:8443"},
		{policy.Server, "", "[::1]:80", "[::1]"},
		{policy.Server, "", "[::1]", "[::1]"},
		{policy.Server, "", "[::1]:8080", "[::1]:8080"},
		{policy.Server, "", "", ""},
	} {
		got := string(policy.AppendHostKey([]byte("> "), tt.side, tt.scheme, tt.host))
		assert.Equal(t, "> "+tt.want, got, "AppendHostKey(%v, %q, %q)", tt.side, tt.scheme, tt.host)
	}
}

// E53: a Host header can be as long as net/http lets it.
func TestHostKeysAreBounded(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	name := long[:255]
	assert.Equal(t, name, string(policy.AppendHostKey(nil, policy.Server, "", long)))
	assert.Equal(t, name+":12345", string(policy.AppendHostKey(nil, policy.Server, "", long+":1234567")))
	assert.Equal(t, name[:16]+"://"+name, string(policy.AppendHostKey(nil, policy.Client, long, long)))
	assert.Equal(t, strings.Repeat(".a", 127), string(policy.AppendHostKey(nil, policy.Server, "", strings.Repeat(".a", 300))), "no dot at the end after the cut")
}

func FuzzHostKey(f *testing.F) {
	for _, host := range []string{
		"example.com", "EXAMPLE.com.:0080", "[::1]:80", "[::1]", "::1", "[::1", "::1]", "[a]b:80", "a:b:c.",
		"[a:.]", "a..:1", ":", "", "[]", "[]:1", "[:]", "a]", strings.Repeat("a", 300) + ":123456", strings.Repeat("a.", 300),
	} {
		f.Add(true, "https", host)
		f.Add(false, "", host)
	}
	f.Fuzz(func(t *testing.T, client bool, scheme, host string) {
		side := policy.Server
		if client {
			side = policy.Client
		}
		key := string(policy.AppendHostKey(nil, side, scheme, host))
		// E53: a key is bounded however long the Host header is.
		assert.LessOrEqual(t, len(key), 16+len("://")+len("[]")+255+len(":")+5)
		assert.Equal(t, key, string(policy.AppendHostKey(nil, side, upperASCII(scheme), upperASCII(host))), "case makes no difference")

		// The key of a key is the key.
		if client {
			if scheme == "" {
				scheme = "http"
			}
			start := min(len(scheme), 16) + len("://")
			require.Greater(t, len(key), start-1)
			scheme, host = key[:start-len("://")], key[start:]
		} else {
			host = key
		}
		assert.Equal(t, key, string(policy.AppendHostKey(nil, side, scheme, host)))
	})
}

func upperASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - ('a' - 'A')
		}
	}
	return string(b)
}
