package watertight_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

const hooked = `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}
    breaker: {minCalls: 2, openFor: 5s}
`

type ctxKey string

// story is a set of hooks that writes down what it is told.
type story struct {
	mu     sync.Mutex
	events []any
	ctxs   []context.Context
}

func (s *story) add(ctx context.Context, e any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	s.ctxs = append(s.ctxs, ctx)
}

func (s *story) hooks(name string) watertight.Hooks {
	return watertight.Hooks{
		Arrive: func(ctx context.Context, r *policy.Request) context.Context {
			return context.WithValue(ctx, ctxKey("arrive"), name)
		},
		Wait: func(ctx context.Context, e watertight.WaitEvent) { s.add(ctx, e) },
		Grant: func(ctx context.Context, e watertight.GrantEvent) context.Context {
			s.add(ctx, e)
			return context.WithValue(ctx, ctxKey("grant"), name)
		},
		Release:    func(ctx context.Context, e watertight.ReleaseEvent) { s.add(ctx, e) },
		Reject:     func(ctx context.Context, e watertight.RejectEvent) { s.add(ctx, e) },
		Transition: func(ctx context.Context, e watertight.TransitionEvent) { s.add(ctx, e) },
	}
}

func TestHooksTellTheStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := guard(t, hooked, watertight.WithHooks(s.hooks("one")))
		all := watertight.Compartment{Policy: "all", Side: policy.Server, Per: policy.PerPolicy}
		start := time.Now()
		first := admit(t, g, on("/"))
		ctx, derived := first.Context()
		assert.True(t, derived)
		assert.Equal(t, "one", ctx.Value(ctxKey("grant")))

		granted := make(chan *watertight.Call)
		go func() {
			c, err := g.Admit(t.Context(), on("/"))
			assert.NoError(t, err)
			granted <- &c
		}()
		synctest.Wait()
		refused(t, g, on("/"), bulkhead.ErrFull)
		time.Sleep(300 * time.Millisecond)
		first.SettleStatus(500)
		first.Release()
		second := <-granted
		second.SettleFailure()
		second.Release()
		refused(t, g, on("/"), breaker.ErrOpen)

		var kinds []any
		for i, e := range s.events {
			assert.Equal(t, "one", s.ctxs[i].Value(ctxKey("arrive")), "every hook gets what Arrive made")
			switch e := e.(type) {
			case watertight.RejectEvent:
				var rej *watertight.RejectedError
				require.ErrorAs(t, e.Err, &rej)
				e.Err = nil
				kinds = append(kinds, e)
			case watertight.ReleaseEvent:
				assert.Equal(t, "one", s.ctxs[i].Value(ctxKey("grant")), "Release gets what Grant made")
				kinds = append(kinds, e)
			case watertight.TransitionEvent:
				e.Transition.Context, e.Transition.At = nil, time.Time{}
				kinds = append(kinds, e)
			default:
				kinds = append(kinds, e)
			}
		}
		assert.ElementsMatch(t, []any{
			watertight.GrantEvent{Compartment: all, Limit: 1, InFlight: 1},
			watertight.RejectEvent{Compartment: all, Reason: policy.ReasonFull, Limit: 1, InFlight: 1, Queued: 1, RetryAfter: time.Second},
			watertight.ReleaseEvent{Compartment: all, Held: 300 * time.Millisecond},
			watertight.WaitEvent{Compartment: all, Arrived: start, Waited: 300 * time.Millisecond, Position: 1, Result: "granted"},
			watertight.GrantEvent{Compartment: all, Limit: 1, InFlight: 1, Waited: 300 * time.Millisecond},
			watertight.TransitionEvent{Compartment: all, Transition: breaker.Transition{
				From: breaker.Closed, To: breaker.Open, Cause: breaker.CauseFailureRate,
				FailureRate: 100, Calls: 2, OpenFor: 5 * time.Second, Attempt: 1,
			}},
			watertight.ReleaseEvent{Compartment: all},
			watertight.RejectEvent{Compartment: all, Reason: policy.ReasonOpen, Breaker: breaker.Open, Limit: 1, RetryAfter: 5 * time.Second},
		}, kinds)
	})
}

func TestAllHookSetsAreCalledAndReleasesNest(t *testing.T) {
	var order []string
	set := func(name string) watertight.Hooks {
		return watertight.Hooks{
			Attach: func(*watertight.Guard) func() {
				order = append(order, "attach "+name)
				return func() { order = append(order, "detach "+name) }
			},
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
				order = append(order, "grant "+name)
				return context.WithValue(ctx, ctxKey(name), true)
			},
			Release: func(ctx context.Context, _ watertight.ReleaseEvent) {
				assert.Equal(t, true, ctx.Value(ctxKey(name)))
				if name == "a" {
					assert.Nil(t, ctx.Value(ctxKey("b")), "a's context is the one that a's Grant returned")
				}
				order = append(order, "release "+name)
			},
		}
	}
	g := guard(t, hooked, watertight.WithHooks(set("a")), watertight.WithHooks(set("b")), watertight.WithHooks(watertight.Hooks{}))
	admit(t, g, on("/")).Release()
	g.Close()
	g.Close()
	assert.Equal(t, []string{"attach a", "attach b", "grant a", "grant b", "release b", "release a", "detach a", "detach b"}, order)
}

// Invariant 6: a panicking hook never changes an admission.
func TestPanickingHooksChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var mu sync.Mutex
		logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
		g := guard(t, hooked, watertight.WithLogger(logger), watertight.WithHooks(watertight.Hooks{
			Attach:     func(*watertight.Guard) func() { return func() { panic("detach") } },
			Arrive:     func(context.Context, *policy.Request) context.Context { panic("arrive") },
			Wait:       func(context.Context, watertight.WaitEvent) { panic("wait") },
			Grant:      func(context.Context, watertight.GrantEvent) context.Context { panic("grant") },
			Release:    func(context.Context, watertight.ReleaseEvent) { t.Error("Release without a Grant") },
			Reject:     func(context.Context, watertight.RejectEvent) { panic("reject") },
			Transition: func(context.Context, watertight.TransitionEvent) { panic("transition") },
		}), watertight.WithHooks(watertight.Hooks{
			Release: func(context.Context, watertight.ReleaseEvent) { panic("release") },
		}))
		for range 3 {
			first := admit(t, g, on("/"))
			go func() {
				if c, err := g.Admit(t.Context(), on("/")); assert.NoError(t, err) {
					c.SettleStatus(200)
					c.Release()
				}
			}()
			synctest.Wait()
			refused(t, g, on("/"), bulkhead.ErrFull)
			first.SettleStatus(200)
			first.Release()
			synctest.Wait()
		}
		for range 20 {
			if c, err := g.Admit(t.Context(), on("/")); err == nil {
				c.SettleFailure()
				c.Release()
			}
		}
		refused(t, g, on("/"), breaker.ErrOpen)
		g.Close()
		assert.Equal(t, 1, strings.Count(log.String(), "hook=Release "))
		c := compartment(t, g, "all", "")
		assert.Zero(t, c.Bulkhead.InFlight)
		assert.Zero(t, c.Bulkhead.Queued)
		for _, hook := range []string{"Arrive", "Wait", "Grant", "Reject", "Transition", "detach"} {
			assert.Equal(t, 1, strings.Count(log.String(), "hook="+hook+" "), "log lines of %s", hook)
		}
	})
}

// A change of state is told in the context of the call that saw it, also of one
// that has no outcome.
func TestTransitionsAreToldToTheCallThatSawThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		g := guard(t, `
version: 1
policies:
  - {name: all, per: policy, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 2, maxWait: 1s}}}
`, watertight.WithHooks(watertight.Hooks{
			Transition: func(ctx context.Context, e watertight.TransitionEvent) {
				told = append(told, fmt.Sprint(e.From, " ", e.To, " ", ctx.Value(ctxKey("call"))))
			},
		}))
		call := func(name string) *watertight.Call {
			c, err := g.Admit(context.WithValue(t.Context(), ctxKey("call"), name), to("a"))
			require.NoError(t, err)
			return &c
		}
		first, second := call("first"), call("second")
		first.SettleFailure()
		first.Release()
		second.Release()
		time.Sleep(time.Second)
		probe := call("probe")
		time.Sleep(time.Second)
		probe.Release() // half-open for as long as it may be
		time.Sleep(time.Second)
		_ = g.Snapshot()
		call("another").Release()
		time.Sleep(time.Second)
		_ = g.Snapshot() // nobody's call
		assert.Equal(t, []string{
			"closed open first",
			"open half_open probe",
			"half_open open probe",
			"open half_open another",
			"half_open open <nil>",
		}, told)
	})
}

// A call runs under what the hooks made of its context, if any of them made one.
func TestContextIsWhatHooksMadeOfIt(t *testing.T) {
	const policies = `
version: 1
policies:
  - {name: watched, side: client, match: [{host: watched}], breaker: {}}
  - {name: limited, side: client, match: [{host: limited}], bulkhead: {maxConcurrent: 9}}
`
	arrive := watertight.Hooks{Arrive: func(ctx context.Context, _ *policy.Request) context.Context {
		return context.WithValue(ctx, ctxKey("arrive"), true)
	}}
	grant := watertight.Hooks{Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
		return context.WithValue(ctx, ctxKey("grant"), true)
	}}
	quiet := watertight.Hooks{
		Arrive: func(context.Context, *policy.Request) context.Context { return nil },
		Grant:  func(context.Context, watertight.GrantEvent) context.Context { return nil },
	}
	for _, test := range []struct {
		name         string
		host         string
		sets         []watertight.Hooks
		wantA, wantG any
	}{
		{"none", "limited", nil, nil, nil},
		{"quiet ones", "limited", []watertight.Hooks{quiet}, nil, nil},
		{"Arrive", "limited", []watertight.Hooks{arrive, quiet}, true, nil},
		{"Grant", "limited", []watertight.Hooks{quiet, grant, quiet}, nil, true},
		{"both", "limited", []watertight.Hooks{grant, arrive}, true, true},
		{"Arrive, and a breaker alone", "watched", []watertight.Hooks{arrive, grant}, true, nil},
		{"Grant, and a breaker alone", "watched", []watertight.Hooks{grant}, nil, nil},
		{"no policy", "free", []watertight.Hooks{arrive, grant}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var opts []watertight.Option
			for _, h := range test.sets {
				opts = append(opts, watertight.WithHooks(h))
			}
			c := admit(t, guard(t, policies, opts...), to(test.host))
			ctx, derived := c.Context()
			assert.Equal(t, test.wantA != nil || test.wantG != nil, derived)
			assert.Equal(t, test.wantA, ctx.Value(ctxKey("arrive")))
			assert.Equal(t, test.wantG, ctx.Value(ctxKey("grant")))
			c.Release()
		})
	}
}

func TestDetachMayCloseAgain(t *testing.T) {
	var detached int
	g := guard(t, hooked, watertight.WithHooks(watertight.Hooks{
		Attach: func(g *watertight.Guard) func() {
			_ = g.Snapshot()
			return func() { detached++; g.Close() }
		},
	}), watertight.WithHooks(watertight.Hooks{
		Attach: func(*watertight.Guard) func() { return nil },
	}))
	g.Close()
	g.Close()
	assert.Equal(t, 1, detached)
	admit(t, g, on("/")).Release() // calls go on
	guard(t, hooked).Close()
}

// Two sets are two hooks, of which each is logged once.
func TestPanicsAreLoggedForEachSetOfHooks(t *testing.T) {
	var log bytes.Buffer
	broken := watertight.WithHooks(watertight.Hooks{
		Attach: func(*watertight.Guard) func() { panic("attach") },
	})
	set := watertight.WithHooks(watertight.Hooks{
		Attach: func(*watertight.Guard) func() { return func() { panic("detach") } },
		Grant:  func(context.Context, watertight.GrantEvent) context.Context { panic("grant") },
	})
	g := guard(t, hooked, watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), set, set, broken)
	for range 3 {
		admit(t, g, on("/")).Release()
	}
	g.Close()
	g.Close()
	for _, line := range []string{"hook=Grant set=0", "hook=Grant set=1", "hook=detach set=0", "hook=detach set=1", "hook=Attach set=2"} {
		assert.Equal(t, 1, strings.Count(log.String(), line+" "), line)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// A hook may ask the Guard anything.
func TestHooksMayCallBack(t *testing.T) {
	var g *watertight.Guard
	look := func() { _ = g.Snapshot() }
	g = guard(t, `
version: 1
policies:
  - {name: all, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}
`, watertight.WithHooks(watertight.Hooks{
		Grant:      func(ctx context.Context, _ watertight.GrantEvent) context.Context { look(); return nil },
		Release:    func(context.Context, watertight.ReleaseEvent) { look() },
		Reject:     func(context.Context, watertight.RejectEvent) { look() },
		Transition: func(context.Context, watertight.TransitionEvent) { look() },
	}))
	c := admit(t, g, to("a"))
	_, derived := c.Context()
	assert.False(t, derived, "a Grant that returns nil leaves the context alone")
	refused(t, g, to("a"), bulkhead.ErrFull)
	c.SettleFailure()
	c.Release()
	refused(t, g, to("a"), breaker.ErrOpen)
}
