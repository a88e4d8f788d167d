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

// What is written in vectors that ServiceComb passes over or drops, and strict loading
// refuses: the message without its file.
var refusedMatch = map[string]string{}

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
		assert.Contains(t, messages(set), `identifierRateLimiting is not something that this package does, so "cart" has no effect here`)
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

// What strict loading says of texts that are loaded there.
var refusedParse = map[string]string{}

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
				assert.Contains(t, messages(set), fmt.Sprintf(`f:3:5: %s is not something that this package does, so "p" has no effect here`, v.Kind))
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
		if message, refused := refusedParse[v.ID]; refused || !loaded {
			require.Error(t, err, text)
			assert.Contains(t, err.Error(), message, name)
		} else {
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
