package watertight

import (
	"net/http"
	"strings"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// A RejectedError reports that a policy turned a call away before it began.
// Errors of this type are returned as *RejectedError; they reach the user of
// an http.Client inside a *url.Error, so use errors.As.
//
// errors.Is sees through it to the reason's sentinel: [bulkhead.ErrFull],
// [bulkhead.ErrWaitTimeout], [bulkhead.ErrClosed] or [breaker.ErrOpen]; from a
// [Pool] also [bulkhead.ErrDiscarded].
type RejectedError struct {
	Policy     string        // the policy that refused
	Key        string        // its compartment's key; "" with per: policy, and with per: header, where it may be a secret
	Reason     policy.Reason // why
	RetryAfter time.Duration // when a new attempt makes sense; 0 if unknown
	Err        error         // the sentinel

	status int // what the policy answers on a server; 0: the reason's default
}

// Error names the policy, its compartment, the reason, and when to come back.
func (e *RejectedError) Error() string {
	var b strings.Builder
	b.WriteString("watertight: policy ")
	b.WriteString(e.Policy)
	if e.Key != "" {
		b.WriteString(" (")
		b.WriteString(e.Key)
		b.WriteByte(')')
	}
	b.WriteString(" refused the call, ")
	b.WriteString(e.Reason.String())
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.RetryAfter > 0 {
		b.WriteString("; retry after ")
		// Rounded up: who comes back early is refused again.
		b.WriteString((e.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond).String())
	}
	return b.String()
}

// Unwrap returns the sentinel of the reason.
func (e *RejectedError) Unwrap() error { return e.Err }

// Timeout reports whether the call waited for a permit in vain, so that
// net.Error and url.Error take it for the time-out that it is.
func (e *RejectedError) Timeout() bool { return e.Reason == policy.ReasonWaitTimeout }

// StatusCode returns the HTTP status that the policy gives this refusal on a
// server: 503, or 408 for [policy.ReasonWaitTimeout], unless the policy's reject
// section says otherwise. A gateway answers it when its upstream's compartment
// refused.
func (e *RejectedError) StatusCode() int {
	if e.status != 0 {
		return e.status
	}
	return defaultStatus(e.Reason)
}

func defaultStatus(r policy.Reason) int {
	if r == policy.ReasonWaitTimeout {
		return http.StatusRequestTimeout
	}
	return http.StatusServiceUnavailable
}

// reasonOf returns why the bulkhead refused, and false for an error that is
// the caller's own. It compares, and does not look inside: what is in a caller's
// error is the caller's.
func reasonOf(err error) (policy.Reason, bool) {
	switch err {
	case bulkhead.ErrFull:
		return policy.ReasonFull, true
	case bulkhead.ErrWaitTimeout:
		return policy.ReasonWaitTimeout, true
	case bulkhead.ErrClosed:
		return policy.ReasonDraining, true
	}
	return policy.ReasonCanceled, false
}
