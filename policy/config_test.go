package policy_test

import (
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// E22 and E49: odd values are errors when the policies are made, and name the
// policy and the field.
func TestProblemsOfConfigs(t *testing.T) {
	ok := &policy.Bulkhead{MaxConcurrent: 1}
	breaker := func(b policy.Breaker) policy.Policy { return policy.Policy{Name: "a", Breaker: &b} }
	for _, tt := range []struct {
		policy policy.Policy
		want   string
	}{
		{policy.Policy{Bulkhead: ok}, `policies[0]: the name is missing; every policy needs a name of its own`},
		{policy.Policy{Name: "a\xff", Bulkhead: ok}, `policy name "a\xff" is not printable; use letters, digits, spaces and punctuation`},
		{policy.Policy{Name: strings.Repeat("a", 129), Bulkhead: ok}, `policy name "` + strings.Repeat("a", 80) + `..." has 129 bytes; it must have at most 128`},
		{policy.Policy{Name: "a", Side: 9, Bulkhead: ok}, `policy "a": side is Side(9); it must be Server, Client or Both`},
		{policy.Policy{Name: "a", Per: 9, Bulkhead: ok}, `policy "a": per is Per(9); it must be PerPolicy, PerRoute, PerHost, PerHeader or PerDefault`},
		{policy.Policy{Name: "a"}, `policy "a": it limits nothing; give it a bulkhead, a breaker, or exempt: true`},
		{policy.Policy{Name: "a", Exempt: true, Bulkhead: ok}, `policy "a": exempt is true, but the policy has a bulkhead or a breaker; drop one or the other`},
		{policy.Policy{Name: "a", Bulkhead: ok, Match: []policy.Match{{}}}, `policy "a": match[0] is empty and would match everything; give it a field, or leave match out`},
		{policy.Policy{Name: "a", Bulkhead: ok, Match: []policy.Match{{Headers: map[string]string{"x-y": "", "X-Y": ""}}}}, `policy "a": match[0].headers has X-Y twice; a name is the same in upper and lower case`},
		{policy.Policy{Name: "a", Bulkhead: &policy.Bulkhead{}}, `policy "a": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000`},
		{policy.Policy{Name: "a", Bulkhead: &policy.Bulkhead{MaxConcurrent: -1}}, `policy "a": bulkhead.maxConcurrent is -1; it must be 1 to 1000000000`},
		{policy.Policy{Name: "a", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1, MaxWait: -1}}, `policy "a": bulkhead.maxWait is -1ns; it must be 0 to 8760h`},
		{policy.Policy{Name: "a", Bulkhead: ok, Reject: policy.Reject{RetryAfter: new(-time.Second)}}, `policy "a": reject.retryAfter is -1s; it must be 0 to 8760h`},
		{policy.Policy{Name: "a", Bulkhead: ok, Reject: policy.Reject{Status: map[policy.Reason]int{policy.ReasonFull: 0}}}, `policy "a": reject.status.full is 0; it must be 400 to 599`},
		{policy.Policy{Name: "a", Bulkhead: ok, Reject: policy.Reject{Status: map[policy.Reason]int{9: 503}}}, `policy "a": reject.status.Reason(9): there is no such reason; use ReasonFull, ReasonWaitTimeout, ReasonOpen, ReasonDraining or ReasonCanceled`},
		{breaker(policy.Breaker{FailureRate: math.NaN()}), `policy "a": breaker.failureRate is NaN; it must be a percentage: more than 0, at most 100`},
		{breaker(policy.Breaker{FailureRate: -1}), `policy "a": breaker.failureRate is -1; it must be a percentage: more than 0, at most 100`},
		{breaker(policy.Breaker{SlowCallRate: math.Inf(1)}), `policy "a": breaker.slowCallRate is +Inf; it must be a percentage: more than 0, at most 100`},
		{breaker(policy.Breaker{SlowCallRate: 100.5}), `policy "a": breaker.slowCallRate is 100.5; it must be a percentage: more than 0, at most 100`},
		{breaker(policy.Breaker{Window: policy.Window{Calls: 1, Time: 1}}), `policy "a": breaker.window has both calls and time; keep one`},
		{breaker(policy.Breaker{OpenFor: -1}), `policy "a": breaker.openFor is -1ns; it must be more than 0, at most 8760h`},
		{breaker(policy.Breaker{OpenFor: -1, Backoff: policy.Backoff{Max: 1}}), `policy "a": breaker.openFor.initial is -1ns; it must be more than 0, at most 8760h`},
		{breaker(policy.Breaker{Backoff: policy.Backoff{Max: time.Second}}), `policy "a": breaker.openFor.max is 1s; it must be at least initial, 30s`},
		{breaker(policy.Breaker{Backoff: policy.Backoff{Jitter: math.NaN()}}), `policy "a": breaker.openFor.jitter is NaN; it must be a share: at least 0, less than 1`},
		{breaker(policy.Breaker{Backoff: policy.Backoff{Max: time.Minute, Multiplier: math.Inf(1)}}), `policy "a": breaker.openFor.multiplier is +Inf; it must be a number: at least 1.1, at most 100`},
		{breaker(policy.Breaker{Force: 3}), `policy "a": breaker.force is Force(3); it must be ForceNone, ForceOpen or ForceClosed`},
		{breaker(policy.Breaker{Settle: 2}), `policy "a": breaker.settle is Settle(2); it must be SettleHeaders or SettleBody`},
		{breaker(policy.Breaker{Window: policy.Window{Calls: -1}}), `policy "a": breaker.window.calls is -1; it must be 1 to 1000000`},
		{breaker(policy.Breaker{FailureStatus: []policy.StatusRange{{}}}), `policy "a": breaker.failureStatus[0] is 0; a status must be 100 to 999`},
	} {
		_, err := policy.New(policy.Config{Policies: []policy.Policy{tt.policy}})
		var problems policy.Errors
		require.ErrorAs(t, err, &problems, tt.want)
		assert.Contains(t, strings.Split(err.Error(), "\n"), tt.want)
	}
}

func TestNewDiffersFromFilesInZeroes(t *testing.T) {
	set := mustNew(t,
		policy.Policy{Name: "a", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second}},
		policy.Policy{Name: "b", Bulkhead: &policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second, MaxQueue: -1}},
		policy.Policy{Name: "c", Breaker: &policy.Breaker{HalfOpen: policy.HalfOpen{ProbeTimeout: -time.Hour}, FailureStatus: []policy.StatusRange{}}},
	)
	assert.Equal(t, 1000, set.Rules()[0].Bulkhead.MaxQueue)
	assert.Equal(t, 0, set.Rules()[1].Bulkhead.MaxQueue)
	assert.Negative(t, set.Rules()[2].Breaker.HalfOpen.ProbeTimeout)
	assert.False(t, set.Rules()[2].Breaker.IsFailure(500), "an empty list, unlike nil, has no status")

	set = mustNew(t, policy.Policy{Name: "d", Exempt: true, Match: []policy.Match{}})
	assert.NotNil(t, set.Match(&policy.Request{Side: policy.Server, EscapedPath: "/any"}).Exempt)
}

var windows = []policy.Window{{}, {}, {Calls: 9}, {Calls: 1000}, {Time: time.Minute}, {Time: time.Microsecond}, {Calls: 9, Time: time.Minute}}

// configs draws policies with every field, mostly right.
var configs = rapid.Custom(func(t *rapid.T) policy.Config {
	mostly := func(name string, good, bad int) int {
		if rapid.IntRange(0, 30).Draw(t, name) == 0 {
			return bad
		}
		return good * rapid.IntRange(0, 1).Draw(t, name)
	}
	c := policy.Config{Defaults: policy.Defaults{
		MaxCompartments: mostly("maxCompartments", 7, -1),
		Idle:            time.Duration(mostly("idle", 7, -1)) * time.Minute,
	}}
	for i, p := range rapid.SliceOfN(policies, 0, 3).Draw(t, "policies") {
		p.Name = string(rune('a' + i))
		for j := range p.Match {
			onePath(&p.Match[j])
			for k := range p.Match[j].Not {
				onePath(&p.Match[j].Not[k])
			}
		}
		if mostly("name", 0, 1) == 1 {
			p.Name = "a"
		}
		p.Per = rapid.SampledFrom([]policy.Per{policy.PerDefault, policy.PerPolicy, policy.PerRoute, policy.PerHost, policy.PerHeader}).Draw(t, "per")
		if p.Per == policy.PerHeader {
			p.Header = rapid.SampledFrom([]string{"X-Tenant", "x-tenant", "host", "a b"}).Draw(t, "header")
		}
		p.Mode = sometimes(t, "mode", rapid.Just(policy.Observe))
		if p.Bulkhead != nil {
			p.Bulkhead = &policy.Bulkhead{
				MaxConcurrent: 1 + mostly("maxConcurrent", 3, -4),
				MaxQueue:      mostly("maxQueue", 5, 2_000_000_000),
				MaxWait:       time.Duration(mostly("maxWait", 10, -1)) * time.Millisecond,
			}
		}
		if p.Breaker != nil {
			p.Breaker = &policy.Breaker{
				FailureRate:  float64(mostly("failureRate", 33, 101)) / 2,
				SlowCall:     time.Duration(mostly("slowCall", 2, -2)) * time.Second,
				SlowCallRate: float64(mostly("slowCallRate", 33, -1)),
				Window:       rapid.SampledFrom(windows).Draw(t, "window"),
				MinCalls:     mostly("minCalls", 12, -1),
				OpenFor:      time.Duration(mostly("openFor", 5, -1)) * time.Second,
				Backoff: policy.Backoff{
					Max:        time.Duration(mostly("openFor.max", 30, 4)) * time.Second,
					Multiplier: float64(mostly("multiplier", 3, 101)) / 2,
					Jitter:     float64(mostly("jitter", 4, 10)) / 10,
					RetryAfter: time.Duration(mostly("openFor.retryAfter", 60, -1)) * time.Second,
				},
				Settle: policy.Settle(mostly("settle", 1, 0)),
				Force:  policy.Force(mostly("force", 2, 0)),
				HalfOpen: policy.HalfOpen{
					Calls:        mostly("halfOpen.calls", 3, -1),
					ProbeTimeout: time.Duration(mostly("probeTimeout", 5, 100_000)) * time.Hour,
					MaxWait:      time.Duration(mostly("halfOpen.maxWait", 5, -1)) * time.Second,
				},
				FailureStatus: sometimes(t, "failureStatus", rapid.Just([]policy.StatusRange{{From: 429}, {From: 500, To: 599}})),
			}
		}
		if !p.Exempt || rapid.Bool().Draw(t, "reject?") {
			if status := mostly("full", 429, 200); status != 0 {
				p.Reject.Status = map[policy.Reason]int{policy.ReasonFull: status}
			}
			p.Reject.RetryAfter = sometimes(t, "retryAfter", rapid.Just(new(time.Minute)))
		}
		c.Policies = append(c.Policies, p)
	}
	return c
})

// onePath leaves a pattern or a condition, since a file has only one path.
func onePath(m *policy.Match) {
	if m.Path != "" {
		m.PathText = policy.Text{}
	}
}

// fileOf writes a Config as a policy file.
func fileOf(t require.TestingT, c policy.Config) []byte {
	type m = map[string]any
	put := func(to m, key string, v any, set bool) {
		if set {
			if d, ok := v.(time.Duration); ok {
				v = d.String()
			}
			to[key] = v
		}
	}
	defaults := m{}
	put(defaults, "maxCompartments", c.Defaults.MaxCompartments, c.Defaults.MaxCompartments != 0)
	put(defaults, "idle", c.Defaults.Idle, c.Defaults.Idle != 0)
	list := []m{}
	for _, p := range c.Policies {
		out := m{"name": p.Name}
		put(out, "side", p.Side.String(), p.Side != policy.Both)
		put(out, "per", p.Per.String(), p.Per != policy.PerDefault)
		put(out, "per", "header:"+p.Header, p.Per == policy.PerHeader)
		put(out, "mode", p.Mode.String(), p.Mode != policy.Enforce)
		put(out, "exempt", true, p.Exempt)
		entries := []m{}
		for _, e := range p.Match {
			entry, not := entryOf(e), []map[string]any{}
			for _, e := range e.Not {
				not = append(not, entryOf(e))
			}
			put(entry, "not", not, len(not) > 0)
			entries = append(entries, entry)
		}
		put(out, "match", entries, len(entries) > 0)
		if b := p.Bulkhead; b != nil {
			bulkhead := m{"maxConcurrent": b.MaxConcurrent}
			put(bulkhead, "maxQueue", b.MaxQueue, b.MaxQueue != 0)
			put(bulkhead, "maxWait", b.MaxWait, b.MaxWait != 0)
			out["bulkhead"] = bulkhead
		}
		if b := p.Breaker; b != nil {
			breaker, window, halfOpen, statuses := m{}, m{}, m{}, []string{}
			put(breaker, "failureRate", b.FailureRate, b.FailureRate != 0)
			put(breaker, "slowCall", b.SlowCall, b.SlowCall != 0)
			put(breaker, "slowCallRate", b.SlowCallRate, b.SlowCallRate != 0)
			put(window, "calls", b.Window.Calls, b.Window.Calls != 0)
			put(window, "time", b.Window.Time, b.Window.Time != 0)
			put(breaker, "window", window, len(window) > 0)
			put(breaker, "minCalls", b.MinCalls, b.MinCalls != 0)
			if b.Backoff == (policy.Backoff{}) {
				put(breaker, "openFor", b.OpenFor, b.OpenFor != 0)
			} else {
				openFor := m{}
				put(openFor, "initial", b.OpenFor, b.OpenFor != 0)
				put(openFor, "max", b.Backoff.Max, b.Backoff.Max != 0)
				put(openFor, "multiplier", b.Backoff.Multiplier, b.Backoff.Multiplier != 0)
				put(openFor, "jitter", b.Backoff.Jitter, b.Backoff.Jitter != 0)
				put(openFor, "retryAfter", b.Backoff.RetryAfter, b.Backoff.RetryAfter != 0)
				breaker["openFor"] = openFor
			}
			put(breaker, "settle", b.Settle.String(), b.Settle != policy.SettleHeaders)
			put(breaker, "force", b.Force.String(), b.Force != policy.ForceNone)
			put(halfOpen, "calls", b.HalfOpen.Calls, b.HalfOpen.Calls != 0)
			put(halfOpen, "probeTimeout", b.HalfOpen.ProbeTimeout, b.HalfOpen.ProbeTimeout != 0)
			put(halfOpen, "maxWait", b.HalfOpen.MaxWait, b.HalfOpen.MaxWait != 0)
			breaker["halfOpen"] = halfOpen
			for _, r := range b.FailureStatus {
				statuses = append(statuses, r.String())
			}
			put(breaker, "failureStatus", statuses, b.FailureStatus != nil)
			out["breaker"] = breaker
		}
		reject, status := m{}, m{}
		for reason, code := range p.Reject.Status {
			status[reason.String()] = code
		}
		put(reject, "status", status, len(status) > 0)
		if p.Reject.RetryAfter != nil {
			put(reject, "retryAfter", *p.Reject.RetryAfter, true)
		}
		put(out, "reject", reject, len(reject) > 0)
		list = append(list, out)
	}
	data, err := yaml.Marshal(m{"version": 1, "defaults": defaults, "policies": list})
	require.NoError(t, err)
	return data
}

// entryOf writes an entry without its not.
func entryOf(e policy.Match) map[string]any {
	entry, headers, query := map[string]any{}, map[string]any{}, map[string]any{}
	for key, v := range map[string]string{"path": e.Path, "route": e.Route, "host": e.Host} {
		if v != "" {
			entry[key] = v
		}
	}
	if e.PathText != (policy.Text{}) {
		entry["path"] = textOf(e.PathText)
	}
	if len(e.Method) > 0 {
		entry["method"] = e.Method
	}
	for name, value := range e.Headers {
		headers[name] = map[string]any{"exact": value}
	}
	for name, c := range e.HeaderText {
		headers[name] = textOf(c)
	}
	for name, c := range e.Query {
		query[name] = textOf(c)
	}
	if len(headers) > 0 {
		entry["headers"] = headers
	}
	if len(query) > 0 {
		entry["query"] = query
	}
	return entry
}

func textOf(c policy.Text) map[string]any {
	text := map[string]any{}
	for key, v := range map[string]string{"exact": c.Exact, "prefix": c.Prefix, "suffix": c.Suffix, "contains": c.Contains, "regexp": c.Regexp} {
		if v != "" {
			text[key] = v
		}
	}
	if len(text) == 0 {
		text["prefix"] = "" // which a Config says with the zero Text
	}
	return text
}

// byLine is the part of a message that only a file can have.
var byLine = regexp.MustCompile(`( by the one)? in line \d+`)

// A file and a Config that say the same make the same set, or have the same
// problems.
func TestFilesAndConfigsAreOne(t *testing.T) {
	good, bad := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := configs.Draw(t, "config")
		file := fileOf(t, c)
		messages := func(problems []*policy.Error) (all []string) {
			for _, p := range problems {
				all = append(all, byLine.ReplaceAllString(p.Msg, ""))
			}
			return all
		}
		fromCode, err := policy.New(c)
		fromFile, fileErr := policy.Parse("f", file)
		if err != nil {
			bad++
			require.Error(t, fileErr, "%v\n%s", err, file)
			require.ElementsMatch(t, messages(err.(policy.Errors)), messages(fileErr.(policy.Errors)), "%s", file)
			return
		}
		good++
		require.NoError(t, fileErr, "%s", file)
		require.Equal(t, fromCode.Rules(), fromFile.Rules(), "%s", file)
		require.Equal(t, fromCode.Defaults(), fromFile.Defaults())
		require.Equal(t, fromCode.UsesRoutes(), fromFile.UsesRoutes())
		got := messages(fromFile.Warnings())
		if len(c.Policies) == 0 {
			got = got[1:] // a file without policies is odd, a Config may be under way
		}
		require.ElementsMatch(t, messages(fromCode.Warnings()), got)
	})
	assert.Positive(t, good, "no draw was right")
	assert.Positive(t, bad, "no draw was wrong")
}

func TestHeaderNamesAreCanonical(t *testing.T) {
	set := mustNew(t, policy.Policy{
		Name:     "a",
		Match:    []policy.Match{{Headers: map[string]string{"x-plan": "free"}}},
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	})
	h := http.Header{}
	h.Set("X-PLAN", "free")
	assert.NotNil(t, set.Match(&policy.Request{Side: policy.Client, Header: h}).Bulkhead)
}
