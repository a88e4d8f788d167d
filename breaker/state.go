package breaker

import "fmt"

// A State is what a [Breaker] does with the calls that ask it. The zero State is
// none of these; in [Config] it stands for the default.
type State uint8

const (
	Closed      State = iota + 1 // lets every call in, judges the outcomes, may trip
	Open                         // refuses every call for a while
	HalfOpen                     // lets a fixed number of probes in and judges them
	Disabled                     // lets every call in, records nothing; left by hand only
	MetricsOnly                  // lets every call in, records, never trips; left by hand only
	ForcedOpen                   // refuses every call; left by hand only
)

var stateNames = [...]string{
	Closed:      "closed",
	Open:        "open",
	HalfOpen:    "half_open",
	Disabled:    "disabled",
	MetricsOnly: "metrics_only",
	ForcedOpen:  "forced_open",
}

// String returns the state's name as used in attributes and snapshots, such as
// "half_open".
func (s State) String() string {
	if !s.valid() {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

func (s State) valid() bool { return Closed <= s && s <= ForcedOpen }

// An Outcome is how a call ended, as far as the breaker is concerned. Whether
// the call was slow is no part of it: the breaker finds that from the duration.
// The zero Outcome is not valid, so that a forgotten one is not taken for a
// success.
type Outcome uint8

const (
	Success Outcome = iota + 1 // the callee did what it should
	Failure                    // it did not
	Ignored                    // says nothing about the callee: in no window, and a probe's permit is handed back
)

var outcomeNames = [...]string{Success: "success", Failure: "failure", Ignored: "ignored"}

// String returns "success", "failure" or "ignored".
func (o Outcome) String() string {
	if !o.valid() {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomeNames[o]
}

func (o Outcome) valid() bool { return Success <= o && o <= Ignored }

// A Cause is why a breaker changed its state.
type Cause uint8

const (
	CauseFailureRate     Cause = iota + 1 // the failure rate reached its threshold
	CauseSlowCallRate                     // the slow call rate did, and the failure rate did not
	CauseForced                           // [Breaker.Transition]
	CauseReset                            // [Breaker.Reset]
	CauseOpenElapsed                      // the open period was over: open to half-open
	CauseProbes                           // enough probes ended well: half-open to closed
	CauseHalfOpenElapsed                  // [HalfOpenConfig].MaxWait was over before the probes decided
	CauseOverdue                          // too many calls in flight were overdue
)

var causeNames = [...]string{
	CauseFailureRate:     "failure_rate",
	CauseSlowCallRate:    "slow_call_rate",
	CauseForced:          "forced",
	CauseReset:           "reset",
	CauseOpenElapsed:     "open_elapsed",
	CauseProbes:          "probes",
	CauseHalfOpenElapsed: "half_open_elapsed",
	CauseOverdue:         "overdue",
}

// String returns the cause's name as used in attributes, such as "failure_rate".
func (c Cause) String() string {
	if c < CauseFailureRate || c > CauseOverdue {
		return fmt.Sprintf("Cause(%d)", uint8(c))
	}
	return causeNames[c]
}
