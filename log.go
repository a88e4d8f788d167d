package watertight

import (
	"context"
	"log/slog"
	"time"

	"github.com/watertight-go/watertight/internal/flood"
)

// What a Guard logs itself is what its owner must hear of also without any hooks, and
// what hooks are not told: which policies are in force, what somebody should mend. All
// else is for hooks to log, so nothing is logged twice.
type logs struct {
	logger *slog.Logger // nil: slog.Default()
	hooks  *hookSets    // nil: none

	leaks   *flood.Limiter[Compartment]
	reloads *flood.Limiter[reloaded]
}

// reloaded is how a reload went.
type reloaded bool

// How many records there may be of one kind. Reloads are slow to come, but a program
// may call Reload as often as it likes.
const (
	logInterval  = 10 * time.Second
	reloadsBurst = 10
	leaksBurst   = 1
	leaksKeys    = 20
)

const (
	leakMessage         = "watertight: a response body was dropped without Close; its permit was held until the garbage collector found it"
	leaksMessage        = "watertight: more response bodies were dropped without Close"
	reloadMessage       = "watertight: policies reloaded"
	reloadsMessage      = "watertight: policies reloaded more often"
	reloadFailMessage   = "watertight: the new policies are not in force, those before stay"
	reloadsFailMessage  = "watertight: more new policies are not in force"
	policyMessage       = "watertight: a policy is hardly meant as it is"
	misnamedMessage     = "watertight: WithPolicy names a policy that this side does not have; the policies that match hold instead. Other such calls are not logged"
	hookPanickedMessage = "watertight: a hook panicked; later panics of this hook are not logged"
)

func newLogs(logger *slog.Logger) *logs {
	l := &logs{logger: logger}
	l.leaks = flood.New(flood.Config[Compartment]{Interval: logInterval, Burst: leaksBurst, Keys: leaksKeys, Tell: l.tellLeaks})
	l.reloads = flood.New(flood.Config[reloaded]{Interval: logInterval, Burst: reloadsBurst, Keys: 2, Tell: l.tellReloads})
	return l
}

// flush tells of what was left out, before nobody listens any more.
func (l *logs) flush() {
	l.leaks.Flush()
	l.reloads.Flush()
}

// report logs something about a call, with what hooks know of its context.
func (l *logs) report(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if l.hooks != nil {
		attrs = append(attrs, l.hooks.logAttrs(ctx)...)
	}
	l.write(ctx, level, msg, attrs...)
}

// write logs. A logger that panics has nobody to be reported to, and is no
// reason to fail the call that it would have told of.
func (l *logs) write(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, level, msg, attrs...)
}

func (l *logs) leaked(ctx context.Context, c *compartment) {
	at := c.Compartment
	at.Key = c.keyForCallers()
	if l.leaks.Write(at) {
		l.report(ctx, slog.LevelWarn, leakMessage, attrsOf(at)...)
	}
}

func (l *logs) tellLeaks(left flood.Left[Compartment]) {
	attrs := left.Attrs()
	if !left.Others {
		attrs = append(attrsOf(left.Key), attrs...)
	}
	l.write(context.Background(), slog.LevelWarn, leaksMessage, attrs...)
}

// attrsOf names a compartment, whose key may be seen.
func attrsOf(c Compartment) []slog.Attr {
	attrs := []slog.Attr{slog.String("policy", c.Policy), slog.String("side", c.Side.String())}
	if c.Key != "" {
		attrs = append(attrs, slog.String("key", c.Key))
	}
	return attrs
}

func (l *logs) reloaded(version string, policies int) (written bool) {
	if !l.reloads.Write(true) {
		return false
	}
	l.write(context.Background(), slog.LevelInfo, reloadMessage, slog.String("version", version), slog.Int("policies", policies))
	return true
}

func (l *logs) reloadFailed(version string, err error) {
	if l.reloads.Write(false) {
		l.write(context.Background(), slog.LevelError, reloadFailMessage, slog.String("version", version), slog.String("error", err.Error()))
	}
}

func (l *logs) tellReloads(left flood.Left[reloaded]) {
	if left.Key {
		l.write(context.Background(), slog.LevelInfo, reloadsMessage, left.Attrs()...)
	} else {
		l.write(context.Background(), slog.LevelError, reloadsFailMessage, left.Attrs()...)
	}
}

// logAttrs returns what the hooks add to a record about a call.
func (h *hookSets) logAttrs(ctx context.Context) (attrs []slog.Attr) {
	for i := range h.sets {
		if f := h.sets[i].LogAttrs; f != nil {
			h.call(i, "LogAttrs", func() { attrs = append(attrs, f(ctx)...) })
		}
	}
	return attrs
}
