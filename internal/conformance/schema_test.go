package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

const schemaFile = "../../cmd/watertight/policy.schema.json"

func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	require.NoError(t, err)
	return s
}

// judge returns what the loader and the schema say of a document, nil if it is right.
func judge(t require.TestingT, s *jsonschema.Schema, doc any) (text []byte, loader, bySchema error) {
	text, err := yaml.Marshal(doc)
	require.NoError(t, err)
	_, loader = policy.Parse("policy.yaml", text)
	// The way of an editor: YAML becomes what JSON would have been.
	var plain any
	require.NoError(t, yaml.Unmarshal(text, &plain))
	asJSON, err := json.Marshal(plain)
	require.NoError(t, err)
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	require.NoError(t, err)
	return text, loader, s.Validate(instance)
}

// A m is a mapping of YAML.
type m = map[string]any

// Values of which each is right where it is drawn for.
var (
	durations   = rapid.SampledFrom([]any{"1ms", "800ms", "30s", "1h30m", "1.5s", ".5s"})
	waits       = rapid.SampledFrom([]any{0, "0s", "1ms", "2m"})
	someRates   = rapid.SampledFrom([]any{0.5, 1, 50, 99.9, 100})
	someCalls   = rapid.SampledFrom([]any{1, 5, 100})
	operators   = []string{"exact", "prefix", "suffix", "contains", "regexp"}
	statusLists = rapid.SampledFrom([]any{[]any{}, []any{500}, []any{"500-599", 429}, []any{"503"}})
)

func conditions(t *rapid.T) m {
	// One operator alone: of several, some cannot hold together.
	return m{rapid.SampledFrom(operators).Draw(t, "operator"): rapid.SampledFrom([]string{"/a", "/b.c"}).Draw(t, "text")}
}

// optionally sets a key, or not.
func optionally(t *rapid.T, in m, key string, value func() any) {
	if rapid.Bool().Draw(t, key) {
		in[key] = value()
	}
}

func draw[T any](t *rapid.T, g *rapid.Generator[T]) func() any {
	return func() any { return g.Draw(t, "value") }
}

func drawEntry(t *rapid.T, side string, inner bool) m {
	e := m{}
	optionally(t, e, "method", func() any { return []any{"GET", "PROPFIND"} })
	optionally(t, e, "path", func() any {
		if rapid.Bool().Draw(t, "pattern") {
			return rapid.SampledFrom([]string{"/", "/a/{id}", "/s/{rest...}"}).Draw(t, "path")
		}
		return conditions(t)
	})
	if side == "server" {
		optionally(t, e, "route", func() any { return "/r/{id}" })
	}
	optionally(t, e, "host", draw(t, rapid.SampledFrom([]string{"a.internal", "*.internal", "a:8080"})))
	optionally(t, e, "headers", func() any { return m{"X-Plan": conditions(t)} })
	optionally(t, e, "query", func() any { return m{"watch": conditions(t)} })
	if !inner {
		optionally(t, e, "not", func() any {
			if rapid.Bool().Draw(t, "list") {
				return []any{drawEntry(t, side, true), drawEntry(t, side, true)}
			}
			return drawEntry(t, side, true)
		})
	}
	if len(e) == 0 {
		e["path"] = "/x"
	}
	return e
}

func drawBreaker(t *rapid.T) m {
	b := m{}
	optionally(t, b, "failureRate", draw(t, someRates))
	optionally(t, b, "slowCall", draw(t, durations))
	optionally(t, b, "slowCallRate", draw(t, someRates))
	optionally(t, b, "minCalls", draw(t, someCalls))
	optionally(t, b, "window", func() any {
		if rapid.Bool().Draw(t, "time") {
			return m{"time": durations.Draw(t, "time")}
		}
		return m{"calls": someCalls.Draw(t, "calls")}
	})
	optionally(t, b, "openFor", func() any {
		if rapid.Bool().Draw(t, "fixed") {
			return durations.Draw(t, "openFor")
		}
		o := m{"initial": "5s"}
		optionally(t, o, "max", func() any { return "2m" })
		optionally(t, o, "multiplier", draw(t, rapid.SampledFrom([]any{1.1, 2, 100})))
		optionally(t, o, "jitter", draw(t, rapid.SampledFrom([]any{0, 0.2, 0.99})))
		optionally(t, o, "retryAfter", draw(t, waits))
		return o
	})
	optionally(t, b, "halfOpen", func() any {
		h := m{}
		optionally(t, h, "calls", draw(t, someCalls))
		optionally(t, h, "probeTimeout", draw(t, waits))
		optionally(t, h, "maxWait", draw(t, waits))
		return h
	})
	optionally(t, b, "failureStatus", draw(t, statusLists))
	optionally(t, b, "settle", draw(t, rapid.SampledFrom([]string{"headers", "body"})))
	optionally(t, b, "force", draw(t, rapid.SampledFrom([]string{"open", "closed"})))
	return b
}

// drawFile draws a file that is right.
func drawFile(t *rapid.T) m {
	policies := []any{}
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		side := rapid.SampledFrom([]string{"server", "client", "both"}).Draw(t, "side")
		p := m{"name": fmt.Sprint("p", i), "side": side}
		optionally(t, p, "match", func() any { return []any{drawEntry(t, side, false)} })
		pers := []string{"policy", "host", "header:X-Tenant"}
		if side == "server" {
			pers = append(pers, "route")
		}
		optionally(t, p, "mode", draw(t, rapid.SampledFrom([]string{"enforce", "observe"})))
		if rapid.IntRange(0, 3).Draw(t, "exempt") == 0 {
			delete(p, "mode")
			p["exempt"] = true
		} else {
			optionally(t, p, "per", draw(t, rapid.SampledFrom(pers)))
			optionally(t, p, "bulkhead", func() any {
				b := m{"maxConcurrent": someCalls.Draw(t, "maxConcurrent")}
				optionally(t, b, "maxQueue", draw(t, rapid.SampledFrom([]any{0, 40})))
				optionally(t, b, "maxWait", draw(t, waits))
				return b
			})
			optionally(t, p, "breaker", func() any { return drawBreaker(t) })
			if p["bulkhead"] == nil && p["breaker"] == nil {
				p["bulkhead"] = m{"maxConcurrent": 1}
			}
			optionally(t, p, "reject", func() any {
				r := m{}
				optionally(t, r, "retryAfter", draw(t, waits))
				optionally(t, r, "status", func() any { return m{"full": 429, "wait_timeout": 503} })
				return r
			})
		}
		policies = append(policies, p)
	}
	f := m{"version": 1, "policies": policies}
	optionally(t, f, "defaults", func() any { return m{"maxCompartments": 5, "idle": "1m"} })
	return f
}

// What the loader reads is right by the schema.
func TestSchemaAllowsWhatTheLoaderReads(t *testing.T) {
	s := schema(t)
	rapid.Check(t, func(t *rapid.T) {
		text, loader, bySchema := judge(t, s, drawFile(t))
		require.NoError(t, loader, string(text))
		require.NoError(t, bySchema, string(text))
	})
}

// What is no longer right after one change is wrong for both: another type, a key that
// there is not, a word or a number out of range, something left out.
func TestSchemaRefusesWhatTheLoaderRefuses(t *testing.T) {
	s := schema(t)
	rapid.Check(t, func(t *rapid.T) {
		doc := drawFile(t)
		what := spoil(t, doc)
		text, loader, bySchema := judge(t, s, doc)
		require.Error(t, loader, "%s\n%s", what, text)
		require.Error(t, bySchema, "%s\n%s", what, text)
	})
}

// A slot is a place in a document where something can be put.
type slot struct {
	path string
	in   m
	key  string
}

// slots returns every key of every mapping whose keys the form fixes.
func slots(path string, v any) (all []slot) {
	switch v := v.(type) {
	case m:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := path + "." + key
			all = append(all, slot{at, v, key})
			all = append(all, slots(at, v[key])...)
		}
	case []any:
		for i, e := range v {
			all = append(all, slots(fmt.Sprintf("%s[%d]", path, i), e)...)
		}
	}
	return all
}

// spoil makes one change after which a document is wrong, and says which.
func spoil(t *rapid.T, doc m) string {
	at := rapid.SampledFrom(slots("", doc)).Draw(t, "slot")
	if rapid.IntRange(0, 4).Draw(t, "where") == 0 && !strings.HasSuffix(at.path, ".X-Plan") && !strings.HasSuffix(at.path, ".watch") {
		at.in["unknownKey"] = 1
		return "an unknown key beside " + at.path
	}
	wrong := []any{nil, []any{[]any{}}, m{"unknownKey": 1}, true}
	switch old := at.in[at.key].(type) {
	case bool:
		wrong = []any{nil, "yes", 1, []any{}}
	case int, float64:
		wrong = append(wrong, "x", -1, 1e12)
	case string:
		wrong = append(wrong, 7)
		if regexp.MustCompile(`^[0-9.]+(ms|s|m|h)`).MatchString(old) {
			wrong = append(wrong, "fast", "10", "5 s")
		}
		if slices.Contains([]string{"side", "per", "mode", "settle", "force"}, at.key) {
			wrong = append(wrong, "neither")
		}
	case []any:
		wrong = append(wrong, "x", m{})
		if at.key == "match" || at.key == "method" {
			wrong = append(wrong, []any{})
		}
	case m:
		wrong = append(wrong, 7, []any{1})
		if at.key != "defaults" && at.key != "breaker" && at.key != "reject" && at.key != "halfOpen" && at.key != "status" {
			wrong = append(wrong, m{})
		}
	}
	v := rapid.SampledFrom(wrong).Draw(t, "wrong")
	at.in[at.key] = v
	return fmt.Sprintf("%s is %#v", at.path, v)
}

// The files that the documents show are right.
func TestSchemaAllowsTheDocumentedFiles(t *testing.T) {
	s := schema(t)
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	files = append(files, "../../README.md")
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(b[1], "version: 1") {
				continue // a part of one, or a file of ServiceComb
			}
			var doc any
			require.NoError(t, yaml.Unmarshal([]byte(b[1]), &doc), file)
			_, loader, bySchema := judge(t, s, doc)
			require.NoError(t, loader, "%s:\n%s", file, b[1])
			require.NoError(t, bySchema, "%s:\n%s", file, b[1])
			seen++
		}
	}
	require.Greater(t, seen, 2)
}
