package policy

import "strconv"

// A Side says on which side of the wire a policy works, or a request is.
type Side uint8

const (
	// Both is the zero value: a policy for servers and for clients. The two
	// sides never share a compartment. A [Request] is never on both sides.
	Both Side = iota
	// Server is the side that answers requests.
	Server
	// Client is the side that sends them.
	Client
)

// String returns "both", "server" or "client", as a policy file writes it.
func (s Side) String() string { return nameOf(sideNames[:], s, "Side") }

var sideNames = [...]string{Both: "both", Server: "server", Client: "client"}

// covers reports whether a policy on side s works on the given side.
func (s Side) covers(side Side) bool {
	return s == side || s == Both && (side == Server || side == Client)
}

// A Per says what a policy keeps separate compartments for.
type Per uint8

const (
	// PerDefault is the zero value: PerRoute on a server, PerHost on a client.
	PerDefault Per = iota
	// PerPolicy keeps one compartment for everything the policy matches.
	PerPolicy
	// PerRoute keeps one for each route of the server's router. A client has
	// no routes; there a policy for both sides works as PerHost.
	PerRoute
	// PerHost keeps one for each host: see [AppendHostKey].
	PerHost
	// PerHeader keeps one for each value of a header: see [AppendHeaderKey].
	PerHeader
)

// String returns "policy", "route", "host" or "header", as a policy file writes it,
// and "default" for PerDefault, which a file says by leaving the key out.
func (p Per) String() string { return nameOf(perNames[:], p, "Per") }

var perNames = [...]string{PerDefault: "default", PerPolicy: "policy", PerRoute: "route", PerHost: "host", PerHeader: "header"}

// on returns what p means on the given side; it is never PerDefault.
func (p Per) on(side Side) Per {
	switch {
	case side == Client && (p == PerDefault || p == PerRoute):
		return PerHost
	case p == PerDefault:
		return PerRoute
	}
	return p
}

// A Mode says what a policy does to the requests that it is against.
type Mode uint8

const (
	// Enforce is the zero value: they are turned away, or have to wait.
	Enforce Mode = iota
	// Observe lets them pass, and counts those that Enforce would have turned
	// away. Among the policies it stands as if it enforced: what it decides no
	// later policy does.
	Observe
)

// String returns "enforce" or "observe", as a policy file writes it.
func (m Mode) String() string { return nameOf(modeNames[:], m, "Mode") }

var modeNames = [...]string{Enforce: "enforce", Observe: "observe"}

// A Settle says when a breaker learns the outcome of a client's call that was
// answered.
type Settle uint8

const (
	// SettleHeaders is the zero value: when the response headers are in.
	SettleHeaders Settle = iota
	// SettleBody is when the response body has ended; one that breaks off is a
	// failure.
	SettleBody
)

// String returns "headers" or "body", as a policy file writes it.
func (s Settle) String() string { return nameOf(settleNames[:], s, "Settle") }

var settleNames = [...]string{SettleHeaders: "headers", SettleBody: "body"}

// A Reason says why a request was turned away.
type Reason uint8

const (
	// ReasonFull means that no permit was free and that there was no room, or no
	// time allowed, to wait for one.
	ReasonFull Reason = iota
	// ReasonWaitTimeout means that the request waited for a permit as long as its
	// policy lets it, in vain.
	ReasonWaitTimeout
	// ReasonOpen means that the breaker is open, or half-open with no probe left.
	ReasonOpen
	// ReasonDraining means that the process is shutting down.
	ReasonDraining
	// ReasonCanceled means that the caller left while it was queued.
	ReasonCanceled
)

// String returns "full", "wait_timeout", "open", "draining" or "canceled", as
// a policy file writes it.
func (r Reason) String() string { return nameOf(reasonNames[:], r, "Reason") }

var reasonNames = [...]string{
	ReasonFull:        "full",
	ReasonWaitTimeout: "wait_timeout",
	ReasonOpen:        "open",
	ReasonDraining:    "draining",
	ReasonCanceled:    "canceled",
}

// nameOf returns the name of v, or TYPE(v) if it has none.
func nameOf[T ~uint8](names []string, v T, typ string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return typ + "(" + strconv.Itoa(int(v)) + ")"
}
