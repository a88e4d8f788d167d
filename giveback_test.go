package watertight_test

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"
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

// One permit, one probe, room for one key: whatever is not given back is missed
// at once.
const single = `
version: 1
defaults: {maxCompartments: 1}
policies:
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 2s}
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}
`

// A flawedContext panics when it is asked for its error for the second time.
type flawedContext struct {
	context.Context
	asked int
}

func (c *flawedContext) Err() error {
	if c.asked++; c.asked > 1 {
		panic("flawed context")
	}
	return nil
}

// E42, E43, E54, invariant 1: wherever a half-open probe's way ends, its permit,
// its probe, its place in the table and at the gate come back.
func TestAProbeGivesEverythingBackWhereverItsWayEnds(t *testing.T) {
	exit := func(h *watertight.Hooks) {
		h.Grant = func(context.Context, watertight.GrantEvent) context.Context { runtime.Goexit(); return nil }
	}
	wantError := func(want error) func(*testing.T, *watertight.Call, error) {
		return func(t *testing.T, _ *watertight.Call, err error) { assert.ErrorIs(t, err, want) }
	}
	admitted := func(end func(*watertight.Call)) func(*testing.T, *watertight.Call, error) {
		return func(t *testing.T, c *watertight.Call, err error) {
			if assert.NoError(t, err) {
				end(c)
			}
		}
	}
	unreachable := func(t *testing.T, _ *watertight.Call, err error) { t.Errorf("Admit returned %v", err) }
	plain := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	within := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}

	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Millisecond, cancel)
		return ctx, cancel
	}

	for _, test := range []struct {
		name  string
		held  time.Duration // the permit, by the call that tripped the breaker
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		hooks func(*watertight.Hooks)
		end   func(*testing.T, *watertight.Call, error)
	}{
		{"waits in vain", time.Minute, plain, nil, wantError(bulkhead.ErrWaitTimeout)},
		{"leaves the queue", time.Minute, within(time.Second), nil, wantError(context.DeadlineExceeded)},
		{"leaves as the permit comes", time.Second, within(time.Second), nil, func(t *testing.T, c *watertight.Call, err error) {
			if err == nil {
				c.Release()
			}
		}},
		{"is released without an outcome", 0, plain, nil, admitted((*watertight.Call).Release)},
		{"is released after a wait", time.Second, plain, nil, admitted((*watertight.Call).Release)},
		{"leaks", 0, plain, nil, admitted((*watertight.Call).Leak)},
		{"is cancelled by its caller", 0, cancelled, nil, admitted(func(c *watertight.Call) {
			ctx, _ := c.Context()
			<-ctx.Done()
			c.SettleFailure()
			c.Release()
		})},
		{"its context panics", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return &flawedContext{Context: ctx}, func() {}
		}, nil, unreachable},
		{"Arrive ends the goroutine", 0, plain, func(h *watertight.Hooks) {
			h.Arrive = func(context.Context, *policy.Request) context.Context { runtime.Goexit(); return nil }
		}, unreachable},
		{"Wait ends the goroutine of a grant", time.Second, plain, func(h *watertight.Hooks) {
			h.Wait = func(context.Context, watertight.WaitEvent) { runtime.Goexit() }
		}, unreachable},
		{"Wait ends the goroutine of a time-out", time.Minute, plain, func(h *watertight.Hooks) {
			h.Wait = func(context.Context, watertight.WaitEvent) { runtime.Goexit() }
		}, unreachable},
		{"Grant ends the goroutine", 0, plain, exit, unreachable},
		{"Grant ends the goroutine after a wait", time.Second, plain, exit, unreachable},
		{"Reject ends the goroutine", time.Minute, plain, func(h *watertight.Hooks) {
			h.Reject = func(context.Context, watertight.RejectEvent) { runtime.Goexit() }
		}, unreachable},
		{"Release ends the goroutine", 0, plain, func(h *watertight.Hooks) {
			h.Release = func(context.Context, watertight.ReleaseEvent) { runtime.Goexit() }
		}, admitted((*watertight.Call).Release)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hooks atomic.Pointer[watertight.Hooks] // only while the probe is on its way
				g := guard(t, single, watertight.WithHooks(hooksIn(&hooks)), watertight.WithLogger(slog.New(slog.DiscardHandler)))
				old := admit(t, g, to("a"))
				old.SettleFailure()
				time.Sleep(time.Second)
				if test.held == 0 {
					old.Release()
				} else {
					time.AfterFunc(test.held, old.Release)
				}

				if test.hooks != nil {
					h := new(watertight.Hooks)
					test.hooks(h)
					hooks.Store(h)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }() // of the context
					ctx, cancel := test.ctx(t.Context())
					defer cancel()
					c, err := g.Admit(ctx, to("a"))
					test.end(t, &c, err)
				}()
				<-done
				hooks.Store(nil)
				time.Sleep(2 * time.Minute)

				c := compartment(t, g, "hosts", "http://a:80")
				assert.Zero(t, c.Bulkhead.InFlight)
				assert.Zero(t, c.Bulkhead.Queued)
				assert.NotEqual(t, "closed", c.Breaker.State)
				probe := admit(t, g, to("a"))
				probe.SettleStatus(200)
				probe.Release()
				assert.Equal(t, "closed", compartment(t, g, "hosts", "http://a:80").Breaker.State)
				admit(t, g, to("b")).Release()
				assert.Equal(t, []string{"b"}, keys(g), "a can go: nothing holds it")
				dead, cancel := context.WithCancel(t.Context())
				cancel()
				assert.NoError(t, g.Drain(dead), "nobody is inside")
			})
		})
	}
}

// hooksIn calls the hooks that are in p at the time.
func hooksIn(p *atomic.Pointer[watertight.Hooks]) watertight.Hooks {
	return watertight.Hooks{
		Arrive: func(ctx context.Context, r *policy.Request) context.Context {
			if h := p.Load(); h != nil && h.Arrive != nil {
				return h.Arrive(ctx, r)
			}
			return nil
		},
		Wait: func(ctx context.Context, e watertight.WaitEvent) {
			if h := p.Load(); h != nil && h.Wait != nil {
				h.Wait(ctx, e)
			}
		},
		Grant: func(ctx context.Context, e watertight.GrantEvent) context.Context {
			if h := p.Load(); h != nil && h.Grant != nil {
				return h.Grant(ctx, e)
			}
			return nil
		},
		Release: func(ctx context.Context, e watertight.ReleaseEvent) {
			if h := p.Load(); h != nil && h.Release != nil {
				h.Release(ctx, e)
			}
		},
		Reject: func(ctx context.Context, e watertight.RejectEvent) {
			if h := p.Load(); h != nil && h.Reject != nil {
				h.Reject(ctx, e)
			}
		},
	}
}

// A refusal's hooks may take their time: what it had taken is free already.
func TestARefusalHoldsNothingWhileItsHooksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *watertight.Guard
		var told []error
		inside := false
		g = guard(t, single, watertight.WithHooks(watertight.Hooks{
			Reject: func(_ context.Context, e watertight.RejectEvent) {
				told = append(told, e.Err)
				if inside || e.Reason == policy.ReasonFull {
					return
				}
				inside = true
				defer func() { inside = false }()
				switch e.Reason {
				case policy.ReasonWaitTimeout: // the probe is there for the next
					dead, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
					defer cancel()
					_, err := g.Admit(dead, to("a"))
					assert.ErrorIs(t, err, context.DeadlineExceeded, "it queued, as only a probe may")
				case policy.ReasonOpen: // and so is the permit
					assert.Zero(t, compartment(t, g, "hosts", "http://a:80").Bulkhead.InFlight)
				}
			},
		}))
		old := admit(t, g, to("a"))
		waiter := make(chan error)
		go func() {
			_, err := g.Admit(t.Context(), to("a"))
			waiter <- err
		}()
		synctest.Wait()
		old.SettleFailure()
		old.Release()
		require.ErrorIs(t, <-waiter, breaker.ErrOpen, "asked again, with the permit in hand")

		time.Sleep(time.Second)
		probe := admit(t, g, to("a"))
		probe.SettleStatus(200)
		probe.Release()
		old = admit(t, g, to("a"))
		old.SettleFailure()
		time.Sleep(time.Second)
		_, err := g.Admit(t.Context(), to("a"))
		require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		old.Release()
		require.Len(t, told, 2)
	})
}

// A probe that queued for longer than probeTimeout was given up meanwhile. It is
// asked again, and does not pass as a call that the breaker knows nothing of.
func TestAProbeGivenUpInTheQueueIsAskedAgain(t *testing.T) {
	for _, test := range []struct {
		name string
		held time.Duration
		want error
	}{
		{"open by then", 1500 * time.Millisecond, breaker.ErrOpen},
		{"half-open again by then", 2500 * time.Millisecond, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - name: all
    per: policy
    bulkhead: {maxConcurrent: 1, maxWait: 1h}
    breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1, probeTimeout: 1s}}
`)
				old := admit(t, g, to("a"))
				old.SettleFailure()
				time.Sleep(time.Second)
				time.AfterFunc(test.held, old.Release)
				c, err := g.Admit(t.Context(), to("a"))
				require.ErrorIs(t, err, test.want)
				if err == nil {
					refused(t, g, to("a"), breaker.ErrOpen) // it is the one probe
					c.SettleStatus(200)
					c.Release()
					assert.Equal(t, "closed", compartment(t, g, "all", "").Breaker.State)
				}
				assert.Zero(t, compartment(t, g, "all", "").Bulkhead.InFlight)
			})
		})
	}
}

// A hook's last words belong to the call: Drain waits for them, so that who
// drains may then shut the telemetry down.
func TestDrainWaitsForTheHooksOfTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		g := guard(t, hooked, watertight.WithHooks(watertight.Hooks{
			Release: func(context.Context, watertight.ReleaseEvent) { <-slow },
			Reject: func(_ context.Context, e watertight.RejectEvent) {
				if e.Reason == policy.ReasonWaitTimeout {
					<-slow
				}
			},
		}))
		c := admit(t, g, on("/"))
		go func() {
			_, err := g.Admit(t.Context(), on("/"))
			assert.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		go c.Release()
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- g.Drain(t.Context()) }()
		for range 2 { // first one hook returns, then the other
			synctest.Wait()
			require.Empty(t, drained)
			slow <- struct{}{}
		}
		require.NoError(t, <-drained)
	})
}

// Invariant 6: nor does the logger that hears of a panicking hook.
func TestAPanickingLoggerChangesNothing(t *testing.T) {
	g := guard(t, single,
		watertight.WithLogger(slog.New(panickingHandler{slog.NewTextHandler(io.Discard, nil)})),
		watertight.WithHooks(watertight.Hooks{
			Grant: func(context.Context, watertight.GrantEvent) context.Context { panic("grant") },
		}))
	c := admit(t, g, to("a"))
	c.Leak()
	admit(t, g, to("a")).Release()
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Handle(context.Context, slog.Record) error { panic("logger") }

// Whoever was refused, or left, is not inside: its compartment may be dropped, and
// Drain does not wait for it.
func TestARefusedCallHoldsNothing(t *testing.T) {
	g := guard(t, `
version: 1
defaults: {maxCompartments: 1}
policies:
  - {name: hosts, side: client, bulkhead: {maxConcurrent: 1}}
`)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	held := admit(t, g, to("a"))
	refused(t, g, to("a"), bulkhead.ErrFull)
	_, err := g.Admit(gone, to("a"))
	require.ErrorIs(t, err, context.Canceled)
	held.Release()

	admit(t, g, to("b")).Release()
	assert.Equal(t, []string{"b"}, keys(g), "b took the place of a")
	require.NoError(t, g.Drain(gone), "nobody is inside")
}
