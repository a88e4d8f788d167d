package policy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// FuzzHostMatch holds the matching of hosts against the keys of hosts, which are made
// another way: a pattern without a port matches the hosts whose key has its name,
// "*.name" those whose key ends so, and upper case and a dot at the end never make a
// difference.
func FuzzHostMatch(f *testing.F) {
	for _, host := range []string{
		"payments.internal", "PAYMENTS.internal.", "a.payments.internal:8443", "internal", ".internal", "*.internal",
		"[::1]:80", "[::1]", "::1", "[::1", "a:b:c", "", ":", "xn--bcher-kva.example", "(overflow)", "a..internal", "a.internal:",
	} {
		f.Add("payments.internal", host)
		f.Add("*.internal", host)
		f.Add("[::1]", host)
	}
	f.Add("0", "[0]")
	f.Add("*.internal", "::.internAl")
	f.Fuzz(func(t *testing.T, pattern, host string) {
		set, err := policy.New(policy.Config{Policies: []policy.Policy{{
			Name: "a", Match: []policy.Match{{Host: pattern}}, Exempt: true,
		}}})
		if err != nil {
			return
		}
		for _, side := range []policy.Side{policy.Server, policy.Client} {
			matches := func(host string) bool {
				return set.Match(&policy.Request{Side: side, Scheme: "http", Host: host}).Exempt != nil
			}
			got := matches(host)
			require.Equal(t, got, matches(upperASCII(host)), "case")
			if len(host) > 200 || pattern == "" || !brackets.MatchString(host) {
				continue // keys are cut, and lose brackets that mean nothing; no pattern matches everything
			}
			name, port := nameOf(host)
			if port == "" && !strings.ContainsAny(host, "[]:") { // a dot behind brackets ends no name
				require.Equal(t, got, matches(host+"."), "a dot at the end")
			}
			want, wantPort := nameOf(pattern)
			if wantPort != "" {
				continue
			}
			if below, ok := strings.CutPrefix(want, "*."); ok {
				require.Equal(t, strings.HasSuffix(name, "."+below) && len(name) > len("."+below), got, "%q against %q", host, pattern)
			} else {
				require.Equal(t, name == want, got, "%q against %q", host, pattern)
			}
		}
	})
}

// brackets matches hosts whose brackets, if there are any, stand round an address.
var brackets = regexp.MustCompile(`^(\[[^\[\]]+\](:[^:\[\]]*)?|[^\[\]]*)$`)

// nameOf returns the name and the port of a host as its key has them.
func nameOf(host string) (name, port string) {
	// A scheme without a default port leaves those that are written.
	key, _ := strings.CutPrefix(string(policy.AppendHostKey(nil, policy.Client, "x", host)), "x://")
	if i := strings.LastIndexByte(key, ':'); i >= 0 && !strings.HasSuffix(key, "]") {
		return key[:i], key[i+1:]
	}
	return key, ""
}
