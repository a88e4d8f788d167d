package breaker

import (
	"fmt"
	"slices"
	"time"
)

// Config says when a [Breaker] trips and how it comes back. The zero Config is
// complete: every field has a default, and the slow call rule is off.
type Config struct {
	// FailureRate is the share of failed calls, in percent, at which the breaker
	// trips: 0 < FailureRate <= 100, and a rate equal to it trips. 0 means 50.
	FailureRate float64

	// SlowCall is the duration that a call must exceed to count as slow; a call
	// of exactly SlowCall is not slow. 0 turns the slow call rule off.
	SlowCall time.Duration

	// SlowCallRate is the share of slow calls, in percent, at which the breaker
	// trips: 0 < SlowCallRate <= 100, and a rate equal to it trips. 0 means 80.
	// Without SlowCall it is not used.
	SlowCallRate float64

	// NoOverdue turns the overdue rule off. It is on if SlowCall is set; the
	// package documentation says what it is.
	NoOverdue bool

	// OverdueLimit is how many calls can be in flight at all, if something
	// around the breaker, such as a bulkhead, limits that: so many overdue calls
	// are enough for the overdue rule even if MinCalls is more. 0 means that
	// there is no such limit. [Breaker.SetOverdueLimit] changes it later.
	OverdueLimit int

	// Window says which outcomes the rates are computed over.
	Window Window

	// MinCalls is the number of outcomes below which no rate is computed and
	// nothing trips. 0 means 20. In a count window it is at most Window.Calls:
	// a larger one, which could never be reached, is cut to that.
	MinCalls int

	// OpenFor is how long the breaker stays open: the first entry for the first
	// time, the next one if the probes after that failed, and so on; the last
	// entry repeats. It starts over once the breaker has closed. Every entry
	// must be positive. Empty means 30s. New copies it. [Growing] makes one that
	// grows by a factor.
	OpenFor []time.Duration

	// Jitter is by which part of it an open period may be shorter or longer than
	// OpenFor says, at random, so that many breakers in front of the same callee
	// do not all send their probes at once: 0 <= Jitter < 1, and 0.2 makes 10s
	// anything from 8s to 12s. No period gets longer than the longest in OpenFor.
	Jitter float64

	// MaxRetryAfter is the longest open period that the callee may ask for
	// through [Call.RetryAfter]; what asks for more gets that. 0 means that the
	// callee is not heeded.
	MaxRetryAfter time.Duration

	// HalfOpen is how the breaker finds out whether it may close again.
	HalfOpen HalfOpenConfig

	// AutoHalfOpen makes the breaker half-open at the instant its open period
	// ends, rather than at the first call after that. It takes no timer: the
	// change is made, as of that instant, by whichever method is called next.
	// Together with HalfOpen.MaxWait a breaker that nobody calls goes round
	// between the two states; of the rounds since the last call, the listener is
	// told at least the last 64.
	AutoHalfOpen bool

	// InitialState is the state to start in; 0 means Closed. A breaker that
	// starts Open has its first open period ahead, one that starts HalfOpen behind it.
	InitialState State

	// OnTransition, if not nil, is the listener: it is told of every change of
	// state once, one at a time and in order, each From being the To before it.
	//
	// It runs on the goroutine whose call made the change, before that call
	// returns; but if another goroutine is in the listener at that time, that
	// one delivers the change as its next, and the call does not wait for it.
	// No lock is held, so the listener may call any method of the breaker; what
	// it changes is delivered after it has returned. The breaker may be further
	// on by the time the listener hears of a change. The listener must not end
	// its goroutine by runtime.Goexit, since that would end the call.
	//
	// A panic in the listener goes no further: it is logged with its stack
	// through slog.Default, and later changes are still delivered. While the
	// listener stalls, up to 1000 changes wait; beyond that the oldest are lost.
	OnTransition func(Transition)
}

// A Window is the set of outcomes that the rates of a closed breaker are
// computed over: the last Calls, or those of the last Time. Exactly one of the
// two is set; the zero Window means 100 calls.
//
// A count window takes a quarter of a byte for each call.
//
// A time window is made of buckets, and an outcome leaves with the bucket that
// it ended in: never later than Time after the end, and earlier by less than one
// bucket. A window of whole seconds up to two minutes has buckets of 100ms when
// it is shorter than 10s, else of 1s, so that an outcome at a whole second
// (since New) leaves after exactly Time. Any other window has 60 equal buckets.
type Window struct {
	Calls int           // number of calls, at least 1
	Time  time.Duration // at least 1ms
}

// HalfOpenConfig is how a half-open breaker decides between closing and opening again:
// by the same two rates, over the outcomes of its probes, as soon as MinCalls or
// Calls of them have ended, whichever is fewer.
type HalfOpenConfig struct {
	// Calls is the number of probes let in while half-open, at the same time or
	// one after the other. 0 means 10. Every further call is refused. Only an
	// ignored probe makes room for another.
	Calls int

	// ProbeTimeout is how long the breaker waits for a probe to respond or to
	// end, and once it has responded, how long for it to end. One that takes
	// longer counts as failed and slow from then on, and what it says later is
	// dropped; this is the way out for a probe whose result never comes. 0 means
	// 30s. Negative waits for ever: then a lost probe can keep the breaker
	// half-open, refusing, unless MaxWait or the overdue rule ends that.
	ProbeTimeout time.Duration

	// MaxWait bounds the half-open state as a whole. 0 means no bound.
	MaxWait time.Duration

	// MaxWaitTarget is the state after MaxWait: Open (which 0 means) or Closed.
	MaxWaitTarget State
}

// withDefaults returns c with every default filled in. It panics if a field is
// out of its range.
func (c Config) withDefaults() Config {
	c.FailureRate = rate("FailureRate", c.FailureRate, 50)
	c.SlowCallRate = rate("SlowCallRate", c.SlowCallRate, 80)
	check(c.SlowCall >= 0, "SlowCall", c.SlowCall)
	check(c.OverdueLimit >= 0, "OverdueLimit", c.OverdueLimit)

	if c.Window == (Window{}) {
		c.Window.Calls = 100
	}
	check(c.Window.Calls >= 0, "Window.Calls", c.Window.Calls)
	check(c.Window.Time == 0 || c.Window.Time >= time.Millisecond, "Window.Time", c.Window.Time)
	check(c.Window.Calls == 0 || c.Window.Time == 0, "Window with both Calls and Time", c.Window)

	check(c.MinCalls >= 0, "MinCalls", c.MinCalls)
	if c.MinCalls == 0 {
		c.MinCalls = 20
	}
	if c.Window.Calls > 0 {
		c.MinCalls = min(c.MinCalls, c.Window.Calls)
	}

	c.OpenFor = slices.Clone(c.OpenFor)
	if len(c.OpenFor) == 0 {
		c.OpenFor = []time.Duration{30 * time.Second}
	}
	for _, d := range c.OpenFor {
		check(d > 0, "OpenFor", d)
	}
	check(c.Jitter >= 0 && c.Jitter < 1, "Jitter", c.Jitter) // false for NaN
	check(c.MaxRetryAfter >= 0, "MaxRetryAfter", c.MaxRetryAfter)

	check(c.HalfOpen.Calls >= 0, "HalfOpen.Calls", c.HalfOpen.Calls)
	if c.HalfOpen.Calls == 0 {
		c.HalfOpen.Calls = 10
	}
	if c.HalfOpen.ProbeTimeout == 0 {
		c.HalfOpen.ProbeTimeout = 30 * time.Second
	}
	check(c.HalfOpen.MaxWait >= 0, "HalfOpen.MaxWait", c.HalfOpen.MaxWait)
	if c.HalfOpen.MaxWaitTarget == 0 {
		c.HalfOpen.MaxWaitTarget = Open
	}
	check(c.HalfOpen.MaxWaitTarget == Open || c.HalfOpen.MaxWaitTarget == Closed,
		"HalfOpen.MaxWaitTarget", c.HalfOpen.MaxWaitTarget)

	if c.InitialState == 0 {
		c.InitialState = Closed
	}
	check(c.InitialState.valid(), "InitialState", c.InitialState)
	return c
}

func check(ok bool, field string, value any) {
	if !ok {
		panic(fmt.Sprintf("breaker: bad %s: %v", field, value))
	}
}

func rate(field string, percent, byDefault float64) float64 {
	if percent == 0 {
		return byDefault
	}
	check(percent > 0 && percent <= 100, field, percent) // false for NaN
	return percent
}
