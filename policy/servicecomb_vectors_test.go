package policy_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/watertight-go/watertight/policy"
)

// What the files in testdata/servicecomb say ServiceComb does.
type matchVectors struct {
	Meta struct {
		Self struct{ Service, Version string } `yaml:"local_identity"`
	}
	Vectors []matchVector
}

type matchVector struct {
	ID, Title, Kind string
	Config          map[string]map[string]string
	Request         struct {
		Method            string
		Path              string
		Headers, Query    map[string]string
		Service, Instance string
	}
	Expect struct {
		Groups     map[string]string
		Winner     string // empty: none
		LimiterKey string `yaml:"limiter_key"`
	}
	Tags []string
}

// Where ServiceComb fails in the middle of a request, because a header is no number,
// the condition does not hold here, and the search goes on.
var goesOn = map[string]string{"D21": "cart", "G19": "cart"}

// What ServiceComb passes over, misreads or drops, and strict loading refuses.
var refusedMatch = map[string]string{
	"A18": `matchGroup "cart": matches[0].apiPath: unknown key "regex"; there are no expressions in a ServiceComb file; it has exact, prefix, suffix, contains, compare`,
	"A20": `matchGroup "cart": matches[0].apiPath is empty, and so never holds; write {exact: VALUE}`,
	"A21": `matchGroup "cart": matches[0].apiPath is empty; give it a value, or leave it out`,
	"A22": `matchGroup "cart": matches[0]: unknown key "exact"; it belongs below apiPath or the name of a header: indent it further`,
	"A24": `matchGroup "cart": matches[0].apiPath.exact is 42, which is not text, and so never holds; put it in quotes: "42"`,
	"A31": `matchGroup "cart": matches[0].apiPath.prefix is empty, and so never holds; write "" if that is meant`,
	"A32": `matchGroup "cart": matches[0].apiPath.contains is empty, and so never holds; write "" if that is meant`,
	"B04": `matchGroup "cart": matches[0].method[0] is "get"; methods are upper-case: write GET`,
	"B05": `matchGroup "cart": matches[0].method is GET; it must be a list: write [GET]`,
	"B06": `matchGroup "cart": matches[0].method is empty, and so never holds; list methods such as GET, or leave it out for all`,
	"B07": `matchGroup "cart": matches[0].method is empty; give it a value, or leave it out`,
	"B08": `matchGroup "cart": matches[0]: unknown key "methods"; did you mean "method"?`,
	"B09": `matchGroup "cart": matches[0].method[0] is "GET,POST", which is one method with commas in it; write [GET, POST]`,
	"B10": `matchGroup "cart": matches[0].method[0] is "*", which is a method of that name and not all of them; leave method out for all`,
	"C24": `matchGroup "cart": matches[0].headers.x-age.compare is " >18": it must be >, <, >=, <=, = or != and a number, as in ">=18"`,
	"C25": `matchGroup "cart": matches[0].headers.x-age.compare is "==18": it must be >, <, >=, <=, = or != and a number, as in ">=18"`,
	"C27": `matchGroup "cart": matches[0].headers.x-age.compare is ">": it must be >, <, >=, <=, = or != and a number, as in ">=18"`,
	"C34": `matchGroup "cart": matches[0].headers.x-api-version.exact is 1.0, which is not text, and so never holds; put it in quotes: "1.0"`,
	"C35": `matchGroup "cart": matches[0].headers.x-debug.exact is on, which is not text, and so never holds; put it in quotes: "on"`,
	"C38": `matchGroup "cart": matches[0].headers.x-tier is empty, and so never holds; write {exact: VALUE}`,
	"C39": `matchGroup "cart": matches[0].headers.x-tier is empty, and so never holds; write {exact: VALUE}`,
	"C42": `matchGroup "cart": matches[0].headers is empty; name one, or leave it out`,
	"C43": `matchGroup "cart": matches[0].headers is empty; give it a value, or leave it out`,
	"C44": `matchGroup "cart": matches[0].headers.x-tier is gold; it must be a mapping: write {exact: "gold"}`,
	"D12": `matchGroup "cart": it is a list; it must be a mapping of matches, services, name`,
	"D16": `matchGroup "cart": matches[0]: unknown key "uri"; did you mean "apiPath"?`,
	"D17": `matchGroup "cart": matches[0]: the key "apiPath" is already in line `,
	"D18": `matchGroup "cart": it is empty; write what it is, or leave the name out`,
	"D19": "matchGroup \"cart\": the text is not valid YAML: found character that cannot start any token; text that starts with @, ` or % must be in quotes, and indentation is made of spaces, not tabs",
	"D20": `matchGroup "cart": a second document starts here; a text holds one`,
	"E06": `matchGroup "cart": matches[0].serviceName is empty; give it a value, or leave it out`,
	"E09": `matchGroup "cart": matches[0].customMatcher has no customMatcherHandler, and so is no condition; leave it out`,
	"F06": `matchGroup "cart": services has " shop-api", whose spaces count, so that it is no service; write it without them`,
	"F07": `matchGroup "cart": services has "shop-api:1.2.0:x", which no service matches; write name or name:version`,
	"G03": `bulkhead "cart": there is no matchGroup of that name, so it never applies; did you mean "Cart"?`,
	"G10": `bulkhead "cart": maxConcurrentCalls is -3; it must be a whole number, 1 to 2147483647`,
	"G12": `bulkhead "cart": order is 0.5; it must be a whole number, -2147483648 to 2147483647`,
	"G14": `bulkhead "cart": unknown key "rules"; a policy applies to the matchGroup of its own name, "cart"; leave it out`,
	"G15": `bulkhead "limitCart": unknown key "match"; a policy applies to the matchGroup of its own name, "limitCart"; leave it out`,
	"G17": `bulkhead "cart": it is empty; write what it is, or leave the name out`,
}

func TestServiceCombMatchVectors(t *testing.T) {
	var file matchVectors
	readVectors(t, "servicecomb-match.yaml", &file)
	self := policy.Service(file.Meta.Self.Service, file.Meta.Self.Version)
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			for name, spell := range spellings {
				text, ok := spell(v.Config)
				if !ok {
					continue
				}
				set, err := policy.Parse("f", []byte(text), self)
				if want := refusedMatch[v.ID]; want != "" {
					require.Error(t, err, "%s\n%s", v.Title, text)
					assert.Contains(t, err.Error(), want, name)
				} else {
					require.NoError(t, err, "%s\n%s", v.Title, text)
					v.check(t, set)
				}

				set, lenient := policy.Parse("f", []byte(text), self, policy.Lenient())
				require.NoError(t, lenient, "%s\n%s", v.Title, text)
				v.check(t, set)
				if err != nil {
					for _, problem := range err.(policy.Errors) {
						assert.Contains(t, messages(set), problem.Error(), name)
					}
				}
			}
			v.checkGroups(t, self)
		})
	}
}

// check holds the policy that decides against the vector.
func (v *matchVector) check(t *testing.T, set *policy.Set) {
	t.Helper()
	if v.Kind == "identifierRateLimiting" {
		assert.Contains(t, messages(set), `identifierRateLimiting is not something that this package does; "cart" has no effect here`)
		assert.Empty(t, set.Rules())
		return
	}
	side, pick := policy.Server, func(d policy.Decision) *policy.Rule { return d.Bulkhead }
	if strings.HasPrefix(v.Kind, "instance") {
		side = policy.Client
	}
	if v.Kind == "circuitBreaker" || v.Kind == "instanceIsolation" {
		pick = func(d policy.Decision) *policy.Rule { return d.Breaker }
	}
	request := v.request(side)
	winner := ""
	rule := pick(set.Match(request))
	if rule != nil {
		winner = rule.Name
	}
	want := v.Expect.Winner
	if want == "error" {
		want = goesOn[v.ID]
	}
	if slices.Contains(v.Tags, "java-quirk") {
		assert.NotEqual(t, want, winner, v.Title)
		return
	}
	assert.Equal(t, want, winner, v.Title)
	if key := v.Expect.LimiterKey; key != "" && rule != nil {
		kind := "servicecomb." + v.Kind + "." + rule.Name
		if rule.PerOn(side) == policy.PerHost {
			host := policy.AppendHostKey(nil, side, request.Scheme, request.Host)
			assert.Equal(t, "http://"+strings.ReplaceAll(strings.TrimPrefix(key, kind+"."), ".i-", ":100"), string(host))
			return
		}
		assert.Equal(t, policy.PerPolicy, rule.PerOn(side))
		assert.Equal(t, kind, key)
	}
}

// checkGroups asks each group alone, by a policy that has nothing but the group.
func (v *matchVector) checkGroups(t *testing.T, self policy.LoadOption) {
	for name, want := range v.Expect.Groups {
		text, _ := asTexts(map[string]map[string]string{
			"matchGroup": {name: v.Config["matchGroup"][name]},
			"bulkhead":   {name: "{}"},
		})
		set, err := policy.Parse("f", []byte(text), self, policy.Lenient())
		require.NoError(t, err)
		matches := set.Match(v.request(policy.Server)).Bulkhead != nil
		if v.ID == "D21" {
			want = "match" // by its second entry; see goesOn
		}
		assert.Equal(t, want == "match", matches, "group %s: %s", name, v.Title)
	}
}

// request says on each side what the peer is: a client knows it by the host, a server
// by the header in which it says so.
func (v *matchVector) request(side policy.Side) *policy.Request {
	r := &policy.Request{
		Side:        side,
		Method:      v.Request.Method,
		Scheme:      "http",
		EscapedPath: (&url.URL{Path: v.Request.Path}).EscapedPath(),
		Path:        v.Request.Path,
		Header:      http.Header{},
	}
	for name, value := range v.Request.Headers {
		r.Header.Set(name, value)
	}
	query := url.Values{}
	for name, value := range v.Request.Query {
		query.Set(name, value)
	}
	r.RawQuery = query.Encode()
	switch {
	case v.Request.Service == "":
	case side == policy.Server:
		r.Header.Set("X-Cse-Context", fmt.Sprintf(`{"x-cse-src-microservice":%q}`, v.Request.Service))
	case v.Request.Instance != "":
		r.Host = v.Request.Service + ":100" + strings.TrimPrefix(v.Request.Instance, "i-")
	}
	return r
}

func messages(set *policy.Set) []string {
	var all []string
	for _, w := range set.Warnings() {
		all = append(all, w.Error(), w.Msg)
	}
	return all
}

// spellings write a property tree in the ways in which such files are written. ok is
// false if there is no such way.
var spellings = map[string]func(map[string]map[string]string) (text string, ok bool){
	"texts":  asTexts,
	"dotted": asDotted,
	"quoted": asQuoted,
	"nested": asNested,
}

// asTexts is the documented spelling: each policy a block of text.
func asTexts(config map[string]map[string]string) (string, bool) {
	var b strings.Builder
	b.WriteString("servicecomb:\n")
	for _, kind := range sorted(config) {
		fmt.Fprintf(&b, "  %s:\n", kind)
		for _, name := range sorted(config[kind]) {
			text := config[kind][name]
			if strings.TrimSpace(text) == "" || text[0] == ' ' || text[0] == '\t' {
				fmt.Fprintf(&b, "    %s: %q\n", name, text)
				continue
			}
			fmt.Fprintf(&b, "    %s: |\n      %s\n", name, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n      "))
		}
	}
	return b.String(), true
}

func asDotted(config map[string]map[string]string) (string, bool) {
	var b strings.Builder
	for _, kind := range sorted(config) {
		for _, name := range sorted(config[kind]) {
			text := config[kind][name]
			if strings.TrimSpace(text) == "" {
				fmt.Fprintf(&b, "servicecomb.%s.%s: %q\n", kind, name, text)
				continue
			}
			fmt.Fprintf(&b, "servicecomb.%s.%s: |\n  %s\n", kind, name, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  "))
		}
	}
	return b.String(), true
}

func asQuoted(config map[string]map[string]string) (string, bool) {
	var b strings.Builder
	b.WriteString("servicecomb:\n")
	for _, kind := range sorted(config) {
		fmt.Fprintf(&b, "  %s:\n", kind)
		for _, name := range sorted(config[kind]) {
			fmt.Fprintf(&b, "    %s: %q\n", name, config[kind][name])
		}
	}
	return b.String(), true
}

// asNested is plain YAML, which can say what a text says if that is one mapping with
// each key once.
func asNested(config map[string]map[string]string) (string, bool) {
	var b strings.Builder
	b.WriteString("servicecomb:\n")
	for _, kind := range sorted(config) {
		fmt.Fprintf(&b, "  %s:\n", kind)
		for _, name := range sorted(config[kind]) {
			text := config[kind][name]
			var doc yaml.Node
			dec := yaml.NewDecoder(strings.NewReader(text))
			if dec.Decode(&doc) != nil || dec.Decode(new(yaml.Node)) == nil || doc.Content[0].Kind != yaml.MappingNode {
				return "", false
			}
			if strings.HasPrefix(text, "{") {
				fmt.Fprintf(&b, "    %s: %s", name, text)
				continue
			}
			fmt.Fprintf(&b, "    %s:\n      %s\n", name, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n      "))
		}
	}
	return b.String(), true
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/servicecomb/" + name)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, into))
}

type parseVectors struct {
	Meta struct {
		Defaults map[string]settings
	}
	Vectors []parseVector
}

type parseVector struct {
	ID, Kind, Text, Result string
	Differs                settings `yaml:"differs_from_defaults"`
}

// settings are what a vector says of a policy, field by field.
type settings map[string]any

// Loaded there, but of no use: it fails as soon as a request comes.
var failsLater = []string{"P060", "P061", "P063", "P065"}

// What strict loading says of texts that are dropped there, or are loaded with
// something else than they say.
var refusedParse = map[string]string{
	"P007": `maxWaitDuration is 10000000000; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m`,
	"P017": `maxWaitDuration is 1.5m; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 1m30s`,
	"P018": `maxWaitDuration is 30m1h; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 1h30m`,
	"P019": `maxWaitDuration is 100ms; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 100`,
	"P020": `maxWaitDuration is PT10S; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 10s`,
	"P021": `maxWaitDuration is P1D; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 24h`,
	"P022": `maxWaitDuration is 1d; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 24h`,
	"P023": `maxWaitDuration is 10 s; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 10s`,
	"P024": `maxWaitDuration is " 10"; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 10`,
	"P025": `maxWaitDuration is 1.5; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m`,
	"P026": `maxWaitDuration is 1_000; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m; write 1000`,
	"P027": `maxWaitDuration is 1e3; it must be a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m`,
	"P034": `maxConcurrentCalls is -1; it must be a whole number, 1 to 2147483647`,
	"P041": `maxConcurrentCalls is 3000000000; it must be a whole number, 1 to 2147483647`,
	"P042": `maxConcurrentCalls is abc; it must be a whole number, 1 to 2147483647`,
	"P043": `maxConcurrentCalls is empty; give it a value, or leave it out`,
	"P044": `maxConcurrentCalls is a list; it must be a whole number, 1 to 2147483647`,
	"P046": `unknown key "maxconcurrentcalls"; did you mean "maxConcurrentCalls"?`,
	"P047": `unknown key "max-concurrent-calls"; did you mean "maxConcurrentCalls"?`,
	"P048": `unknown key "rules"; a policy applies to the matchGroup of its own name, "p"; leave it out`,
	"P051": `it is "maxConcurrentCalls=3"; write maxConcurrentCalls: 3`,
	"P055": `order is 1.5; it must be a whole number, -2147483648 to 2147483647`,
	"P060": `slidingWindowSize is 0.5s; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m`,
	"P061": `slidingWindowSize is 0; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m`,
	"P062": `slidingWindowSize is -1; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m`,
	"P063": `slidingWindowSize is -1s; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m`,
	"P065": `slidingWindowSize is 9999999999; it must be a number of calls or of seconds, at least 1, or a duration such as 30s or 5m`,
	"P068": `slidingWindowType is count, which ServiceComb takes for TIME_BASED; write COUNT_BASED`,
	"P069": `slidingWindowType is time, which ServiceComb takes for TIME_BASED; write TIME_BASED`,
	"P070": `slidingWindowType is count_based, which ServiceComb takes for TIME_BASED; write COUNT_BASED`,
	"P074": `failureRateThreshold is 100.1; it must be a percentage: more than 0, at most 100`,
	"P075": `failureRateThreshold is 50%; it must be a percentage: more than 0, at most 100, without the percent sign: 50`,
	"P076": `slowCallRateThreshold is 0; it must be a percentage: more than 0, at most 100`,
	"P078": `waitDurationInOpenState is 0; it must be at least one millisecond`,
	"P080": `slowCallDurationThreshold is 0; it must be at least one millisecond`,
	"P082": `permittedNumberOfCallsInHalfOpenState is 0; it must be a whole number, 1 to 2147483647`,
	"P085": `recordFailureStatus is 500; it must be a list: write [500]`,
	"P086": `recordFailureStatus is empty, which means 502 and 503; write them, or leave it out`,
	"P087": `recordFailureStatus is empty; give it a value, or leave it out`,
	"P088": `recordFailureStatus[0] is 500,502, which no response has; write a status such as 503, or 5xx`,
	"P091": `forceOpen is 1; it must be true or false`,
}

func TestServiceCombParseVectors(t *testing.T) {
	var file parseVectors
	readVectors(t, "servicecomb-parse.yaml", &file)
	for _, v := range file.Vectors {
		kinds := map[string][]string{
			"bulkhead":       {"bulkhead", "instanceBulkhead"},
			"circuitBreaker": {"circuitBreaker", "instanceIsolation"},
		}[v.Kind]
		for _, kind := range kinds {
			t.Run(v.ID+kind, func(t *testing.T) {
				config := map[string]map[string]string{
					"matchGroup": {"p": "matches: [{apiPath: {prefix: /}}]"},
					kind:         {"p": v.Text},
				}
				want := settings{}
				for k, value := range file.Meta.Defaults[v.Kind] {
					want[k] = value
				}
				for k, value := range v.Differs {
					want[k] = value
				}
				v.check(t, config, want)
			})
		}
		if kinds == nil {
			t.Run(v.ID, func(t *testing.T) {
				text, _ := asTexts(map[string]map[string]string{v.Kind: {"p": v.Text}})
				set, err := policy.Parse("f", []byte(text))
				require.NoError(t, err)
				assert.Contains(t, messages(set), fmt.Sprintf(`f:3:5: %s is not something that this package does; "p" has no effect here`, v.Kind))
				assert.Empty(t, set.Rules())
			})
		}
	}
}

func (v *parseVector) check(t *testing.T, config map[string]map[string]string, want settings) {
	for name, spell := range spellings {
		text, ok := spell(config)
		if !ok {
			continue
		}
		loaded := v.Result == "loaded" && !slices.Contains(failsLater, v.ID)
		set, err := policy.Parse("f", []byte(text))
		if message := refusedParse[v.ID]; message != "" {
			require.Error(t, err, text)
			assert.Contains(t, err.Error(), message, name)
		} else {
			require.True(t, loaded, "%s has no message in refusedParse", v.ID)
			require.NoError(t, err, text)
			assert.Equal(t, want, settingsOf(t, set, want), text)
		}
		set, err2 := policy.Parse("f", []byte(text), policy.Lenient())
		require.NoError(t, err2, text)
		if loaded {
			assert.Equal(t, want, settingsOf(t, set, want), text)
		} else {
			assert.Empty(t, set.Rules(), text)
		}
		if err != nil {
			for _, problem := range err.(policy.Errors) {
				assert.Contains(t, messages(set), problem.Error(), name)
			}
		}
	}
}

// settingsOf says of the only rule what the vectors say of a policy.
func settingsOf(t *testing.T, set *policy.Set, want settings) settings {
	t.Helper()
	require.Len(t, set.Rules(), 1)
	r := set.Rules()[0]
	got := settings{"order": want["order"]} // which shows in the order of rules only
	if b := r.Bulkhead; b != nil {
		got["maxConcurrentCalls"] = b.MaxConcurrent
		got["maxWaitMillis"] = int(b.MaxWait.Milliseconds())
	}
	if b := r.Breaker; b != nil {
		got["failureRateThreshold"] = b.FailureRate
		got["slowCallRateThreshold"] = b.SlowCallRate
		got["waitInOpenMillis"] = int(b.OpenFor.Milliseconds())
		got["slowCallMillis"] = int(b.SlowCall.Milliseconds())
		got["permittedInHalfOpen"] = b.HalfOpen.Calls
		got["minimumNumberOfCalls"] = b.MinCalls
		got["forceOpen"] = b.Force == policy.ForceOpen
		got["forceClosed"] = b.Force == policy.ForceClosed
		got["windowType"], got["windowSize"] = "TIME_BASED", fmt.Sprint(int(b.Window.Time/time.Second))
		if b.Window.Calls > 0 {
			got["windowType"], got["windowSize"] = "COUNT_BASED", fmt.Sprint(b.Window.Calls)
		}
		got["recordFailureStatus"] = want["recordFailureStatus"]
		for status := 100; status < 1000; status++ {
			assert.Equal(t, hasStatus(want["recordFailureStatus"], status), b.IsFailure(status), "status %d", status)
		}
	}
	return got
}

// hasStatus reports whether a list of texts in which x is any digit has a status.
func hasStatus(list any, status int) bool {
	for _, text := range list.([]any) {
		p, s := text.(string), fmt.Sprint(status)
		if len(p) != len(s) {
			continue
		}
		same := true
		for i := range p {
			same = same && (p[i] == 'x' || p[i] == s[i])
		}
		if same {
			return true
		}
	}
	return false
}
