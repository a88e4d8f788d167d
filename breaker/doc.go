// Package breaker is a circuit breaker that judges calls by two rates at once:
// how many fail, and how many are slow.
//
//	b := breaker.New(breaker.Config{SlowCall: 800 * time.Millisecond})
//
//	call, err := b.Allow(ctx)
//	if err != nil {
//		return err // breaker.ErrOpen; call.Remaining() says for how long
//	}
//	outcome := breaker.Failure
//	defer func() { call.Done(ctx, outcome) }() // holds for a panic, too
//	if err := fetch(ctx); err != nil {
//		return err
//	}
//	outcome = breaker.Success
//
// The states, and what leads from one to the next:
//
//	    a rate reaches its threshold          open period over,
//	   +---------------------------> open --- and a call asks ----+
//	   |                              ^                           v
//	closed                            +------ probes bad ---- half-open
//	   ^                                   or MaxWait over        |
//	   +-------------------------------------- probes good -------+
//
// A closed breaker keeps the outcomes of the last calls, or of the last seconds
// ([Window]). Whenever one is added and there are at least MinCalls, it computes
// the failure rate and the slow call rate; either of them trips it by reaching
// its threshold. The two are not added up, and a call that is both slow and
// failed is one call in the total. Time alone does not trip a breaker, though in
// a time window the rates move when old outcomes leave.
//
// Half-open lets in as many probes as [HalfOpenConfig] says, never more, and
// judges their outcomes by the same rates.
//
// Every change of state begins a new period. The outcome of a call counts only
// in the period that let the call in: one that ends later is dropped, whatever
// state the breaker is in by then.
//
// [Breaker.Transition] leads from any state to any other, closed to half-open
// excepted. A breaker is in one of the three states that are not drawn above,
// Disabled, MetricsOnly and ForcedOpen, only if it was put there by hand or
// started there.
//
// Durations are measured on the monotonic clock. The breaker has no goroutine
// and no timer. A change that is due at an instant (a probe given up, the end of
// half-open's MaxWait) is made by whichever method is called next, as of that
// instant and not as of the call.
//
// The rules are those of resilience4j, https://resilience4j.readme.io/docs/circuitbreaker,
// with these repairs: late outcomes are dropped; a probe is let in at the very
// instant at which the open period ends; Reset ends a half-open's MaxWait; and a
// probe whose result never comes is given up.
//
// # Cost
//
// Letting a call in and filing its outcome takes the lock twice, reads the clock
// twice and allocates nothing, and refusing a call allocates nothing either. A
// breaker with the default window is about half a kilobyte.
package breaker
