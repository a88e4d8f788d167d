package policy

import "time"

// A Config is a set of policies written in code. It has the fields of a policy
// file, and [New] checks it as strictly as [Load] checks a file. One thing
// differs: in code the zero value of a field stands for its default. No duration
// may be longer than a year, 8760h.
type Config struct {
	// Defaults hold for all policies.
	Defaults Defaults
	// Policies are in order of precedence: the first that matches a request
	// and has a bulkhead gives the bulkhead, the first that matches and has
	// a breaker gives the breaker.
	Policies []Policy
}

// Defaults hold for all policies.
type Defaults struct {
	// MaxCompartments bounds the compartments of one policy on one side:
	// 1 to 1000000000. 0: 10000.
	MaxCompartments int
	// Idle is how long a compartment must have been at rest before it may be
	// dropped. 0: 10 minutes.
	Idle time.Duration
}

// A Policy says which requests it is about and what limits them. It needs a
// Bulkhead or a Breaker (or both), or Exempt alone.
type Policy struct {
	// Name is required and unique. It shows in errors, spans and metrics: at
	// most 128 bytes, printable, without spaces at its ends. The names
	// "(unmatched)" and "(exempt)" are taken.
	Name string
	// Side is the side that the policy works on. Zero: Both.
	Side Side
	// Match lists entries of which one must match. Empty: every request.
	Match []Match
	// Per is what the policy keeps separate compartments for. Zero: the
	// route on a server, the host on a client.
	Per Per
	// Header is the name of the header whose values PerHeader keeps apart.
	// Required with it, and set only with it.
	Header string
	// Mode says whether the policy turns requests away, or only counts those
	// that it would have. Zero: Enforce.
	Mode Mode
	// Bulkhead bounds the requests in flight. nil: no bound.
	Bulkhead *Bulkhead
	// Breaker turns requests away while the calls fail or are slow. nil:
	// none. &Breaker{} is a breaker with all defaults.
	Breaker *Breaker
	// Reject says how requests are turned away.
	Reject Reject
	// Exempt keeps what the policy matches free of every later policy.
	Exempt bool
}

// A Match is one entry of a policy's matcher: all fields that are set must
// hold. At least one must be set. What is said of several headers, or of several
// parameters, must hold for all of them; of one that comes several times, one
// value is enough.
type Match struct {
	// Method lists the methods, upper-case; the request's must be one of
	// them. HEAD is not GET: list both. Empty: any.
	Method []string
	// Path is a path pattern of [net/http.ServeMux] without method and host,
	// such as "/reports/{id}". Empty: any.
	Path string
	// PathText is a condition on the whole path, as [net/url.URL.Path] has it:
	// with escapes decoded. Zero: any.
	PathText Text
	// Route is a route's pattern, as the server's router knows it. It is
	// compared without method and host unless written with them. Empty: any.
	Route string
	// Host is a host, such as "payments.internal", or "*.internal" for
	// everything below internal; either may have a port. Empty: any.
	Host string
	// Headers maps a header's name to the value that it must have. Empty: any.
	Headers map[string]string
	// HeaderText maps a header's name to a condition on its value, and has none
	// of the names in Headers. Empty: any.
	HeaderText map[string]Text
	// Query maps the name of a parameter of the query to a condition on its
	// value. Parameters are those that [net/url.ParseQuery] finds. Empty: any.
	Query map[string]Text
	// Not lists entries of which none may match; they have no Not themselves.
	Not []Match
}

// A Text is a condition on a text: all fields that are set must hold for it, with
// upper and lower case told apart. The zero Text, for a header or a parameter,
// holds for every value, so it asks only whether there is one.
type Text struct {
	// Exact is the text.
	Exact string
	// Prefix is what the text starts with.
	Prefix string
	// Suffix is what it ends with.
	Suffix string
	// Contains is a part of it.
	Contains string
	// Regexp is an expression of package [regexp] that matches the text or any
	// part of it: ^ and $ tie it to the ends.
	Regexp string
}

// A Bulkhead bounds the requests that are in flight at once.
type Bulkhead struct {
	// MaxConcurrent is the number of permits: 1 to 1000000000. Required.
	MaxConcurrent int
	// MaxQueue is how many requests may wait for a permit, at most
	// 1000000000. 0: 1000 if MaxWait is set, else none; negative: none.
	MaxQueue int
	// MaxWait is the longest that a request waits. 0: it does not.
	MaxWait time.Duration
}

// A Breaker turns requests away while too many of the calls fail or are slow.
// It trips when a rate is reached, not only when it is passed.
type Breaker struct {
	// FailureRate is the share of failed calls that trips it, in percent:
	// more than 0, at most 100. 0: 50.
	FailureRate float64
	// SlowCall is the duration beyond which a call counts as slow. 0: no call
	// is slow.
	SlowCall time.Duration
	// SlowCallRate is the share of slow calls that trips it, in percent: more
	// than 0, at most 100. 0: 80.
	SlowCallRate float64
	// Window is what the rates are taken over. Zero: the last 100 calls.
	Window Window
	// MinCalls is how many calls the window must hold before a rate means
	// anything: 1 to 1000000. 0: 20. It is cut down to Window.Calls.
	MinCalls int
	// OpenFor is how long it stays open before it tries again. 0: 30 seconds.
	OpenFor time.Duration
	// Backoff says when that is longer or shorter. Zero: never.
	Backoff Backoff
	// HalfOpen is how it tries again.
	HalfOpen HalfOpen
	// FailureStatus lists the statuses that count as failures. nil: 500-599;
	// empty but not nil: none.
	FailureStatus []StatusRange
	// Settle says when the outcome of a client's call is known. Zero:
	// SettleHeaders.
	Settle Settle
	// Force holds the breaker open or closed, whatever the rest says, for as long
	// as the policy is in use. Zero: ForceNone.
	Force Force
}

// Backoff says how the time that a breaker stays open differs from OpenFor. In a
// file these are keys of openFor, where OpenFor is called initial.
type Backoff struct {
	// Max is how long it stays open at most. From OpenFor on, each time is
	// Multiplier times the one before, as long as the breaker has not been
	// closed. At least OpenFor; 0: as long as OpenFor, so the time does not grow.
	Max time.Duration
	// Multiplier is at least 1.1, at most 100. 0: 2. Without Max it says nothing.
	Multiplier float64
	// Jitter is by which share a time is shorter or longer at random, so that
	// many breakers do not try again at once: 0 to less than 1. It makes none
	// longer than Max.
	Jitter float64
	// RetryAfter is the longest that the upstream of a client may ask for by
	// the Retry-After of a 429 or a 503. What it asks for when the breaker
	// trips then takes the place of the above. 0: it is not heeded.
	RetryAfter time.Duration
}

// A Window is what a breaker's rates are taken over. At most one field is set.
type Window struct {
	// Calls is a number of calls: 1 to 1000000.
	Calls int
	// Time is how long ago a call may have ended: at least 1ms.
	Time time.Duration
}

// HalfOpen says how a breaker that was open tries again.
type HalfOpen struct {
	// Calls is how many probes are let through: 1 to 1000000. 0: 10.
	Calls int
	// ProbeTimeout is when a probe without an answer counts as failed and
	// slow. 0: 30 seconds; negative: never.
	ProbeTimeout time.Duration
	// MaxWait bounds the half-open state as a whole: after it the breaker
	// opens again. 0: no bound.
	MaxWait time.Duration
}

// Reject says how requests are turned away.
type Reject struct {
	// Status gives the HTTP status, 400 to 599, by reason. A reason that is
	// not in it has its default: 408 for WaitTimeout, 503 for all others. What
	// a client is refused by has a status too: a gateway answers it.
	Status map[Reason]int
	// RetryAfter is the advice to the caller when to come back, in an answer
	// rounded up to whole seconds; for an open breaker the time that it stays
	// open is given instead. nil: one second; new(time.Duration): no advice.
	RetryAfter *time.Duration
}
