package policy

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A scope is one kind of mapping in a policy file.
type scope struct {
	name  string   // as messages call it
	keys  []string // what it may hold
	later []string // what it may hold in a version to come
}

var (
	fileScope     = scope{"a policy file", []string{"version", "defaults", "policies"}, []string{"budget"}}
	defaultsScope = scope{"defaults", []string{"maxCompartments", "idle"}, nil}
	policyScope   = scope{"a policy", []string{"name", "side", "match", "per", "mode", "bulkhead", "breaker", "reject", "exempt"}, nil}
	matchScope    = scope{"an entry of match", []string{"method", "path", "route", "host", "headers", "query", "not"}, nil}
	notScope      = scope{"an entry of not", []string{"method", "path", "route", "host", "headers", "query"}, nil}
	textScope     = scope{"a condition on a text", operatorNames[:operatorCompare], nil}
	bulkheadScope = scope{"bulkhead", []string{"maxConcurrent", "maxQueue", "maxWait"}, []string{"adaptive"}}
	breakerScope  = scope{"breaker", []string{"failureRate", "slowCall", "slowCallRate", "window", "minCalls", "openFor", "halfOpen", "failureStatus", "settle", "force"}, nil}
	openForScope  = scope{"openFor", []string{"initial", "max", "multiplier", "jitter", "retryAfter"}, nil}
	windowScope   = scope{"window", []string{"calls", "time"}, nil}
	halfOpenScope = scope{"halfOpen", []string{"calls", "probeTimeout", "maxWait"}, nil}
	rejectScope   = scope{"reject", []string{"status", "retryAfter"}, nil}
	statusScope   = scope{"status", reasonNames[:], nil}

	// scopes lists those in which a misplaced key is looked for.
	scopes = []*scope{&fileScope, &defaultsScope, &policyScope, &matchScope, &textScope, &bulkheadScope, &breakerScope, &openForScope, &windowScope, &halfOpenScope, &rejectScope, &statusScope}
)

// problemWith says what is wrong with a key that s does not have and what to
// write instead. It returns the keys of s that what is under the key may belong to, and
// the one that was most likely meant.
func (s *scope) problemWith(key string) (msg string, meant []string, near string) {
	if slices.Contains(s.later, key) {
		return "the key " + quote(key) + " is not supported by this version yet; leave it out", nil, ""
	}
	msg = "unknown key " + quote(key)
	for _, other := range scopes {
		if slices.Contains(other.keys, key) {
			meant = append(meant, other.name)
		}
	}
	if meant != nil {
		return msg + " here; it belongs in " + strings.Join(meant, " or "), meant, ""
	}
	if near := nearest(key, s.keys); near != "" {
		return "unknown key " + quoteLetters(key) + "; did you mean " + quote(near) + "?", nil, near
	}
	return msg + "; " + s.name + " has " + strings.Join(s.keys, ", "), nil, ""
}

// nearest returns the candidate that is most like key, or "" if none is.
func nearest(key string, candidates []string) string {
	best, bestDistance := "", 1+(utf8.RuneCountInString(key)+1)/3
	for _, c := range candidates {
		if d := distance(strings.ToLower(key), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the letters to add, drop, replace or swap with their neighbour
// to make one text of another (optimal string alignment).
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
