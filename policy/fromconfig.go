package policy

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// New compiles policies written in code; it keeps nothing of c. The error is of
// type [Errors] and holds every problem, each with the name of its policy and its
// field.
func New(c Config) (*Set, error) {
	p := new(problems)
	return compile(p, draftOf(p, &c))
}

// given is a field that counts as written unless it is zero.
func given[T comparable](name string, v T) field[T] {
	var zero T
	return field[T]{name: name, v: v, set: v != zero}
}

func draftOf(p *problems, c *Config) *draft {
	d := &draft{
		maxCompartments: given("defaults.maxCompartments", c.Defaults.MaxCompartments),
		idle:            given("defaults.idle", c.Defaults.Idle),
	}
	for i := range c.Policies {
		d.policies = append(d.policies, policyDraftOf(p, &c.Policies[i], i))
	}
	return d
}

func policyDraftOf(p *problems, c *Policy, index int) policyDraft {
	label := policyLabel(c.Name, index)
	d := policyDraft{
		label:  label,
		name:   given(label+"name", c.Name),
		side:   given(label+"side", c.Side),
		per:    given(label+"per", perValue{c.Per, c.Header}),
		mode:   given(label+"mode", c.Mode),
		exempt: given(label+"exempt", c.Exempt),
	}
	if int(c.Side) >= len(sideNames) {
		d.side.bad = true
		p.errorf(at{}, "%s is %v; it must be Server, Client or Both", d.side.name, c.Side)
	}
	if int(c.Per) >= len(perNames) {
		d.per.bad = true
		p.errorf(at{}, "%s is %v; it must be PerPolicy, PerRoute, PerHost, PerHeader or PerDefault", d.per.name, c.Per)
	}
	if int(c.Mode) >= len(modeNames) {
		d.mode.bad = true
		p.errorf(at{}, "%s is %v; it must be Enforce or Observe", d.mode.name, c.Mode)
	}
	for i := range c.Match {
		d.match = append(d.match, matchDraftOf(p, &c.Match[i], elementName(label+"match", i)))
	}
	if c.Bulkhead != nil {
		d.bulkhead = bulkheadDraftOf(c.Bulkhead, label+"bulkhead")
	}
	if c.Breaker != nil {
		d.breaker = breakerDraftOf(p, c.Breaker, label+"breaker")
	}
	d.reject = rejectDraftOf(p, &c.Reject, label+"reject")
	return d
}

func matchDraftOf(p *problems, c *Match, label string) matchDraft {
	d := matchDraft{
		label:    label,
		path:     given(label+".path", c.Path),
		pathText: textDraftOf(c.PathText, label+".path"),
		route:    given(label+".route", c.Route),
		host:     given(label+".host", c.Host),
	}
	for i, m := range c.Method {
		d.methods = append(d.methods, field[string]{name: label + ".method[" + strconv.Itoa(i) + "]", v: m, set: true})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		v := valueDraftOf(label+".headers", name, Text{})
		v.text = textDraft{{operatorExact, field[string]{name: valueField(v.name.name, name) + ".exact", v: c.Headers[name], set: true}}}
		d.headers = append(d.headers, v)
	}
	for _, name := range slices.Sorted(maps.Keys(c.HeaderText)) {
		d.headers = append(d.headers, valueDraftOf(label+".headers", name, c.HeaderText[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Query)) {
		d.query = append(d.query, valueDraftOf(label+".query", name, c.Query[name]))
	}
	for i := range c.Not {
		not := &c.Not[i]
		name := elementName(label+".not", i)
		if len(not.Not) > 0 {
			// Not followed: it could be without end.
			p.errorf(at{}, "%s has a not of its own; give the policy one more entry instead", name)
			d.not = append(d.not, matchDraft{label: name, broken: true})
			continue
		}
		d.not = append(d.not, matchDraftOf(p, not, name))
	}
	return d
}

func valueDraftOf(list, name string, c Text) valueDraft {
	return valueDraft{
		name: field[string]{name: list, v: name, set: true},
		text: textDraftOf(c, valueField(list, name)),
	}
}

func textDraftOf(c Text, label string) (d textDraft) {
	for kind, text := range [...]string{
		operatorExact:    c.Exact,
		operatorPrefix:   c.Prefix,
		operatorSuffix:   c.Suffix,
		operatorContains: c.Contains,
		operatorRegexp:   c.Regexp,
	} {
		if text != "" {
			d = append(d, operatorDraft{operatorKind(kind), given(label+"."+operatorNames[kind], text)})
		}
	}
	return d
}

func bulkheadDraftOf(c *Bulkhead, label string) *bulkheadDraft {
	d := &bulkheadDraft{
		label: label,
		// Zero is no default here, but a value out of range.
		maxConcurrent: field[int]{name: label + ".maxConcurrent", v: c.MaxConcurrent, set: true},
		maxQueue:      given(label+".maxQueue", c.MaxQueue),
		maxWait:       given(label+".maxWait", c.MaxWait),
	}
	d.maxQueue.v = max(0, c.MaxQueue)
	return d
}

func breakerDraftOf(p *problems, c *Breaker, label string) *breakerDraft {
	d := &breakerDraft{
		failureRate:     given(label+".failureRate", c.FailureRate),
		slowCall:        given(label+".slowCall", c.SlowCall),
		slowCallRate:    given(label+".slowCallRate", c.SlowCallRate),
		window:          field[struct{}]{name: label + ".window", set: c.Window != Window{}},
		windowCalls:     given(label+".window.calls", c.Window.Calls),
		windowTime:      given(label+".window.time", c.Window.Time),
		minCalls:        given(label+".minCalls", c.MinCalls),
		openFor:         given(label+".openFor", c.OpenFor),
		openForMax:      given(label+".openFor.max", c.Backoff.Max),
		multiplier:      given(label+".openFor.multiplier", c.Backoff.Multiplier),
		jitter:          given(label+".openFor.jitter", c.Backoff.Jitter),
		heed:            given(label+".openFor.retryAfter", c.Backoff.RetryAfter),
		halfOpenCalls:   given(label+".halfOpen.calls", c.HalfOpen.Calls),
		probeTimeout:    given(label+".halfOpen.probeTimeout", c.HalfOpen.ProbeTimeout),
		halfOpenMaxWait: given(label+".halfOpen.maxWait", c.HalfOpen.MaxWait),
		settle:          given(label+".settle", c.Settle),
		force:           given(label+".force", c.Force),
	}
	if c.Backoff != (Backoff{}) {
		d.openFor.name += ".initial" // as in a file
	}
	if int(c.Settle) >= len(settleNames) {
		d.settle.bad = true
		p.errorf(at{}, "%s is %v; it must be SettleHeaders or SettleBody", d.settle.name, c.Settle)
	}
	if int(c.Force) >= len(forceNames) {
		d.force.bad = true
		p.errorf(at{}, "%s is %v; it must be ForceNone, ForceOpen or ForceClosed", d.force.name, c.Force)
	}
	d.probeTimeout.v = max(0, c.HalfOpen.ProbeTimeout)
	d.failureStatusList.set = c.FailureStatus != nil
	for i, r := range c.FailureStatus {
		if r.To == 0 {
			r.To = r.From
		}
		d.failureStatusList.v = append(d.failureStatusList.v,
			field[StatusRange]{name: label + ".failureStatus[" + strconv.Itoa(i) + "]", v: r, set: true})
	}
	return d
}

func rejectDraftOf(p *problems, c *Reject, label string) rejectDraft {
	d := rejectDraft{
		given:      field[struct{}]{name: label, set: len(c.Status) > 0 || c.RetryAfter != nil},
		retryAfter: field[time.Duration]{name: label + ".retryAfter", set: c.RetryAfter != nil},
	}
	if c.RetryAfter != nil {
		d.retryAfter.v = *c.RetryAfter
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Status)) {
		name := label + ".status." + reason.String()
		if int(reason) >= len(reasonNames) {
			p.errorf(at{}, "%s: there is no such reason; use ReasonFull, ReasonWaitTimeout, ReasonOpen, ReasonDraining or ReasonCanceled", name)
			continue
		}
		d.status = append(d.status, statusDraft{reason, field[int]{name: name, v: c.Status[reason], set: true}})
	}
	return d
}

// policyLabel is how messages call a policy; what is wrong with it follows.
func policyLabel(name string, index int) string {
	if name == "" {
		return "policies[" + strconv.Itoa(index) + "]: "
	}
	return "policy " + quote(name) + ": "
}

// valueField is how messages call the condition on a header or on a parameter,
// whatever its name.
func valueField(list, name string) string {
	if !isToken(name) || len(name) > maxShown {
		name = quote(name)
	}
	return list + "." + name
}
