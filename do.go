package watertight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// Do calls fn if the policy with that name lets it, which is how a call that is
// not HTTP is guarded: to a database, a cache, a queue. It returns
//
//   - what fn returned, untouched;
//   - a *[RejectedError]: the policy refused, and fn was not called;
//   - ctx.Err() itself: the caller left before it was admitted, and fn was not
//     called. A context that is done loses even if a permit is free;
//   - an error that names the policies there are, if none with that name works
//     on the client side.
//
// The policy is taken by its name: its match is not asked, nor its per, for all
// its calls share one compartment, on the client side and with an empty key. To
// be for Do alone, a policy matches what no HTTP call is: see docs/policies.md.
// With per: policy, HTTP calls that the policy matches are in the same
// compartment; an exempt policy counts and limits nothing, nor does one under
// [WithoutLimits].
//
// fn runs on this goroutine, under a context that hooks may have added to, and
// holds its permit until it returns, panics or ends the goroutine; a panic goes
// on. For the breaker, nil is a success, an error or a panic a failure, and the
// caller's own doing is told apart as in [Call.SettleFailure]. An error that was
// marked by [Ignore] is no outcome, nor is one that wraps a *RejectedError: what
// refused there has counted it. An error that is an answer, such as that there is
// no such row, should be neither: let fn return nil and keep it in a variable, or
// the breaker, when it probes, never hears that the database is well.
//
// A Do within fn is a call of its own: with the same name it needs a second
// permit, and while draining it may be refused. Do panics if fn is nil.
func (g *Guard) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	if fn == nil {
		panic("watertight: Do of a nil function")
	}
	gen := g.current.Load()
	c := gen.named[name]
	if c == nil {
		return gen.unknown(name)
	}
	limits := c.limits.Load()
	if limits.rule.Exempt {
		call := g.passExempt(ctx, c, nil)
		defer call.Release()
		return call.run(fn)
	}
	if overrideOf(ctx, policy.Client).unlimited {
		call := g.passExempt(ctx, g.sides[sideIndex(policy.Client)].exempt, nil)
		defer call.Release()
		return call.run(fn)
	}
	call := Call{g: g, side: &g.sides[sideIndex(policy.Client)], ctx: ctx, hookCtx: ctx, runCtx: ctx}
	if limits.bulkhead != nil {
		call.bulkhead = seat{c, limits}
	}
	if limits.breaker != nil {
		call.breaker = seat{c, limits}
	}
	c.meet()
	// Before admit, for a hook that ends the goroutine and a context that
	// panics: what the call does not hold is not given back.
	defer call.Release()
	if err := call.admit(&policy.Request{Side: policy.Client}, nil); err != nil {
		return err
	}
	return call.run(fn)
}

// run calls fn and files what came of it.
func (c *Call) run(fn func(context.Context) error) error {
	returned := false
	defer func() {
		if !returned {
			c.SettleFailure()
		}
	}()
	err := fn(c.runCtx)
	if err == nil {
		returned = true
		if c.Watched() {
			c.settle(breaker.Success, false)
		}
		return nil
	}
	// The error may belong to anybody, and panic when it is looked into.
	neutral := isNeutral(err)
	returned = true
	if !neutral {
		c.SettleFailure()
	} // else Release finds it unsettled, and cancels
	if i, ok := err.(*ignoredError); ok {
		return i.err
	}
	return err
}

// isNeutral reports whether an error says nothing about what was called.
func isNeutral(err error) bool {
	if _, ok := errors.AsType[*ignoredError](err); ok {
		return true
	}
	_, ok := errors.AsType[*RejectedError](err)
	return ok
}

// Ignore marks an error for [Guard.Do]: fn failed, but that says nothing about
// what it calls, such as when its arguments were wrong. Do returns err itself. If
// fn wraps the marked error, it counts as marked, and Do returns it as it is.
// Ignore(nil) is nil, which is a success.
func Ignore(err error) error {
	if err == nil {
		return nil
	}
	return &ignoredError{err}
}

type ignoredError struct{ err error }

func (e *ignoredError) Error() string { return e.err.Error() }
func (e *ignoredError) Unwrap() error { return e.err }

// unknown returns the error for a name that no policy has which Do could use.
func (g *generation) unknown(name string) error {
	var b strings.Builder
	for _, r := range g.set.Rules() {
		if g.named[r.Name] == nil {
			if r.Name == name {
				return fmt.Errorf("watertight: policy %q is for the server side, and Do is a client; it needs side: client or both", name)
			}
			continue
		}
		if r.Side == policy.Server {
			continue // it has the name of one on the client side
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", r.Name)
	}
	if b.Len() == 0 {
		return fmt.Errorf("watertight: there is no policy %q; none is for the client side", name)
	}
	return fmt.Errorf("watertight: there is no policy %q; those for the client side are %s", name, b.String())
}
