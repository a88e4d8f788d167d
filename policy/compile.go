package policy

import (
	"slices"
	"strconv"
	"time"
)

// What holds where a policy says nothing.
const (
	defaultMaxCompartments = 10_000
	defaultIdle            = 10 * time.Minute
	defaultMaxQueue        = 1000 // if there is a wait; else nobody queues
	defaultFailureRate     = 50
	defaultSlowCallRate    = 80
	defaultWindowCalls     = 100
	defaultMinCalls        = 20
	defaultOpenFor         = 30 * time.Second
	defaultMultiplier      = 2
	defaultProbes          = 10
	defaultProbeTimeout    = 30 * time.Second
	defaultRetryAfter      = time.Second
)

var (
	defaultFailureStatus = StatusRange{500, 599}
	defaultStatus        = [len(reasonNames)]int{
		ReasonFull:        503,
		ReasonWaitTimeout: 408,
		ReasonOpen:        503,
		ReasonDraining:    503,
		ReasonCanceled:    503,
	}
)

// compile checks a draft and turns it into a set. Every check runs, whatever the
// others find; a value that is wrong is reported once and replaced by its default.
func compile(p *problems, d *draft) (*Set, error) {
	s := &Set{defaults: Defaults{
		MaxCompartments: p.count(&d.maxCompartments, 1, maxCount, defaultMaxCompartments),
		Idle:            p.duration(&d.idle, moreThanZero, defaultIdle),
	}}
	named := map[string]*policyDraft{}
	for i := range d.policies {
		pd := &d.policies[i]
		p.policyName(pd)
		if first := named[pd.name.v]; first != nil && pd.name.ok() {
			p.errorf(pd.name.at, "policy name %s is taken%s; every policy needs a name of its own", quote(pd.name.v), byPolicyAt(first))
		} else if pd.name.ok() {
			named[pd.name.v] = pd
		}
		r := p.rule(pd)
		r.Index = i
		s.add(r, whereOf(pd))
	}
	if len(p.errors) > 0 {
		sortByPosition(p.errors)
		return nil, p.errors
	}
	p.warnShadowed(s, "move it up")
	sortByPosition(p.warns)
	s.warnings = p.warns
	return s, nil
}

// byPolicyAt says where a policy is, if that is known.
func byPolicyAt(d *policyDraft) string {
	if d.name.at.line == 0 {
		return ""
	}
	return " by the one in line " + strconv.Itoa(d.name.at.line)
}

// add appends a rule. written says where its settings are in the file, if there is one.
func (s *Set) add(r *Rule, written map[string]at) {
	s.rules = append(s.rules, r)
	for i, side := range [...]Side{Server, Client} {
		if !r.Side.covers(side) {
			continue
		}
		if s.byName[i] == nil {
			s.byName[i] = make(map[string]*Rule)
		}
		s.byName[i][r.Name] = r
	}
	s.written = append(s.written, written)
	if r.Side.covers(Server) {
		s.server.add(r)
		limits := r.Bulkhead != nil || r.Breaker != nil
		s.routes = s.routes || limits && r.PerOn(Server) == PerRoute || r.matchesRoutes()
	}
	if r.Side.covers(Client) {
		s.client.add(r)
	}
}

func (r *Rule) matchesRoutes() bool {
	return slices.ContainsFunc(r.entries, entry.matchesRoutes)
}

func (e entry) matchesRoutes() bool {
	return e.route.path != "" || slices.ContainsFunc(e.not, entry.matchesRoutes)
}

func (p *problems) rule(d *policyDraft) *Rule {
	r := &Rule{
		Name:   d.name.v,
		Side:   d.side.v,
		Per:    d.per.v.per,
		Header: p.perHeader(&d.per),
		Mode:   d.mode.v,
		Exempt: d.exempt.v,
	}
	for i := range d.match {
		r.entries = append(r.entries, p.entry(&d.match[i], "match"))
	}
	if r.Side == Client {
		p.refuseRoutes(d)
	}
	if d.bulkhead != nil {
		r.Bulkhead = p.bulkhead(d.bulkhead)
	}
	if d.breaker != nil {
		r.Breaker = p.breaker(d.breaker)
		if r.Side == Server {
			p.warnClientOnly(d.breaker)
		}
	}
	p.reject(&d.reject, r)
	switch {
	case d.broken || d.exempt.bad:
	case !r.Exempt && r.Bulkhead == nil && r.Breaker == nil:
		p.errorf(d.place, "%sit limits nothing; give it a bulkhead, a breaker, or exempt: true", d.label)
	case r.Exempt && (r.Bulkhead != nil || r.Breaker != nil):
		p.errorf(d.exempt.at, "%s is true, but the policy has a bulkhead or a breaker; drop one or the other", d.exempt.name)
	case r.Exempt && d.reject.given.set:
		p.errorf(d.reject.given.at, "%s has no effect, since the policy is exempt and rejects nothing; drop it", d.reject.given.name)
	case r.Exempt && d.mode.ok() && d.mode.v == Observe:
		p.errorf(d.mode.at, "%s is observe, but the policy is exempt and rejects nothing; drop one or the other", d.mode.name)
	}
	return r
}

// refuseRoutes reports what a policy for clients says about routes.
func (p *problems) refuseRoutes(d *policyDraft) {
	if d.per.v.per == PerRoute {
		p.errorf(d.per.at, "%s is route, but a client has no routes; write host or policy, or side: server", d.per.name)
	}
	for i := range d.match {
		p.refuseRoute(&d.match[i])
	}
}

func (p *problems) refuseRoute(d *matchDraft) {
	if f := &d.route; f.set {
		p.errorf(f.at, "%s is set, but a client has no routes; use path, or side: server", f.name)
	}
	for i := range d.not {
		p.refuseRoute(&d.not[i])
	}
}

func (p *problems) bulkhead(d *bulkheadDraft) *BulkheadSettings {
	if !d.maxConcurrent.set {
		p.errorf(d.place, "%s has no maxConcurrent; say how many requests may be in flight: 1 to %d", d.label, maxCount)
	}
	b := &BulkheadSettings{
		MaxConcurrent: p.count(&d.maxConcurrent, 1, maxCount, 1),
		MaxWait:       p.duration(&d.maxWait, 0, 0),
	}
	queue := 0
	if b.MaxWait > 0 {
		queue = defaultMaxQueue
	}
	b.MaxQueue = p.count(&d.maxQueue, 0, maxCount, queue)
	p.warnQueue(d, b)
	p.warnLongWait(d.maxWait.at, d.maxWait.name, b.MaxWait)
	return b
}

func (p *problems) breaker(d *breakerDraft) *BreakerSettings {
	b := &BreakerSettings{
		FailureRate:  p.rate(&d.failureRate, defaultFailureRate),
		SlowCall:     p.duration(&d.slowCall, moreThanZero, 0),
		SlowCallRate: p.rate(&d.slowCallRate, defaultSlowCallRate),
		Window:       p.window(d),
		MinCalls:     p.count(&d.minCalls, 1, maxCalls, defaultMinCalls),
		OpenFor:      p.duration(&d.openFor, moreThanZero, defaultOpenFor),
		HalfOpen: HalfOpen{
			Calls:        p.count(&d.halfOpenCalls, 1, maxCalls, defaultProbes),
			ProbeTimeout: p.duration(&d.probeTimeout, 0, defaultProbeTimeout),
			MaxWait:      p.duration(&d.halfOpenMaxWait, 0, 0),
		},
		Settle: d.settle.v,
		Force:  d.force.v,
	}
	b.Backoff = p.backoff(d, b.OpenFor)
	if b.HalfOpen.ProbeTimeout == 0 {
		b.HalfOpen.ProbeTimeout = -1
	}
	if d.slowCallRate.ok() && !d.slowCall.set {
		p.warnf(d.slowCallRate.at, "%s has no effect without slowCall; say beyond which duration a call is slow", d.slowCallRate.name)
	}
	if n := b.Window.Calls; n > 0 && b.MinCalls > n {
		if !d.minCalls.set || d.minCalls.v == b.MinCalls { // else it is reported already
			p.warnMinCalls(d, b.MinCalls, n)
		}
		b.MinCalls = n
	}
	if !d.failureStatusList.set {
		b.FailureStatus = []StatusRange{defaultFailureStatus}
	}
	for i := range d.failureStatusList.v {
		if f := &d.failureStatusList.v[i]; p.statusRange(f) {
			b.FailureStatus = append(b.FailureStatus, f.v)
		}
	}
	for _, r := range b.FailureStatus {
		b.failures.add(r)
	}
	return b
}

func (p *problems) backoff(d *breakerDraft, initial time.Duration) Backoff {
	b := Backoff{
		Max: p.duration(&d.openForMax, moreThanZero, initial),
		// A factor nearer to 1 than that would take more steps to grow than anybody
		// waits for.
		Multiplier: p.number(&d.multiplier, func(v float64) bool { return v >= 1.1 && v <= 100 }, wantFactor, defaultMultiplier),
		Jitter:     p.number(&d.jitter, func(v float64) bool { return v >= 0 && v < 1 }, wantShare, 0),
		RetryAfter: p.duration(&d.heed, 0, 0),
	}
	if b.Max < initial && (!d.openFor.set || d.openFor.v == initial) { // else initial is reported already
		p.errorf(d.openForMax.at, "%s is %s; it must be at least initial, %v", d.openForMax.name, d.openForMax.written(), initial)
	}
	if d.multiplier.ok() && !d.openForMax.set {
		p.warnf(d.multiplier.at, "%s has no effect without max; say how long the time may get", d.multiplier.name)
	}
	return b
}

func (p *problems) window(d *breakerDraft) Window {
	w := Window{
		Calls: p.count(&d.windowCalls, 1, maxCalls, 0),
		Time:  p.duration(&d.windowTime, time.Millisecond, 0),
	}
	switch byCalls, byTime := d.windowCalls.set, d.windowTime.set; {
	case byCalls && byTime:
		p.errorf(d.window.at, "%s has both calls and time; keep one", d.window.name)
	case d.window.ok() && !byCalls && !byTime:
		p.errorf(d.window.at, "%s is empty; give it calls (1 to %d) or time, or leave it out for {calls: %d}", d.window.name, maxCalls, defaultWindowCalls)
	}
	if w == (Window{}) {
		w.Calls = defaultWindowCalls
	}
	return w
}

func (p *problems) statusRange(f *field[StatusRange]) bool {
	if !f.ok() {
		return false
	}
	switch r := f.v; {
	case r.From < minStatus || r.From > maxStatus || r.To < minStatus || r.To > maxStatus:
		p.errorf(f.at, "%s is %v; a status must be %d to %d", f.name, r, minStatus, maxStatus)
	case r.From > r.To:
		p.errorf(f.at, "%s is %v, which is empty; write %d-%d", f.name, r, r.To, r.From)
	default:
		return true
	}
	return false
}

func (p *problems) reject(d *rejectDraft, r *Rule) {
	r.status = defaultStatus
	for i := range d.status {
		s := &d.status[i]
		r.status[s.reason] = p.count(&s.status, 400, 599, r.status[s.reason])
	}
	r.RetryAfter = p.duration(&d.retryAfter, 0, defaultRetryAfter)
}
