package watertight

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/watertight-go/watertight/policy"
)

// An override is what a context says about the limits of the calls under it, for
// one side. The zero override says nothing.
type override struct {
	unlimited bool
	policy    string // "": those that match
}

// overrides are the overrides of a context, by sideIndex.
type overrides [2]override

type overridesKey struct{}

// overridden says whether any context carries overrides: it is set before the
// first is made. Whoever has such a context got it from whoever made it, and so
// sees this set, too. Until then no call pays for a look at its context.
var overridden atomic.Bool

// WithoutLimits returns a context under which calls are not limited, as if a
// policy with exempt: true stood first and matched them. They are counted under
// the policy "(exempt)", pass breakers that are open, are no outcome for any, and
// also pass while draining.
//
// It holds for the given side only, or for both with [policy.Both]: the context
// of a server's request usually flows into the client calls that its handler
// makes, and to let a request in is no reason to let these out. For the server
// side, a middleware outside of the Guard's sets it; for the client side, it is
// the context of the request that is sent, or that of [Guard.Do]. It holds for
// every Guard. A [Pool] has its workers and no more, and does not ask.
//
// Of WithoutLimits and [WithPolicy] the innermost holds. Nothing that arrives
// over the network can set it; a program that decides by a header whether to call
// it leaves its limits to whoever can send that header.
func WithoutLimits(ctx context.Context, side policy.Side) context.Context {
	return withOverride(ctx, side, override{unlimited: true})
}

// WithPolicy returns a context under which calls are limited as if the policy with
// that name stood first and matched them: its bulkhead and its breaker hold
// instead of those of the policies that match, and of what it does not have, that
// of the first policy that matches. If it is exempt, nothing limits them. They
// are in the compartments that its per asks for, together with the calls that it
// matches by itself. What has no route on the server (404) passes unlimited as ever.
//
// It holds for the given side only, and of every Guard, as [WithoutLimits] does,
// with the same care about what decides it. A Guard that has no policy of that
// name for that side goes by those that match, and logs that once. The empty
// name takes back what the context said before. Of calls by [Guard.Do], which
// name their policy, it changes nothing.
func WithPolicy(ctx context.Context, side policy.Side, name string) context.Context {
	return withOverride(ctx, side, override{policy: name})
}

func withOverride(ctx context.Context, side policy.Side, o override) context.Context {
	os, _ := ctx.Value(overridesKey{}).(overrides)
	switch side {
	case policy.Both:
		os = overrides{o, o}
	case policy.Server, policy.Client:
		os[sideIndex(side)] = o
	default:
		panic("watertight: an override for no side: " + side.String())
	}
	overridden.Store(true)
	return context.WithValue(ctx, overridesKey{}, os)
}

// overrideOf returns what ctx says about calls on that side.
func overrideOf(ctx context.Context, side policy.Side) override {
	if !overridden.Load() {
		return override{}
	}
	os, _ := ctx.Value(overridesKey{}).(overrides)
	return os[sideIndex(side)]
}

// decide finds the policies for a call that is not unlimited.
func (g *Guard) decide(ctx context.Context, set *policy.Set, req *policy.Request, o override) policy.Decision {
	if o.policy != "" {
		if d, ok := set.MatchNamed(o.policy, req); ok {
			return d
		}
		if !g.misnamed.Swap(true) {
			g.logs.report(ctx, slog.LevelWarn, misnamedMessage, slog.String("policy", o.policy), slog.String("side", req.Side.String()))
		}
	}
	return set.Match(req)
}
