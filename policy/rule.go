package policy

import "time"

// A Rule is a policy of a [Set]: checked, with every default filled in. It is
// shared by all who use the set, and none of them may change it.
type Rule struct {
	// Index is the policy's place in its set, from 0.
	Index int
	// Name is unique in the set.
	Name string
	// Side is the side that the policy works on.
	Side Side
	// Per is what the policy says; see PerOn for what that means on a side.
	Per Per
	// Header is the name of the header that PerHeader is about, in canonical
	// form; else empty.
	Header string
	// Mode says whether the policy turns requests away.
	Mode Mode
	// Bulkhead is nil if the policy has none.
	Bulkhead *BulkheadSettings
	// Breaker is nil if the policy has none.
	Breaker *BreakerSettings
	// Exempt reports whether what the policy matches is never limited. Then
	// Bulkhead and Breaker are nil.
	Exempt bool
	// RetryAfter is the advice to a rejected caller. 0: none.
	RetryAfter time.Duration

	status  [len(reasonNames)]int
	entries []entry // at least one must match; none: everything matches
}

// PerOn returns what the policy keeps separate compartments for on the given
// side: PerPolicy, PerRoute, PerHost or PerHeader, and on a client never PerRoute.
func (r *Rule) PerOn(side Side) Per { return r.Per.on(side) }

// RejectStatus returns the HTTP status, 400 to 599, with which the policy turns
// a request away for that reason; 503 if there is no such reason.
func (r *Rule) RejectStatus(reason Reason) int {
	if int(reason) >= len(r.status) {
		return 503
	}
	return r.status[reason]
}

// BulkheadSettings are the bulkhead of a [Rule].
type BulkheadSettings struct {
	// MaxConcurrent is the number of permits, at least 1.
	MaxConcurrent int
	// MaxQueue is how many may wait for a permit. 0: nobody.
	MaxQueue int
	// MaxWait is the longest wait. 0: nobody waits.
	MaxWait time.Duration
}

// BreakerSettings are the breaker of a [Rule].
type BreakerSettings struct {
	// FailureRate is in percent: more than 0, at most 100.
	FailureRate float64
	// SlowCall is the duration beyond which a call is slow. 0: none is.
	SlowCall time.Duration
	// SlowCallRate is in percent: more than 0, at most 100. It says nothing
	// while SlowCall is 0.
	SlowCallRate float64
	// Window has exactly one field set.
	Window Window
	// MinCalls is at least 1, and at most Window.Calls if that is set.
	MinCalls int
	// OpenFor is more than 0.
	OpenFor time.Duration
	// Backoff has a Max of at least OpenFor, and of OpenFor if the time does not
	// grow, and a Multiplier of more than 1.
	Backoff Backoff
	// HalfOpen has a negative ProbeTimeout if probes are not timed.
	HalfOpen HalfOpen
	// FailureStatus lists the statuses that are failures; empty if none is.
	FailureStatus []StatusRange
	// Settle is for the client side. On a server a call is settled when its
	// handler returns.
	Settle Settle
	// Force holds the breaker in one state, if it is not ForceNone.
	Force Force

	failures statusSet
}

// IsFailure reports whether a response with that status counts as a failure. It
// takes constant time.
func (b *BreakerSettings) IsFailure(status int) bool { return b.failures.has(status) }
