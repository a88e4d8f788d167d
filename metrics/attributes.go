package metrics

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/watertight-go/watertight"
)

// Names of spans.
const (
	waitSpan           = "bulkhead.wait"
	grantSpan          = "bulkhead.grant"
	bulkheadRejectSpan = "bulkhead.reject"
	breakerRejectSpan  = "breaker.reject"
	tripSpan           = "breaker.trip"
	halfOpenSpan       = "breaker.half_open"
	closeSpan          = "breaker.close"
)

// Names of span attributes. Their values are described in the package's
// documentation.
const (
	policyKey       = attribute.Key("watertight.policy")
	sideKey         = attribute.Key("watertight.side")
	keyKey          = attribute.Key("watertight.key")
	positionKey     = attribute.Key("watertight.queue.position")
	resultKey       = attribute.Key("watertight.result")
	waitedKey       = attribute.Key("watertight.waited_ms")
	limitKey        = attribute.Key("watertight.limit")
	inFlightKey     = attribute.Key("watertight.in_flight")
	queuedKey       = attribute.Key("watertight.queued")
	modeKey         = attribute.Key("watertight.mode")
	leakedKey       = attribute.Key("watertight.leaked")
	reasonKey       = attribute.Key("watertight.reason")
	retryAfterKey   = attribute.Key("watertight.retry_after_ms")
	breakerStateKey = attribute.Key("watertight.breaker.state")
	breakerFromKey  = attribute.Key("watertight.breaker.from")
	breakerToKey    = attribute.Key("watertight.breaker.to")
	breakerCauseKey = attribute.Key("watertight.breaker.cause")
	failureRateKey  = attribute.Key("watertight.breaker.failure_rate")
	slowCallRateKey = attribute.Key("watertight.breaker.slow_call_rate")
	breakerCallsKey = attribute.Key("watertight.breaker.calls")
	overdueKey      = attribute.Key("watertight.breaker.overdue")
	respondedKey    = attribute.Key("watertight.breaker.responded")
	breakerOpenKey  = attribute.Key("watertight.breaker.open_for_ms")
	breakerLateKey  = attribute.Key("watertight.breaker.late_ms")
	errorTypeKey    = attribute.Key("error.type") // of OpenTelemetry's semantic conventions
	linkOutcomeKey  = attribute.Key("watertight.link.outcome")
	linkTookKey     = attribute.Key("watertight.link.took_ms")
)

// Names of log attributes: those of the spans without what stands before the last dot,
// where a span has it.
const (
	logPolicy          = "policy"
	logSide            = "side"
	logKey             = "key"
	logMode            = "mode"
	logFrom            = "from"
	logTo              = "to"
	logCause           = "cause"
	logFailureRate     = "failure_rate"
	logSlowCallRate    = "slow_call_rate"
	logCalls           = "calls"
	logOverdue         = "overdue"
	logResponded       = "responded"
	logOpenFor         = "open_for_ms"
	logLate            = "late_ms"
	logReason          = "reason"
	logState           = "state"
	logLimit           = "limit"
	logInFlight        = "in_flight"
	logQueued          = "queued"
	logRetryAfter      = "retry_after_ms"
	logRested          = "rested_ms"
	logMaxCompartments = "max_compartments"
	logTraceID         = "trace_id"
	logSpanID          = "span_id"
)

// attributesOf returns what every span says of its compartment, with room for
// as many more attributes.
func attributesOf(c watertight.Compartment, more int) []attribute.KeyValue {
	return appendCompartment(make([]attribute.KeyValue, 0, 3+more), c)
}

func appendCompartment(attrs []attribute.KeyValue, c watertight.Compartment) []attribute.KeyValue {
	return append(attrs, policyKey.String(c.Policy), sideKey.String(c.Side.String()), keyKey.String(keyText(c.Key)))
}

// milliseconds keeps the fraction: waits are often shorter than one.
func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}
