package watertight

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// A Snapshot is what a [Guard] looked like at one moment. Its JSON form is
// stable: fields are added, never renamed.
type Snapshot struct {
	Version      int                   `json:"version"` // of the JSON form: 1
	Policies     PolicyStatus          `json:"policies"`
	Compartments []CompartmentSnapshot `json:"compartments"`
	Transitions  []TransitionSnapshot  `json:"transitions"` // the latest of all breakers, the oldest first

	// What the compartments had counted that were dropped when they were at rest: one
	// entry, without a key, for each policy and side of which there were some. With it,
	// the sum of a policy's counts does not fall while the policy divides its calls by
	// the same.
	Dropped []CompartmentSnapshot `json:"dropped,omitempty"`

	Draining bool `json:"draining"` // [Guard.Drain] has been called
	Closed   bool `json:"closed"`   // [Guard.Close] has been called
}

// A CompartmentSnapshot is one compartment of a [Snapshot]. Each call is
// counted once, on the compartment that decided: the one that refused, else
// the bulkhead's, else the breaker's. Counts start anew when a compartment at
// rest was dropped and its key comes back.
type CompartmentSnapshot struct {
	Policy   string            `json:"policy"` // "(unmatched)": calls that no route or no policy matches; "(exempt)": those of WithoutLimits
	Side     string            `json:"side"`   // "server" or "client"
	Per      string            `json:"per"`    // what the policy has a compartment for: "policy", "route", "host" or "header"
	Key      string            `json:"key"`    // "" with per: policy; "(overflow)": keys that found the table full
	Granted  uint64            `json:"granted"`
	Rejected map[string]uint64 `json:"rejected"`           // by reason
	Mode     string            `json:"mode,omitempty"`     // "observe": the policy turns nothing away
	Observed map[string]uint64 `json:"observed,omitempty"` // by reason: granted, but would have been rejected otherwise
	Left     uint64            `json:"left"`               // callers who gave up before they were admitted
	Leaked   uint64            `json:"leaked"`             // response bodies that the garbage collector had to release
	Trips    uint64            `json:"trips,omitempty"`    // times that the breaker opened
	InFlight int64             `json:"inFlight"`           // calls inside, of a pool the tasks that run; those that began before a reload brought the bulkhead have no permit of it

	Gone     bool              `json:"gone,omitempty"`    // its policy is no more, or divides its calls otherwise: it takes no new ones
	Evicted  uint64            `json:"evicted,omitempty"` // in Dropped: how many compartments this one adds up
	Waits    []WaitSnapshot    `json:"waits,omitempty"`   // by length, the shortest first
	Bulkhead *BulkheadSnapshot `json:"bulkhead,omitempty"`
	Breaker  *BreakerSnapshot  `json:"breaker,omitempty"`
	Pool     *PoolSnapshot     `json:"pool,omitempty"`
}

// A BulkheadSnapshot is the bulkhead of a [CompartmentSnapshot].
type BulkheadSnapshot struct {
	Limit    int `json:"limit"`
	InFlight int `json:"inFlight"`
	Queued   int `json:"queued"`
	Peak     int `json:"peak"` // the most permits that were ever out at once

	MaxQueue  int   `json:"maxQueue"`
	MaxWaitMs int64 `json:"maxWaitMs"` // rounded up

	// Since when calls have not found a permit free, as far as those tell that have
	// waited or were refused; nil if there was none for ten seconds.
	PressedSince *time.Time `json:"pressedSince,omitempty"`
}

// A BreakerSnapshot is the breaker of a [CompartmentSnapshot].
type BreakerSnapshot struct {
	State           string  `json:"state"`           // "closed", "open" or "half_open"; with force in the policy, "forced_open" or "disabled"
	FailureRate     float64 `json:"failureRate"`     // percent; -1 while the window holds fewer than minCalls
	SlowCallRate    float64 `json:"slowCallRate"`    // likewise
	Calls           int     `json:"calls"`           // in the window
	OpenRemainingMs int64   `json:"openRemainingMs"` // until probes are let through, rounded up; 0 unless open
	Overdue         int     `json:"overdue"`         // calls in flight for longer than slowCall without an answer
	ProbesLeft      int     `json:"probesLeft"`      // how many more probes would be let in; 0 unless half-open
	Attempt         int     `json:"attempt"`         // openings since it was last closed

	// What it is judged by.
	MaxFailureRate  float64 `json:"maxFailureRate"`  // percent, at which it trips
	MaxSlowCallRate float64 `json:"maxSlowCallRate"` // likewise; 0 without slowCall
	SlowCallMs      int64   `json:"slowCallMs"`      // rounded up; 0: no call is slow
	MinCalls        int     `json:"minCalls"`
	Probes          int     `json:"probes"` // how many calls decide in half-open

	// The calls of the window that failed, and those that were slow: a call may be both.
	Failed int `json:"failed"`
	Slow   int `json:"slow"`

	// The latest change of state: since when it is in this one, and why. nil: there was
	// none yet, or it was in another compartment for the same key.
	Last *TransitionSnapshot `json:"last,omitempty"`
}

// Snapshot returns what every compartment looks like now, in the order of the
// policies, then server before client, then by key; after them the pools, in the
// order in which they were made, and last what no policy matches. Compartments
// that no call has met are left out, but for pools. The figures of
// one bulkhead, and those of one breaker, are of the same instant; counts are
// read one after the other while calls go on. A table of many keys makes the
// calls that look up theirs wait for as long as it takes to list them.
func (g *Guard) Snapshot() Snapshot {
	gen, status, gone := g.look()
	out := Snapshot{
		Version:      1,
		Policies:     status,
		Compartments: []CompartmentSnapshot{},
		Draining:     !g.Ready(),
		Closed:       g.closed.Load(),
	}
	groups, dropped := g.compartments(gen, gone)
	out.Dropped = dropped
	for _, group := range groups {
		for _, c := range group.all {
			if c.table != nil || c.met.Load() {
				s := c.snapshot()
				s.Gone = group.gone
				out.Compartments = append(out.Compartments, s)
			}
		}
	}
	// Last, since a look at a breaker may have made a change visible that was due.
	out.Transitions = g.history.latest()
	return out
}

// milliseconds rounds up, so that 0 means none.
func milliseconds(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

// A group is compartments that stand together in a snapshot.
type group struct {
	all  []*compartment
	gone bool // their policies are
}

// compartments returns all compartments: one group for each policy and side, one
// for those of policies that are gone, one for all pools; and what those had counted
// that were dropped.
func (g *Guard) compartments(gen *generation, gone []*compartment) (groups []group, dropped []CompartmentSnapshot) {
	for i, r := range gen.set.Rules() {
		for s := range gen.places {
			var cs []*compartment
			if t := gen.places[s][i].table; t == nil {
				cs = gen.places[s][i].all()
			} else {
				var d []CompartmentSnapshot
				cs, d = t.look()
				dropped = append(dropped, d...)
				if s == sideIndex(policy.Client) {
					cs = append(cs, gen.named[r.Name])
				}
			}
			if len(cs) > 0 {
				slices.SortFunc(cs, func(a, b *compartment) int { return cmp.Compare(a.Key, b.Key) })
				groups = append(groups, group{all: cs})
			}
		}
	}
	groups = append(groups, group{all: gone, gone: true}, group{all: g.pools.list()})
	for s := range g.sides {
		groups = append(groups, group{all: []*compartment{g.sides[s].unmatched, g.sides[s].exempt}})
	}
	return groups, dropped
}

func (c *compartment) snapshot() CompartmentSnapshot {
	s := CompartmentSnapshot{
		Policy:   c.Policy,
		Side:     c.Side.String(),
		Per:      c.Per.String(),
		Key:      c.Key,
		Granted:  c.granted.Load(),
		Rejected: make(map[string]uint64, len(reasons)),
		Left:     c.left.Load(),
		Leaked:   c.leaked.Load(),
		Trips:    c.trips.Load(),
		Evicted:  c.evicted.Load(),
		Waits:    c.waits.Load().snapshot(),
		InFlight: c.inFlight.Load(),
	}
	for i, r := range reasons {
		s.Rejected[r.String()] = c.rejected[i].Load()
	}
	var l limits
	if at := c.limits.Load(); at != nil {
		l = *at
	}
	s.ofObserver(c, &l)
	if l.bulkhead != nil {
		s.ofBulkhead(c, &l)
	}
	if c.pool != nil {
		s.ofPool(c)
	}
	if l.rule != nil && l.rule.Breaker != nil {
		b := l.breaker.Snapshot()
		s.Breaker = &BreakerSnapshot{
			State:        b.State.String(),
			FailureRate:  b.FailureRate,
			SlowCallRate: b.SlowCallRate,
			Calls:        b.Calls,
			Overdue:      b.Overdue,
			ProbesLeft:   b.ProbesLeft,
			Attempt:      b.Attempt,
			Failed:       b.Failed,
			Slow:         b.Slow,
			Last:         l.last.Load(),

			OpenRemainingMs: milliseconds(b.OpenRemaining),
			MaxFailureRate:  l.breakerRule.FailureRate,
			SlowCallMs:      milliseconds(l.breakerRule.SlowCall),
			MinCalls:        l.breakerRule.MinCalls,
			Probes:          l.breakerRule.HalfOpen.Calls,
		}
		if l.breakerRule.SlowCall > 0 {
			s.Breaker.MaxSlowCallRate = l.breakerRule.SlowCallRate
		}
	}
	return s
}

// ofBulkhead fills in the bulkhead, and who is inside by its permits: also of one that
// the policy has lost.
func (s *CompartmentSnapshot) ofBulkhead(c *compartment, l *limits) {
	b := l.bulkhead.Snapshot()
	s.InFlight += int64(b.InFlight)
	if l.rule.Bulkhead == nil {
		return
	}
	s.Bulkhead = &BulkheadSnapshot{
		Limit:     l.shownLimit(b.Limit),
		InFlight:  b.InFlight,
		Queued:    b.Queued,
		Peak:      b.Peak,
		MaxQueue:  l.bulkheadRule.MaxQueue,
		MaxWaitMs: milliseconds(l.bulkheadRule.MaxWait),

		PressedSince: c.pressure.began(time.Now()),
	}
}

// ofObserver fills in what would have been refused, now and while the policy was
// last observing.
func (s *CompartmentSnapshot) ofObserver(c *compartment, l *limits) {
	if l.dryRun != nil {
		l.dryRun.look()
	}
	observes := l.rule != nil && l.observes()
	if observes {
		s.Mode = policy.Observe.String()
	}
	for i, r := range reasons {
		n := c.observed[i].Load()
		if r == policy.ReasonDraining || n == 0 && !observes {
			continue // nobody observes draining
		}
		if s.Observed == nil {
			s.Observed = make(map[string]uint64, len(reasons))
		}
		s.Observed[r.String()] = n
	}
}
