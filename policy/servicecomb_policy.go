package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A combPolicy is a policy of one of the four kinds.
type combPolicy struct {
	section
	written  map[string]at // by our names of the settings
	order    int
	orderAt  at
	group    *combGroup
	bulkhead *BulkheadSettings
	breaker  *BreakerSettings
}

// What holds in ServiceComb where a policy says nothing.
const (
	combMaxConcurrent = 1000
	combFailureRate   = 50
	combSlowCallRate  = 100
	combSlowCall      = time.Minute
	combOpenFor       = time.Minute
	combMinCalls      = 100
	combWindow        = 100 // seconds, or calls
	combProbes        = 10
)

var combFailureStatus = []StatusRange{{From: 502, To: 503}}

// What policies may have.
var (
	commonKeys       = []string{"name", "services", "order"}
	combBulkheadKeys = slices.Concat([]string{"maxConcurrentCalls", "maxWaitDuration"}, commonKeys)
	combBreakerKeys  = slices.Concat([]string{"failureRateThreshold", "slowCallRateThreshold", "slowCallDurationThreshold", "minimumNumberOfCalls", "slidingWindowType", "slidingWindowSize", "waitDurationInOpenState", "permittedNumberOfCallsInHalfOpenState", "recordFailureStatus", "forceOpen", "forceClosed"}, commonKeys)
	combPolicyIdle   = []string{"alias", "description"}
)

// policiesOf reads the policies of a kind that are for this service and have a group,
// those that are asked first in front.
func (c *comb) policiesOf(kind string) []*combPolicy {
	var all []*combPolicy
	for _, s := range c.sections[kind] {
		if p := c.combPolicy(&s); p != nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *combPolicy) int { return a.order - b.order })
	c.refuseTies(all)
	return all
}

// combPolicy reads a policy. It returns nil if it is not used, with the reason reported
// if it should be.
func (c *comb) combPolicy(s *section) *combPolicy {
	if c.groups[s.name] == nil && isHystrix(s) {
		c.findf(s.key, "%sit is a setting of ServiceComb before governance, and is not read here; leave it out, or write a policy with a matchGroup", s.label())
		return nil
	}
	n := c.content(s)
	if n == nil {
		return nil
	}
	known := combBulkheadKeys
	breaker := s.kind == kindCircuitBreaker || s.kind == kindInstanceIsolation
	if breaker {
		known = combBreakerKeys
	}
	if n.Kind == yaml.ScalarNode {
		c.findf(place(n), "%sit is %s%s", s.label(), describe(n), scalarHint(s, n.Value, known))
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column} // all defaults
	}
	if n.Kind != yaml.MappingNode {
		c.findf(place(n), "%sit is %s; it must be a mapping of %s", s.label(), describe(n), strings.Join(known, ", "))
		return nil
	}
	f := c.fields(n, s.label(), "a policy of the kind "+s.kind, known, combPolicyIdle, func(key string) string {
		return misplacedInPolicy(s, key, breaker)
	})
	f.name(s.name)
	p := &combPolicy{section: *s, order: f.order(), orderAt: f.at("order"), written: f.written()}
	if f.values["order"] == nil {
		p.orderAt = s.key
	}
	if breaker {
		p.breaker = f.breaker()
	} else {
		p.bulkhead = f.bulkhead()
	}
	applies := c.applies(f)
	if p.group = c.groups[s.name]; p.group == nil {
		c.findf(s.key, "%sthere is no matchGroup of that name, so it never applies%s", s.label(), c.nearGroup(s.name, n))
	}
	if !applies || f.dropped || p.group == nil || !p.group.alive() || !c.checkName(s) {
		return nil
	}
	return p
}

// ourNames are our names for their settings.
var ourNames = map[string]string{
	"maxConcurrentCalls":                    "bulkhead.maxConcurrent",
	"maxWaitDuration":                       "bulkhead.maxWait",
	"failureRateThreshold":                  "breaker.failureRate",
	"slowCallRateThreshold":                 "breaker.slowCallRate",
	"slowCallDurationThreshold":             "breaker.slowCall",
	"minimumNumberOfCalls":                  "breaker.minCalls",
	"waitDurationInOpenState":               "breaker.openFor",
	"permittedNumberOfCallsInHalfOpenState": "breaker.halfOpen.calls",
	"recordFailureStatus":                   "breaker.failureStatus",
	"forceOpen":                             "breaker.force",
	"forceClosed":                           "breaker.force",
}

// written returns where the settings are, by our names.
func (f *combFields) written() map[string]at {
	where := map[string]at{}
	for key, n := range f.values {
		if name := ourNames[key]; name != "" {
			where[name] = place(n)
		}
	}
	if n := f.values["slidingWindowSize"]; n != nil {
		where["breaker.window.calls"], where["breaker.window.time"] = place(n), place(n)
	}
	return where
}

// scalarHint says what to write instead of a policy that is a mere text.
func scalarHint(s *section, text string, known []string) string {
	if strings.Contains(text, wideColon) {
		return "; " + writeColon
	}
	if key, value, ok := strings.Cut(text, "="); ok && slices.Contains(known, strings.TrimSpace(key)) {
		return "; write " + strings.TrimSpace(key) + ": " + bare(strings.TrimSpace(value))
	}
	if i := strings.LastIndexByte(s.name, '.'); i > 0 && slices.Contains(known, s.name[i+1:]) {
		return ", since all of " + quote(s.name) + " is its name; write " + bare("servicecomb."+s.kind+"."+s.name[:i]+": |") + " and " + s.name[i+1:] + ": " + bare(text) + " below it"
	}
	return "; it must be a mapping of " + strings.Join(known, ", ")
}

func misplacedInPolicy(s *section, key string, breaker bool) string {
	switch {
	case key == "match" || key == "rules":
		return "a policy applies to the matchGroup of its own name, " + quote(s.name) + "; leave it out"
	case key == "matches" || key == "apiPath":
		return "it belongs in matchGroup." + s.name
	case breaker && slices.Contains(combBulkheadKeys, key):
		return "it belongs in " + kindBulkhead + " or " + kindInstanceBulkhead
	case !breaker && slices.Contains(combBreakerKeys, key):
		return "it belongs in " + kindCircuitBreaker + " or " + kindInstanceIsolation
	}
	return ""
}

// isHystrix reports whether a section is a setting of the circuit breaker that
// ServiceComb had before.
func isHystrix(s *section) bool {
	first, _, _ := strings.Cut(s.name, ".")
	return s.kind == kindCircuitBreaker && slices.Contains(hystrixKeys, first)
}

var hystrixKeys = []string{"Consumer", "Provider", "enabled", "forceOpen", "forceClosed", "sleepWindowInMilliseconds", "requestVolumeThreshold", "errorThresholdPercentage"}

// nearGroup says what to do about a policy n that has no group: to name it as the group
// that it asks for in the way of earlier versions, or that has a name like its own.
func (c *comb) nearGroup(name string, n *yaml.Node) string {
	for _, path := range []string{"match", "rules.match"} {
		if asked := find(n, path, 2); asked != nil {
			group, _, _ := strings.Cut(asked.Value, ".")
			if c.groups[group] != nil {
				return "; name the policy " + quote(group) + ", as the matchGroup that it asks for"
			}
		}
	}
	var names []string
	for _, s := range c.sections[kindMatchGroup] {
		names = append(names, s.name)
	}
	if near := nearest(name, names); near != "" {
		return "; did you mean " + quote(near) + "?"
	}
	return "; write one"
}

// checkName reports a name that would not do in errors, spans and metrics.
func (c *comb) checkName(s *section) bool {
	check := problems{}
	check.policyName(&policyDraft{name: field[string]{v: s.name, set: true}})
	for _, err := range check.errors {
		c.findf(s.key, "%s%s", s.label(), err.Msg)
	}
	return len(check.errors) == 0
}

func (f *combFields) bulkhead() *BulkheadSettings {
	b := &BulkheadSettings{
		MaxConcurrent: f.count("maxConcurrentCalls", 1, maxCount, combMaxConcurrent),
		MaxWait:       f.duration("maxWaitDuration", 0, 0),
	}
	if b.MaxWait > 0 {
		b.MaxQueue = defaultMaxQueue
	}
	f.c.warnLongWait(f.at("maxWaitDuration"), f.label+"maxWaitDuration", b.MaxWait)
	return b
}

func (f *combFields) breaker() *BreakerSettings {
	b := &BreakerSettings{
		FailureRate:   f.rate("failureRateThreshold", combFailureRate),
		SlowCall:      f.duration("slowCallDurationThreshold", time.Millisecond, combSlowCall),
		SlowCallRate:  f.rate("slowCallRateThreshold", combSlowCallRate),
		MinCalls:      f.count("minimumNumberOfCalls", 1, maxCalls, combMinCalls),
		OpenFor:       f.duration("waitDurationInOpenState", time.Millisecond, combOpenFor),
		Window:        f.window(),
		HalfOpen:      HalfOpen{Calls: f.count("permittedNumberOfCallsInHalfOpenState", 1, maxCalls, combProbes)},
		FailureStatus: f.failureStatus(),
		Force:         f.force(),
	}
	// ServiceComb has no limit for a probe. Here it ends in any case, but not before
	// the probe is slow.
	b.HalfOpen.ProbeTimeout = max(defaultProbeTimeout, b.SlowCall)
	b.Backoff = Backoff{Max: b.OpenFor, Multiplier: defaultMultiplier}
	if n := b.Window.Calls; n > 0 && b.MinCalls > n {
		f.c.warnf(f.at("minimumNumberOfCalls"), "%sminimumNumberOfCalls is %d, more than the window's %d calls can hold; %d is used", f.label, b.MinCalls, n, n)
		b.MinCalls = n
	}
	for _, r := range b.FailureStatus {
		b.failures.add(r)
	}
	return b
}

func (f *combFields) window() Window {
	byCalls := false
	if n := f.get("slidingWindowType"); n != nil {
		switch n.Value {
		case "COUNT_BASED":
			byCalls = true
		case "TIME_BASED":
		default:
			if n.Kind != yaml.ScalarNode {
				f.drop(n, "slidingWindowType", "COUNT_BASED or TIME_BASED")
				break
			}
			near := "COUNT_BASED or TIME_BASED"
			switch {
			case strings.HasPrefix(strings.ToLower(n.Value), "count"):
				near = "COUNT_BASED"
			case strings.HasPrefix(strings.ToLower(n.Value), "time"):
				near = "TIME_BASED"
			}
			f.c.findf(place(n), "%sslidingWindowType is %s, which ServiceComb takes for TIME_BASED; write %s", f.label, describe11(n), near)
		}
	}
	size := f.windowSize()
	if byCalls {
		if size > maxCalls {
			f.c.warnf(f.at("slidingWindowSize"), "%sslidingWindowSize is %d calls, and %d is used, which is the most there is", f.label, size, maxCalls)
		}
		return Window{Calls: min(size, maxCalls)}
	}
	return Window{Time: min(time.Duration(size)*time.Second, maxDuration)}
}

// windowSize reads a number of calls or of seconds, which may also be a duration.
func (f *combFields) windowSize() int {
	n := f.get("slidingWindowSize")
	if n == nil {
		return combWindow
	}
	const key, want = "slidingWindowSize", "a number of calls or of seconds, at least 1, or a duration such as 30s or 5m"
	var size int64
	ok := n.Kind == yaml.ScalarNode
	if durationMillis.MatchString(n.Value) {
		size, _ = strconv.ParseInt(n.Value, 10, 64)
	} else if ok {
		var d time.Duration
		d, ok = parseDuration11(n.Value)
		size = int64(d / time.Second)
	}
	// 0 and less, and what has more than 32 bits, are loaded there, but fail when a
	// request comes.
	if !ok || size < 1 || size > 1<<31-1 {
		f.drop(n, key, want)
		return combWindow
	}
	return int(size)
}

// failureStatus reads the statuses that are failures. An x stands for any digit.
func (f *combFields) failureStatus() []StatusRange {
	n := f.get("recordFailureStatus")
	switch {
	case n == nil:
		return slices.Clone(combFailureStatus)
	case n.Kind != yaml.SequenceNode:
		f.drop(n, "recordFailureStatus", "a list: write "+alone(n, true, "[502, 503]"))
		return nil
	case len(n.Content) == 0:
		f.c.findf(place(n), "%srecordFailureStatus is empty, which means 502 and 503; write them, or leave it out", f.label)
		return slices.Clone(combFailureStatus)
	}
	var set statusSet
	for i, n := range n.Content {
		if n = f.c.follow(n); n == nil {
			continue
		}
		name := elementName("recordFailureStatus", i)
		if n.Kind != yaml.ScalarNode {
			f.drop(n, name, "a status such as 503, or 5xx")
			continue
		}
		if !set.addPattern(n.Value) {
			f.c.findf(place(n), "%s%s is %s, which no response has; write a status such as 503, or 5xx", f.label, name, bare(n.Value))
		}
	}
	return set.ranges()
}

// force reads whether the breaker stands still.
func (f *combFields) force() Force {
	open, closed := f.bool("forceOpen"), f.bool("forceClosed")
	switch {
	case open && closed:
		f.c.findf(f.at("forceClosed"), "%sforceClosed has no effect beside forceOpen; leave one out", f.label)
		return ForceOpen
	case open:
		return ForceOpen
	case closed:
		return ForceClosed
	}
	return ForceNone
}

// addPattern adds the statuses of three digits, each of which may be an x for any. It
// reports whether there are any.
func (s *statusSet) addPattern(p string) bool {
	if len(p) != 3 {
		return false
	}
	any := false
	for status := minStatus; status <= maxStatus; status++ {
		text := strconv.Itoa(status)
		if (p[0] == 'x' || p[0] == text[0]) && (p[1] == 'x' || p[1] == text[1]) && (p[2] == 'x' || p[2] == text[2]) {
			s.add(StatusRange{status, status})
			any = true
		}
	}
	return any
}

// ranges returns the statuses as ranges that neither touch nor overlap.
func (s *statusSet) ranges() (all []StatusRange) {
	for status := minStatus; status <= maxStatus; status++ {
		switch n := len(all); {
		case !s.has(status):
		case n > 0 && all[n-1].To == status-1:
			all[n-1].To = status
		default:
			all = append(all, StatusRange{status, status})
		}
	}
	return all
}
