package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/policy"
)

// A validator knows as much of JSON Schema as the schema uses, and no more: a keyword
// that it does not know is an error.
type validator struct {
	t    require.TestingT
	root map[string]any
}

func newValidator(t require.TestingT) *validator {
	v := &validator{t: t}
	require.NoError(t, json.Unmarshal([]byte(schema), &v.root))
	return v
}

// valid reports whether a value fulfils a schema. Values are those that
// encoding/json makes.
func (v *validator) valid(schema, value any) bool {
	if b, ok := schema.(bool); ok {
		return b
	}
	s := schema.(map[string]any)
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	text, isText := value.(string)
	number, isNumber := value.(float64)
	for keyword, arg := range s {
		ok := true
		switch keyword {
		case "$schema", "$id", "$defs", "title", "description", "default", "then", "else", "additionalProperties":
		case "$ref":
			ok = v.valid(v.ref(arg.(string)), value)
		case "type":
			ok = map[string]bool{
				"object": isObject, "array": isList, "string": isText, "number": isNumber,
				"integer": isNumber && number == float64(int64(number)), "boolean": value == true || value == false,
			}[arg.(string)]
		case "const":
			ok = value == arg
		case "enum":
			ok = slices.ContainsFunc(arg.([]any), func(a any) bool { return a == value })
		case "required":
			for _, key := range arg.([]any) {
				_, has := object[key.(string)]
				ok = ok && (has || !isObject)
			}
		case "properties":
			for key, inner := range arg.(map[string]any) {
				if child, has := object[key]; has {
					ok = ok && v.valid(inner, child)
				}
			}
		case "propertyNames":
			for key := range object {
				ok = ok && v.valid(arg, key)
			}
		case "minProperties":
			ok = !isObject || float64(len(object)) >= arg.(float64)
		case "maxProperties":
			ok = !isObject || float64(len(object)) <= arg.(float64)
		case "items":
			for _, child := range list {
				ok = ok && v.valid(arg, child)
			}
		case "contains":
			ok = !isList || slices.ContainsFunc(list, func(child any) bool { return v.valid(arg, child) })
		case "minItems":
			ok = !isList || float64(len(list)) >= arg.(float64)
		case "pattern":
			ok = !isText || regexp.MustCompile(arg.(string)).MatchString(text)
		case "minLength":
			ok = !isText || float64(utf8.RuneCountInString(text)) >= arg.(float64)
		case "maxLength":
			ok = !isText || float64(utf8.RuneCountInString(text)) <= arg.(float64)
		case "minimum":
			ok = !isNumber || number >= arg.(float64)
		case "maximum":
			ok = !isNumber || number <= arg.(float64)
		case "exclusiveMinimum":
			ok = !isNumber || number > arg.(float64)
		case "exclusiveMaximum":
			ok = !isNumber || number < arg.(float64)
		case "not":
			ok = !v.valid(arg, value)
		case "allOf", "anyOf", "oneOf":
			all := arg.([]any)
			n := 0
			for _, inner := range all {
				if v.valid(inner, value) {
					n++
				}
			}
			ok = map[string]bool{"allOf": n == len(all), "anyOf": n > 0, "oneOf": n == 1}[keyword]
		case "if":
			then := "else"
			if v.valid(arg, value) {
				then = "then"
			}
			if inner, has := s[then]; has {
				ok = v.valid(inner, value)
			}
		default:
			require.FailNow(v.t, "the validator does not know "+keyword)
		}
		if !ok {
			return false
		}
	}
	if more, has := s["additionalProperties"]; has && isObject {
		known, _ := s["properties"].(map[string]any)
		for key, child := range object {
			if _, has := known[key]; !has && !v.valid(more, child) {
				return false
			}
		}
	}
	return true
}

func (v *validator) ref(path string) any {
	var at any = v.root
	for key := range strings.SplitSeq(strings.TrimPrefix(path, "#/"), "/") {
		at = at.(map[string]any)[key]
	}
	require.NotNil(v.t, at, path)
	return at
}

// check returns what the schema and what the loader say of a value.
func (v *validator) check(value any) (valid bool, errors policy.Errors, file string) {
	data, err := json.Marshal(value)
	require.NoError(v.t, err)
	var plain any
	require.NoError(v.t, json.Unmarshal(data, &plain))
	errors, _ = policy.Check("f", data) // JSON is YAML
	return v.valid(v.root, plain), errors, string(data)
}

// beyondSchema is what the loader refuses and no schema can say, or none that anybody
// would want to read.
var beyondSchema = regexp.MustCompile(`name "[^"]*" is taken` +
	`|must be (0 to|1ms to|more than 0, at most) 8760h` +
	`|must be at least initial` +
	`|the wildcard name . comes twice` +
	`|is not a clean path` +
	`|which is empty; write [0-9]+-[0-9]+` +
	`|never holds beside exact` +
	`|it is not a regular expression` +
	`|is not a port` +
	`|has .* twice; a name is the same in upper and lower case`)

// Of documents that are nearly right, the schema and the loader say the same.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v := newValidator(t)
		valid, errors, file := v.check(documents.Draw(t, "document"))
		if len(errors) == 0 {
			accepted++
			require.True(t, valid, "the loader accepts, the schema does not:\n%s", file)
			return
		}
		refused++
		beyond := true
		for _, err := range errors {
			beyond = beyond && beyondSchema.MatchString(err.Msg)
		}
		if !beyond {
			require.False(t, valid, "the schema accepts, the loader does not: %v\n%s", errors, file)
		}
	})
	assert.NotZero(t, accepted)
	assert.NotZero(t, refused)
}

// Each sample alone, so that none hides behind another.
func TestSchemaAgreesOnEachSample(t *testing.T) {
	v := newValidator(t)
	for key, values := range samples {
		for _, value := range values {
			p := map[string]any{"name": "a", "side": "server", "bulkhead": map[string]any{"maxConcurrent": 1}}
			place(p, key, value)
			valid, errors, file := v.check(map[string]any{"version": 1, "policies": []any{p}})
			beyond := len(errors) > 0 && !slices.ContainsFunc(errors, func(e *policy.Error) bool { return !beyondSchema.MatchString(e.Msg) })
			if !beyond {
				assert.Equal(t, len(errors) == 0, valid, "%s: %v: %v\n%s", key, value, errors, file)
			}
		}
	}
}

// The files of the documentation and the examples fit.
func TestSchemaAcceptsWhatIsThere(t *testing.T) {
	v := newValidator(t)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	n := 0
	for _, page := range []string{"policies.md", "recipes.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "version: 1") {
				continue
			}
			var value any
			require.NoError(t, yaml.Unmarshal([]byte(m[1]), &value))
			valid, errors, file := v.check(value)
			assert.Empty(t, errors)
			assert.True(t, valid, file)
			n++
		}
	}
	assert.NotZero(t, n)
}

func TestSchemaCommand(t *testing.T) {
	status, out, err := call("", "schema")
	assert.Zero(t, status)
	assert.Empty(t, err)
	assert.True(t, json.Valid([]byte(out)))
	assert.Equal(t, schema, out)
}

// samples are values of keys, right and wrong ones.
var samples = map[string][]any{
	"name":                          {"a", "a b", "", " a", "a ", "a\tb", "(unmatched)", "(exempt)", "ü", strings.Repeat("n", 129), 1, nil, []any{}},
	"side":                          {"server", "client", "both", "Server", "", 1, nil},
	"per":                           {"policy", "route", "host", "header:X-A", "header:", "header:Host", "header:a b", "default", "tenant", nil},
	"mode":                          {"enforce", "observe", "dry", true},
	"exempt":                        {false, "false", nil, 1},
	"nmae":                          {"a"},
	"match":                         {[]any{}, nil, "all", map[string]any{"path": "/a"}, []any{map[string]any{}}, []any{"/a"}, []any{nil}},
	"match.path":                    {"/", "/a", "/a/", "/a/{id}", "/{x}/{y...}", "/a/{$}", "/{x}/{x}", "/a/{x...}/b", "/a/{x:[0-9]}", "/x{a}", "/a{", "/a}", "/a//b", "/a/../b", "a", "", "/a b", "/a?b", "*", "/ü/{ü}", "/{1a}", "/{}", 1, nil, map[string]any{}, map[string]any{"exact": "/a"}, map[string]any{"exact": "a"}, map[string]any{"exact": ""}, map[string]any{"exact": "*"}, map[string]any{"prefix": "/a", "suffix": "b"}, map[string]any{"prefix": ""}, map[string]any{"suffix": ""}, map[string]any{"contains": ""}, map[string]any{"contains": "b"}, map[string]any{"regexp": "^/a"}, map[string]any{"regexp": ""}, map[string]any{"regexp": "("}, map[string]any{"regex": "a"}, map[string]any{"exact": 1}},
	"match.method":                  {[]any{"GET"}, []any{"GET", "PUT"}, []any{"get"}, []any{}, []any{"G T"}, []any{""}, []any{1}, "GET", nil},
	"match.route":                   {"/a", "GET /a", "GET a.test/a", "a", "", "GET", 1, nil},
	"match.host":                    {"a", "a.test:80", "*.test", "*.test:8080", "[::1]", "[::1]:80", "A.Test", "", "*", "a:", "a:0", "a:70000", "a:http", "::1", "http://a", "a/b", "u@a", "a b", "a.*.b", "*.", 1, nil},
	"match.headers":                 {map[string]any{"X-A": map[string]any{"exact": "b"}}, map[string]any{"x-a": map[string]any{"prefix": "b", "contains": "c"}}, map[string]any{"X-A": map[string]any{"exact": ""}}, map[string]any{"X-A": map[string]any{"exact": " b"}}, map[string]any{"X-A": map[string]any{"suffix": "b "}}, map[string]any{"X-A": map[string]any{"prefix": "b "}}, map[string]any{"X A": map[string]any{"exact": "b"}}, map[string]any{"Host": map[string]any{"exact": "b"}}, map[string]any{"X-A": map[string]any{}}, map[string]any{"X-A": "b"}, map[string]any{"X-A": nil}, map[string]any{}, map[string]any{"X-A": map[string]any{"exact": "b"}, "x-a": map[string]any{"exact": "b"}}, []any{}, nil},
	"match.query":                   {map[string]any{"a": map[string]any{"exact": "b"}}, map[string]any{"a": map[string]any{"contains": ""}}, map[string]any{"": map[string]any{"exact": "b"}}, map[string]any{"a": map[string]any{}}, map[string]any{"a": 1}, map[string]any{}, nil},
	"match.not":                     {map[string]any{"path": "/a"}, []any{map[string]any{"path": "/a"}, map[string]any{"method": []any{"GET"}}}, []any{}, map[string]any{}, map[string]any{"not": map[string]any{"path": "/a"}}, "a", nil, map[string]any{"path": "a"}},
	"match.paht":                    {"/a"},
	"bulkhead":                      {map[string]any{}, nil, 5, []any{}},
	"bulkhead.maxConcurrent":        {1, 1_000_000_000, 1_000_000_001, 0, -1, "5", 1.5, nil},
	"bulkhead.maxQueue":             {0, 5, -1, 1_000_000_001, "1"},
	"bulkhead.maxWait":              durations,
	"bulkhead.adaptive":             {map[string]any{}},
	"breaker":                       {map[string]any{}, nil, true},
	"breaker.failureRate":           rates,
	"breaker.slowCallRate":          rates,
	"breaker.slowCall":              durations,
	"breaker.window":                {map[string]any{}, map[string]any{"calls": 1}, map[string]any{"time": "1s"}, map[string]any{"calls": 1, "time": "1s"}, map[string]any{"seconds": 1}, 100, nil},
	"breaker.window.calls":          {1, 1_000_000, 1_000_001, 0, "1"},
	"breaker.window.time":           durations,
	"breaker.minCalls":              {1, 0, 1_000_000, 1_000_001, "5", nil},
	"breaker.openFor":               append([]any{map[string]any{}, []any{}}, durations...),
	"breaker.openFor.initial":       durations,
	"breaker.openFor.max":           durations,
	"breaker.openFor.multiplier":    {1.1, 2, 100, 1, 101, "2", nil},
	"breaker.openFor.jitter":        {0, 0.5, 1, -0.1, "0"},
	"breaker.openFor.retryAfter":    durations,
	"breaker.halfOpen":              {map[string]any{}, nil, 5},
	"breaker.halfOpen.calls":        {1, 0, 1_000_001},
	"breaker.halfOpen.probeTimeout": durations,
	"breaker.halfOpen.maxWait":      durations,
	"breaker.failureStatus":         {[]any{}, []any{500}, []any{"500-599", 429, "503"}, []any{"599-500"}, []any{99}, []any{1000}, []any{"5xx"}, []any{"99-599"}, []any{nil}, 500, "500-599", nil},
	"breaker.settle":                {"headers", "body", "trailers", 1, nil},
	"breaker.force":                 {"open", "closed", "none", true, nil},
	"reject":                        {map[string]any{}, nil, 503},
	"reject.retryAfter":             durations,
	"reject.status":                 {map[string]any{}, nil, 503, map[string]any{"ful": 503}},
	"reject.status.full":            {400, 599, 399, 600, "503", nil},
	"reject.status.canceled":        {499, 200},
}

var (
	durations = []any{"1s", "100ms", "1h30m", "1.5s", ".5s", "0s", "0", 0, "-1s", "+1s", 5, "5", "1 s", "1d", "", "9000h", "1us", "1µs", true, nil}
	rates     = []any{50, 0.5, 100, 0, 100.5, -1, "50", "50%", nil}
)

// place puts a value where its key says, below an entry of match if it is for one.
func place(p map[string]any, key string, value any) {
	steps := strings.Split(key, ".")
	if steps[0] == "match" && len(steps) > 1 {
		entry, _ := p["match"].([]any)
		if len(entry) == 0 {
			p["match"] = []any{map[string]any{}}
			entry = p["match"].([]any)
		}
		entry[0].(map[string]any)[steps[1]] = value
		return
	}
	for _, step := range steps[:len(steps)-1] {
		inner, ok := p[step].(map[string]any)
		if !ok {
			inner = map[string]any{}
			p[step] = inner
		}
		p = inner
	}
	p[steps[len(steps)-1]] = value
}

// documents have policies with a few keys, most of them right.
var documents = rapid.Custom(func(t *rapid.T) any {
	keys := make([]string, 0, len(samples))
	for key := range samples {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var list []any
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		p := map[string]any{"name": fmt.Sprint("p", i)}
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			p["exempt"] = true
		case 1:
			p["breaker"] = map[string]any{}
		case 2:
		default:
			p["bulkhead"] = map[string]any{"maxConcurrent": 1}
		}
		if rapid.Bool().Draw(t, "sided") {
			p["side"] = rapid.SampledFrom([]string{"server", "client", "both"}).Draw(t, "side")
		}
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			values := samples[key]
			at := 0 // the first is right
			if rapid.IntRange(0, 3).Draw(t, "any") == 0 {
				at = rapid.IntRange(0, len(values)-1).Draw(t, "value")
			}
			if key == "match" && at == 0 {
				continue
			}
			place(p, key, clone(values[at]))
		}
		list = append(list, p)
	}
	doc := map[string]any{"version": 1, "policies": list}
	if list == nil {
		doc["policies"] = []any{}
	}
	switch rapid.IntRange(0, 12).Draw(t, "top") {
	case 0:
		delete(doc, "version")
	case 1:
		delete(doc, "policies")
	case 2:
		doc["version"] = rapid.SampledFrom([]any{2, "1", nil}).Draw(t, "version")
	case 3:
		doc["defaults"] = rapid.SampledFrom([]any{map[string]any{}, map[string]any{"idle": "1s", "maxCompartments": 5}, map[string]any{"idle": "0"}, map[string]any{"maxCompartments": 0}, map[string]any{"idel": "1s"}, nil, 5}).Draw(t, "defaults")
	case 4:
		doc["budget"] = map[string]any{"total": 1}
	case 5:
		doc["policies"] = rapid.SampledFrom([]any{nil, map[string]any{}, []any{nil}, []any{"a"}}).Draw(t, "list")
	}
	return doc
})

// clone copies a sample, since place may write into it.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := map[string]any{}
		for key, inner := range v {
			c[key] = clone(inner)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = clone(v[i])
		}
		return c
	}
	return v
}
