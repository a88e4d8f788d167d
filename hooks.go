package watertight

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// Hooks is a set of functions that a [Guard] calls as things happen. Any of
// them may be nil. A hook runs outside all locks on the goroutine that makes
// happen what it tells of: that of the call as a rule, that of whoever ends the
// call for Release, and for Transition perhaps another call's or that of a
// Snapshot, since changes of one breaker are told one after the other. It may
// call back into the Guard, must be safe for concurrent use, and should return
// at once, for the call waits for it. A hook never changes an admission; one
// that panics is logged once and otherwise ignored.
type Hooks struct {
	// Attach is called by [New] with the new Guard; the function that it
	// returns, if any, by [Guard.Close].
	Attach func(g *Guard) (detach func())

	// Arrive is called before anything is decided about a call that some
	// policy limits, or that is refused as draining. The other hooks of the
	// call get the context that it returns; nil means unchanged. Nothing is
	// told of a call whose context was done when it came. Of a call that is not
	// HTTP, by Guard.Do or a Pool, req has only its Side, policy.Client. The hook must
	// neither change req nor keep it: another call gets it afterwards.
	Arrive func(ctx context.Context, req *policy.Request) context.Context

	// Wait is called when a call that had to queue for a permit has got it,
	// waited too long or left.
	Wait func(ctx context.Context, e WaitEvent)

	// Grant is called when a permit is granted. The call runs under the
	// context that it returns; nil means unchanged. A call that only a breaker
	// watches has no permit and no Grant.
	Grant func(ctx context.Context, e GrantEvent) context.Context

	// Release is called after the permit of a Grant was given back, with the
	// context that this set's Grant returned; for the task of a Pool, when the
	// task has ended, just before its worker is free.
	Release func(ctx context.Context, e ReleaseEvent)

	// Reject is called when a call is turned away.
	Reject func(ctx context.Context, e RejectEvent)

	// Observe is called when a call would have been turned away, had its policy
	// not mode: observe; with what Reject would have been told. For
	// policy.ReasonWaitTimeout it is called when the call has ended, if it has not
	// ended before its time in the queue would have run out.
	Observe func(ctx context.Context, e RejectEvent)

	// Fault is called when a call that a breaker watches has failed or was slow, just
	// before the breaker hears of it; with the context that this set's Grant returned,
	// if the call has a permit. It is called, too, for calls that have not ended, when
	// a breaker trips because they are overdue; only then is it called by another
	// goroutine than that of the call. What it returns is kept for the breaker's
	// period, a few for each breaker: see [TransitionEvent]. It should be small, and
	// not hold on to the call; nil keeps nothing.
	Fault func(ctx context.Context, e FaultEvent) (keep any)

	// FaultKeeps is asked when a call begins that may become overdue, with the context
	// that this set's Grant returned, if it has a permit: whether Fault would keep
	// something of it. nil means that it may. Of a breaker's calls in flight only 8 are
	// remembered at a time; those are spared for which the answer is no.
	FaultKeeps func(ctx context.Context) bool

	// Transition is called when a breaker changes state, in order for each
	// breaker. ctx is that of the call that saw the change,
	// context.Background() if none did.
	Transition func(ctx context.Context, e TransitionEvent)

	// Reload is called when other policies have come into force, or could not. It
	// must neither reload nor drain.
	Reload func(e ReloadEvent)

	// LimitChange is called when a bulkhead has another limit: by a reload once for
	// each policy that had it before, and side, ahead of Reload, with
	// context.Background(). It must neither reload nor drain.
	LimitChange func(ctx context.Context, e LimitChangeEvent)

	// Evict is called when a compartment at rest was dropped, with the context of the
	// call whose key was new.
	Evict func(ctx context.Context, e EvictEvent)

	// Overflow is called when new keys begin to share one compartment, and when one of
	// them has its own again, with the context of the call that brought it. Of two calls
	// that bring this about at once, either may be heard first.
	Overflow func(ctx context.Context, e OverflowEvent)

	// LogAttrs returns what the Guard adds to records of its own about a call, as the
	// ids of the trace in its context.
	LogAttrs func(ctx context.Context) []slog.Attr
}

// A ReloadEvent tells of policies that came into force, or failed to.
type ReloadEvent struct {
	Version string // of the policies now in force; see [policy.Set.Version]
	Err     error  // why the new ones are not in force; nil if they are
}

// A Compartment names one: the policy that calls for it, the side of the wire,
// and the key by which the policy divides its calls.
type Compartment struct {
	Policy string
	Side   policy.Side
	Per    policy.Per
	Key    string
}

// A WaitEvent tells of a call that queued for a permit.
type WaitEvent struct {
	Compartment
	Arrived  time.Time     // when it queued
	Waited   time.Duration // until the wait ended
	Position int           // place in the queue on arrival; 1 was next
	Result   string        // "granted", "wait_timeout", "canceled" or "draining"
}

// A GrantEvent tells of a permit granted.
type GrantEvent struct {
	Compartment
	Limit    int           // the bulkhead's limit at the time
	InFlight int           // permits out, this one included
	Waited   time.Duration // 0 if it did not queue
}

// A ReleaseEvent tells of a permit given back.
type ReleaseEvent struct {
	Compartment
	Held   time.Duration // since it was granted
	Leaked bool          // the response body was dropped unread and found by the garbage collector
}

// A RejectEvent tells of a call turned away.
type RejectEvent struct {
	Compartment
	Reason     policy.Reason
	Breaker    breaker.State // for policy.ReasonOpen: breaker.Open, or HalfOpen when no probe was left
	Limit      int           // of the bulkhead, 0 if there is none
	InFlight   int
	Queued     int
	RetryAfter time.Duration // 0 if unknown
	Err        error         // the *RejectedError
}

// A TransitionEvent tells of a breaker's change of state.
type TransitionEvent struct {
	Compartment
	breaker.Transition
	Mode policy.Mode // policy.Observe: it turns nobody away

	// Faults are the calls that a trip is owed to, of those of which the Fault hook of
	// this set kept something: the latest 8, in the order in which they were filed,
	// then those in flight. By Cause that is the calls in the window that failed, or
	// that were slow; those overdue, of which only some are known if there are many;
	// in half-open, the probes. A call that failed at the very moment of the trip may
	// be among them although it came too late to count. Without a Fault hook, and for
	// any other transition, there are none.
	Faults []Fault
}

// hookSets calls the hooks of all sets given to New, the first set first;
// Release runs in reverse, as the Grants nest.
type hookSets struct {
	sets   []Hooks
	faults bool // some set has Fault
	logs   *logs

	mu       sync.Mutex // guards panicked
	panicked map[hookName]bool
}

type hookName struct {
	set  int // index
	name string
}

// call calls a hook of one set, and keeps what it does away from the call that it
// tells of.
func (h *hookSets) call(set int, name string, hook func()) {
	defer h.contain(set, name)
	hook()
}

// contain is deferred around each hook. One that panics is logged, the first time.
func (h *hookSets) contain(set int, name string) {
	v := recover()
	if v == nil {
		return
	}
	key := hookName{set, name}
	h.mu.Lock()
	seen := h.panicked[key]
	if h.panicked == nil {
		h.panicked = make(map[hookName]bool)
	}
	h.panicked[key] = true
	h.mu.Unlock()
	if !seen {
		h.logs.write(context.Background(), slog.LevelError, hookPanickedMessage,
			slog.String("hook", name), slog.Int("set", set), slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
	}
}

// attach returns what is to be called by Close.
func (h *hookSets) attach(g *Guard) (detach []func()) {
	for i := range h.sets {
		if f := h.sets[i].Attach; f != nil {
			func() {
				defer h.contain(i, "Attach")
				if d := f(g); d != nil {
					detach = append(detach, func() {
						defer h.contain(i, "detach")
						d()
					})
				}
			}()
		}
	}
	return detach
}

// requests are what Arrive hooks are shown, of calls gone by.
var requests = sync.Pool{New: func() any { return new(policy.Request) }}

// arrive returns the context for the other hooks, and whether a hook made a new
// one. Contexts are not compared: nothing says that they can be.
func (h *hookSets) arrive(ctx context.Context, req *policy.Request) (_ context.Context, derived bool) {
	for i := range h.sets {
		if f := h.sets[i].Arrive; f != nil {
			func() {
				defer h.contain(i, "Arrive")
				// A copy: what goes to an unknown function escapes, and only
				// calls with such a hook shall pay for that. One whose hook panics
				// may be in somebody's hands still, and is not used again.
				r := requests.Get().(*policy.Request)
				*r = *req
				if c := f(ctx, r); c != nil {
					ctx, derived = c, true
				}
				*r = policy.Request{}
				requests.Put(r)
			}()
		}
	}
	return ctx, derived
}

func (h *hookSets) wait(ctx context.Context, e WaitEvent) {
	for i := range h.sets {
		if f := h.sets[i].Wait; f != nil {
			h.call(i, "Wait", func() { f(ctx, e) })
		}
	}
}

// grants holds what the Releases of one grant are called with. Nearly everybody has
// one set of hooks, so the first has its place in the call itself.
type grants struct {
	first  context.Context   // what the Grant of the first set returned; nil: no Release to call
	others []context.Context // the same of the sets after it; nil: none has a Release to call
	at     time.Duration     // of the grant, counted from start
}

func (gs *grants) keep(set, sets int, ctx context.Context) {
	if set == 0 {
		gs.first = ctx
		return
	}
	if gs.others == nil {
		gs.others = make([]context.Context, sets-1)
	}
	gs.others[set-1] = ctx
}

func (gs *grants) of(set int) context.Context {
	switch {
	case set == 0:
		return gs.first
	case gs.others == nil:
		return nil
	}
	return gs.others[set-1]
}

func (gs *grants) none() bool { return gs.first == nil && gs.others == nil }

// start is where grants and rests are timed from: a span since then is one word, and
// telling it costs less than the time of day.
var start = time.Now()

// grant returns the context that the call runs under, whether a hook made a new
// one, and what release needs.
func (h *hookSets) grant(ctx context.Context, e GrantEvent) (_ context.Context, derived bool, gs grants) {
	for i := range h.sets {
		panicked := false
		if f := h.sets[i].Grant; f != nil {
			panicked = true
			func() {
				defer h.contain(i, "Grant")
				if c := f(ctx, e); c != nil {
					ctx, derived = c, true
				}
				panicked = false
			}()
		}
		// A set that did not get to begin must not be told of the end: it would
		// take an outer call's for its own.
		if h.sets[i].Release != nil && !panicked {
			gs.keep(i, len(h.sets), ctx)
		}
	}
	if !gs.none() {
		gs.at = time.Since(start) // the hooks above are not part of the call
	}
	return ctx, derived, gs
}

// release tells whichever Grants were told of it of a permit given back at now, counted
// from start. Where gs is none, it need not be called.
func (h *hookSets) release(gs *grants, c Compartment, now time.Duration, leaked bool) {
	e := ReleaseEvent{Compartment: c, Held: now - gs.at, Leaked: leaked}
	for i := len(h.sets) - 1; i >= 0; i-- {
		ctx := gs.of(i)
		if ctx == nil {
			continue
		}
		h.call(i, "Release", func() { h.sets[i].Release(ctx, e) })
	}
}

func (h *hookSets) reject(ctx context.Context, e RejectEvent) {
	for i := range h.sets {
		if f := h.sets[i].Reject; f != nil {
			h.call(i, "Reject", func() { f(ctx, e) })
		}
	}
}

func (h *hookSets) observe(ctx context.Context, e RejectEvent) {
	for i := range h.sets {
		if f := h.sets[i].Observe; f != nil {
			h.call(i, "Observe", func() { f(ctx, e) })
		}
	}
}

// wantFaults reports whether any set asks for faults. h may be nil.
func (h *hookSets) wantFaults() bool { return h != nil && h.faults }

// keepsFault reports whether some set may keep something of a call. gs are those of its
// grants.
func (h *hookSets) keepsFault(ctx context.Context, gs *grants) (keeps bool) {
	for i := range h.sets {
		if h.sets[i].Fault == nil {
			continue
		}
		f := h.sets[i].FaultKeeps
		if f == nil {
			return true
		}
		ctx := ctx
		if granted := gs.of(i); granted != nil {
			ctx = granted
		}
		h.call(i, "FaultKeeps", func() { keeps = f(ctx) })
		if keeps {
			return true
		}
	}
	return false
}

// fault returns what each set keeps of a call, nil if none does. gs are those of
// its grants.
func (h *hookSets) fault(ctx context.Context, gs *grants, e FaultEvent) (kept []any) {
	for i := range h.sets {
		if f := h.sets[i].Fault; f != nil {
			ctx := ctx
			if granted := gs.of(i); granted != nil {
				ctx = granted
			}
			func() {
				defer h.contain(i, "Fault")
				if k := f(ctx, e); k != nil {
					if kept == nil {
						kept = make([]any, len(h.sets))
					}
					kept[i] = k
				}
			}()
		}
	}
	return kept
}

// transition tells each set with the faults of which it has kept something.
func (h *hookSets) transition(ctx context.Context, e TransitionEvent, calls []noted) {
	for i := range h.sets {
		if f := h.sets[i].Transition; f != nil {
			e.Faults = nil
			for _, c := range calls {
				if c.kept[i] != nil {
					fault := c.fault
					fault.Kept = c.kept[i]
					e.Faults = append(e.Faults, fault)
				}
			}
			h.call(i, "Transition", func() { f(ctx, e) })
		}
	}
}

func (h *hookSets) reload(e ReloadEvent) {
	for i := range h.sets {
		if f := h.sets[i].Reload; f != nil {
			h.call(i, "Reload", func() { f(e) })
		}
	}
}
