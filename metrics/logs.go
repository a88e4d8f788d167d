package metrics

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/internal/flood"
	"github.com/watertight-go/watertight/policy"
)

// logs writes what happens, one record for each event, until there are too many: then it
// is said how many were left out. What a kind of record says is fixed but for its
// attributes, which have the names of those of the spans.
type logs struct {
	logger *slog.Logger // nil: slog.Default()

	refused, observed         *kind
	tripped, halfOpen, closed *kind
	limitChanged, evicted     *kind
	overflowing, overflowed   *kind
}

// A kind of record has a text of its own, and another one for those that were left out.
type kind struct {
	level     slog.Level
	one, more string
	what      string // attribute by which more is divided besides the compartment; "": none
	floodgate *flood.Limiter[origin]
}

// An origin is what a kind of record is counted by: a compartment, and the value of the
// kind's attribute what.
type origin struct {
	policy string
	side   policy.Side
	key    string // "" unless it may be in a log
	what   string
}

// How much is too much. A breaker's records are worth more than one more refusal like
// the one before, and a breaker does not often have a few in so short a time.
const (
	logInterval = 10 * time.Second
	logOrigins  = 20 // of a kind
	fewRecords  = 5  // of transitions and limits
	oneRecord   = 1  // of all else
)

func newLogs(logger *slog.Logger) *logs {
	l := &logs{logger: logger}
	l.refused = l.kind(slog.LevelWarn, oneRecord, "watertight: call refused", "watertight: more calls refused", logReason)
	l.observed = l.kind(slog.LevelInfo, oneRecord, "watertight: call would have been refused", "watertight: more calls would have been refused", logReason)
	l.tripped = l.kind(slog.LevelWarn, fewRecords, "watertight: breaker tripped", "watertight: breaker tripped more often", "")
	l.halfOpen = l.kind(slog.LevelInfo, fewRecords, "watertight: breaker half-open", "watertight: breaker half-open more often", "")
	l.closed = l.kind(slog.LevelInfo, fewRecords, "watertight: breaker closed", "watertight: breaker closed more often", "")
	l.limitChanged = l.kind(slog.LevelInfo, fewRecords, "watertight: limit changed", "watertight: limit changed more often", logCause)
	l.evicted = l.kind(slog.LevelInfo, oneRecord, "watertight: compartment dropped", "watertight: more compartments dropped", logCause)
	l.overflowing = l.kind(slog.LevelWarn, oneRecord, "watertight: too many keys, new ones share a compartment", "watertight: too many keys more often", "")
	l.overflowed = l.kind(slog.LevelInfo, oneRecord, "watertight: new keys have compartments of their own again", "watertight: new keys had compartments of their own more often", "")
	return l
}

func (l *logs) kind(level slog.Level, burst int, one, more, what string) *kind {
	k := &kind{level: level, one: one, more: more, what: what}
	k.floodgate = flood.New(flood.Config[origin]{Interval: logInterval, Burst: burst, Keys: logOrigins, Tell: func(left flood.Left[origin]) { l.tell(k, left) }})
	return k
}

func (l *logs) kinds() []*kind {
	return []*kind{l.refused, l.observed, l.tripped, l.halfOpen, l.closed, l.limitChanged, l.evicted, l.overflowing, l.overflowed}
}

// flush tells of all that was left out up to now.
func (l *logs) flush() {
	for _, k := range l.kinds() {
		k.floodgate.Flush()
	}
}

func (l *logs) to() *slog.Logger {
	if l.logger != nil {
		return l.logger
	}
	return slog.Default()
}

// wants notes an event, and reports whether to write a record about it.
func (l *logs) wants(ctx context.Context, k *kind, c watertight.Compartment, what string) bool {
	return k.floodgate.Write(origin{c.Policy, c.Side, loggedKey(c), what}) && l.to().Enabled(ctx, k.level)
}

// write writes a record, to which the ids of the trace are added.
func (l *logs) write(ctx context.Context, k *kind, attrs []slog.Attr) {
	l.to().LogAttrs(ctx, k.level, k.one, append(attrs, traceAttrs(ctx)...)...)
}

// tell writes how many were left out.
func (l *logs) tell(k *kind, left flood.Left[origin]) {
	attrs := make([]slog.Attr, 0, 6)
	if p := left.Key; !left.Others {
		attrs = append(attrs, slog.String(logPolicy, p.policy), slog.String(logSide, p.side.String()))
		if p.key != "" {
			attrs = append(attrs, slog.String(logKey, keyText(p.key)))
		}
		if k.what != "" {
			attrs = append(attrs, slog.String(k.what, p.what))
		}
	}
	l.to().LogAttrs(context.Background(), k.level, k.more, append(attrs, left.Attrs()...)...)
}

// traceAttrs returns what a record says of the span in ctx, if there is one. They are
// also what the Guard adds to its own records.
func traceAttrs(ctx context.Context) []slog.Attr {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return nil
	}
	return []slog.Attr{slog.String(logTraceID, sc.TraceID().String()), slog.String(logSpanID, sc.SpanID().String())}
}

// loggedKey returns the key as far as it may be in a log: keys of routes and hosts come
// from the router and from hosts. Any other, such as a header's value, may be a secret.
func loggedKey(c watertight.Compartment) string {
	if c.Per == policy.PerRoute || c.Per == policy.PerHost {
		return c.Key
	}
	return ""
}

// logAttrsOf returns what every record says of its compartment, with room for as many
// more attributes and those of the trace.
func logAttrsOf(c watertight.Compartment, more int) []slog.Attr {
	attrs := make([]slog.Attr, 0, 5+more)
	attrs = append(attrs, slog.String(logPolicy, c.Policy), slog.String(logSide, c.Side.String()))
	if key := loggedKey(c); key != "" {
		attrs = append(attrs, slog.String(logKey, keyText(key)))
	}
	return attrs
}

func (t *telemetry) logRefusal(ctx context.Context, e watertight.RejectEvent, mode policy.Mode) {
	l := t.logs
	if l == nil {
		return
	}
	k := l.refused
	if mode == policy.Observe {
		k = l.observed
	}
	if !l.wants(ctx, k, e.Compartment, e.Reason.String()) {
		return
	}
	attrs := append(logAttrsOf(e.Compartment, 6), slog.String(logReason, e.Reason.String()))
	if mode == policy.Observe {
		attrs = append(attrs, slog.String(logMode, mode.String()))
	}
	if e.Reason == policy.ReasonOpen {
		attrs = append(attrs, slog.String(logState, e.Breaker.String()))
	} else if e.Limit > 0 {
		attrs = append(attrs, slog.Int(logLimit, e.Limit), slog.Int(logInFlight, e.InFlight), slog.Int(logQueued, e.Queued))
	}
	if e.RetryAfter > 0 {
		attrs = append(attrs, slog.Float64(logRetryAfter, milliseconds(e.RetryAfter)))
	}
	l.write(ctx, k, attrs)
}

func (t *telemetry) logTransition(ctx context.Context, e watertight.TransitionEvent, late time.Duration) {
	l := t.logs
	if l == nil {
		return
	}
	k := l.closed
	switch e.To {
	case breaker.Open, breaker.ForcedOpen:
		k = l.tripped
	case breaker.HalfOpen:
		k = l.halfOpen
	}
	if !l.wants(ctx, k, e.Compartment, "") {
		return
	}
	attrs := logAttrsOf(e.Compartment, 11)
	if e.Mode == policy.Observe {
		attrs = append(attrs, slog.String(logMode, e.Mode.String()))
	}
	attrs = append(attrs,
		slog.String(logFrom, e.From.String()),
		slog.String(logTo, e.To.String()),
		slog.String(logCause, e.Cause.String()),
	)
	if e.FailureRate >= 0 {
		attrs = append(attrs, slog.Float64(logFailureRate, e.FailureRate))
	}
	if e.SlowCallRate >= 0 {
		attrs = append(attrs, slog.Float64(logSlowCallRate, e.SlowCallRate))
	}
	attrs = append(attrs, slog.Int(logCalls, e.Calls))
	if e.Cause == breaker.CauseOverdue {
		attrs = append(attrs, slog.Int(logOverdue, e.Overdue), slog.Int(logResponded, e.Responded))
	}
	if e.OpenFor > 0 {
		attrs = append(attrs, slog.Float64(logOpenFor, milliseconds(e.OpenFor)))
	}
	if late > 0 {
		attrs = append(attrs, slog.Float64(logLate, milliseconds(late)))
	}
	l.write(ctx, k, attrs)
}

func (t *telemetry) limitChange(ctx context.Context, e watertight.LimitChangeEvent) {
	if l := t.logs; l.wants(ctx, l.limitChanged, e.Compartment, e.Cause) {
		l.write(ctx, l.limitChanged, append(logAttrsOf(e.Compartment, 3),
			slog.Int(logFrom, e.From), slog.Int(logTo, e.To), slog.String(logCause, e.Cause)))
	}
}

// evict counts by policy: keys that come and go would each have the first record.
func (t *telemetry) evict(ctx context.Context, e watertight.EvictEvent) {
	all := watertight.Compartment{Policy: e.Policy, Side: e.Side}
	if l := t.logs; l.wants(ctx, l.evicted, all, e.Cause) {
		l.write(ctx, l.evicted, append(logAttrsOf(e.Compartment, 2),
			slog.String(logCause, e.Cause), slog.Float64(logRested, milliseconds(e.Rested))))
	}
}

func (t *telemetry) overflow(ctx context.Context, e watertight.OverflowEvent) {
	l := t.logs
	k := l.overflowed
	if e.Began {
		k = l.overflowing
	}
	if l.wants(ctx, k, e.Compartment, "") {
		l.write(ctx, k, append(logAttrsOf(e.Compartment, 1), slog.Int(logMaxCompartments, e.Max)))
	}
}

// attachLogs is attach that lets nothing be left untold when the Guard closes.
func (t *telemetry) attachLogs(g *watertight.Guard) (detach func()) {
	end := func() {}
	if !t.noMetrics {
		if e := t.attach(g); e != nil {
			end = e
		}
	}
	return func() {
		defer t.logs.flush()
		end()
	}
}
