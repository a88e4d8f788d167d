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
// failed is one call in the total. In a time window the rates also move when old
// outcomes leave, but that trips nothing.
//
// Half-open lets in as many probes as [HalfOpenConfig] says, never more, and
// judges their outcomes by the same rates.
//
// Every change of state begins a new period. The outcome of a call counts only
// in the period that let the call in: one that ends later is dropped, whatever
// state the breaker is in by then.
//
// # Overdue calls
//
// When a callee hangs, no call ends, and no rate moves before the caller's own
// time-out. So with SlowCall set there is one more way to trip, which looks at the
// calls in flight: let o be the number of those that have neither responded nor
// ended for longer than SlowCall, and d that of the calls that did so within the last
// SlowCall. The breaker
// opens, by [CauseOverdue], when o is at least MinCalls, or OverdueLimit if that is
// fewer, and o is at least SlowCallRate percent of o and d together. Only calls of
// the current period count. The rule does not touch the window: each call is filed
// there when it ends.
//
// The calls are counted in slots of an eighth of SlowCall (rounded up to a
// nanosecond), which makes a call overdue up to that much late, never early. The
// rule is evaluated whenever a method is called, and by Done after the call has
// ended. So if MinCalls calls hang, the first call after SlowCall and an eighth is
// refused, no matter how many fast ones there were right before.
//
// A half-open breaker counts an overdue probe as a slow call at once. That can open
// it again, and never closes it.
//
// A call begins at Allow. If it then has to wait for something that is not the
// callee, [Call.Pause] and [Call.Restart] keep it from becoming overdue there. If it
// ends long after the callee has responded, [Call.Responded] says so.
//
// # By hand
//
// [Breaker.Transition] leads from any state to any other, with three exceptions that
// it names, and [Breaker.Reset] to closed. A breaker is in one of the three states
// that are not drawn above only if it was put there by hand or started there:
// ForcedOpen refuses every call, Disabled lets every call in, as if forced closed,
// and MetricsOnly does that too but goes on counting.
//
// # Time
//
// Durations are measured on the monotonic clock. The breaker has no goroutine
// and no timer. A change that is due at an instant (a probe given up, the end of
// half-open's MaxWait) is made by whichever method is called next, as of that
// instant and not as of the call.
//
// The rules are those of resilience4j, https://resilience4j.readme.io/docs/circuitbreaker,
// with these repairs: late outcomes are dropped; a probe is let in at the very
// instant at which the open period ends; Reset ends a half-open's MaxWait; and a
// probe whose result never comes is given up. The overdue rule is not from there;
// NoOverdue turns it off.
//
// # Cost
//
// Letting a call in and filing its outcome reads the clock twice; besides the clock that
// is about two and a half times an atomic add and its undo, with both rates and the
// overdue rule. Nearly always it takes no lock, so that it costs no more of these where
// many goroutines call at once. It takes the lock once for a call that is slow, has
// failed where that might trip the breaker, or lasts into another eighth of SlowCall
// than it began in while the overdue rule is on; and now and then for any other. Refusing
// a call reads the clock once, takes no lock, and costs less than that pair. Neither
// allocates. A breaker with the default window takes about 400 bytes.
// BenchmarkRatio measures all this but the last.
package breaker
