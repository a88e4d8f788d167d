package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call runs the program as a shell would.
func call(input string, args ...string) (status int, out, err string) {
	var o, e bytes.Buffer
	status = run(args, strings.NewReader(input), &o, &e)
	return status, o.String(), e.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"-help"}, {"--help"}, {"help"}, {"check", "-h"}, {"explain", "-h"}, {"explain", "f", "-h", "/"}, {"schema", "--help"}} {
		status, out, err := call("", args...)
		assert.Zero(t, status, args)
		assert.Empty(t, err, args)
		assert.Contains(t, out, "watertight", args)
	}
	_, out, _ := call("", "check", "-h")
	for _, flag := range []string{"-json", "-werror", "-lenient", "-service NAME[:VERSION]"} {
		assert.Contains(t, out, flag)
	}
}

func TestMisuse(t *testing.T) {
	file := write(t, "p.yaml", "version: 1\npolicies: []\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "check FILE..."},
		{[]string{"chek"}, `watertight: there is no command "chek"; there are check, explain and schema`},
		{[]string{"check"}, "watertight: check needs a file; - is standard input"},
		{[]string{"check", "-jason", file}, "flag provided but not defined: -jason"},
		{[]string{"check", file + "x"}, "no such file"},
		{[]string{"explain", file}, "watertight: explain needs a file and a path"},
		{[]string{"explain", file, "/a", "/b"}, "watertight: explain needs a file and a path"},
		{[]string{"explain", file, "a"}, `watertight: "a" is no path; it must start with /, or be a URL`},
		{[]string{"explain", file, "/%zz"}, `watertight: "/%zz" is no path: invalid URL escape "%zz"`},
		{[]string{"explain", file, "-side", "both", "/a"}, `watertight: -side is "both"; it must be server or client`},
		{[]string{"explain", file, "-side", "client", "-route", "/a", "/a"}, "watertight: a client has no routes"},
		{[]string{"explain", file, "-X", "GE T", "/a"}, `watertight: -X is "GE T", which is not a method; write one such as GET`},
		{[]string{"explain", file, "-X", "", "/a"}, `watertight: -X is "", which is not a method; write one such as GET`},
		{[]string{"explain", file, "-H", "a", "/a"}, "it must be NAME: VALUE"},
		{[]string{"explain", file + "x", "/a"}, "no such file"},
		{[]string{"schema", "x"}, "watertight: schema takes no arguments"},
	} {
		status, out, err := call("", tt.args...)
		assert.Equal(t, exitUsage, status, tt.args)
		assert.Empty(t, out, tt.args)
		assert.Contains(t, err, tt.want, tt.args)
	}
}

// What has no end is refused, and not read for ever.
func TestInputWithoutEnd(t *testing.T) {
	var out, err bytes.Buffer
	assert.Equal(t, exitFaulty, run([]string{"check", "-"}, endless{}, &out, &err))
	assert.Equal(t, "<stdin>:1:1: a policy file may have at most 4194304 bytes\n", out.String())
	assert.Empty(t, err.String())
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

const faulty = `version: 1
policies:
  - {name: a, bulkhead: {maxConcurrent: 0, maxQueue: 5}}
`

func TestCheck(t *testing.T) {
	fine := write(t, "fine.yaml", "version: 1\npolicies: [{name: a, exempt: true}]\n")
	warned := write(t, "warned.yaml", "version: 1\npolicies: []\n")
	bad := write(t, "bad.yaml", faulty)
	broken := write(t, "broken.yaml", "version: [\n")

	status, out, err := call("", "check", fine)
	assert.Zero(t, status)
	assert.Empty(t, out+err)

	status, out, _ = call("", "check", warned)
	assert.Zero(t, status)
	assert.Equal(t, warned+":2:11: warning: policies is empty: nothing is limited\n", out)
	status, _, _ = call("", "check", warned, "-werror")
	assert.Equal(t, exitFaulty, status)

	status, out, _ = call("", "check", bad, fine, warned, broken)
	assert.Equal(t, exitFaulty, status)
	assert.Equal(t, []string{
		bad + `:3:41: policy "a": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000`,
		bad + `:3:54: warning: policy "a": bulkhead.maxQueue has no effect without maxWait, since nobody waits; say how long`,
		warned + ":2:11: warning: policies is empty: nothing is limited",
		broken + ":1:10: the file is not valid YAML: did not find expected node content",
		"",
	}, strings.Split(out, "\n"))

	status, out, _ = call(faulty, "check", "-")
	assert.Equal(t, exitFaulty, status)
	assert.Contains(t, out, "<stdin>:3:41: ")

	status, out, err = call("", "check", bad, fine+"x")
	assert.Equal(t, exitUsage, status, "a file that cannot be read is worse than one that is wrong")
	assert.Contains(t, out, ":3:41: ")
	assert.Contains(t, err, "no such file")
}

func TestCheckJSON(t *testing.T) {
	bad := write(t, "bad.yaml", faulty)
	status, out, _ := call("", "check", "-json", bad)
	assert.Equal(t, exitFaulty, status)
	assert.JSONEq(t, `[
		{"file": "`+bad+`", "line": 3, "column": 41, "severity": "error", "message": "policy \"a\": bulkhead.maxConcurrent is 0; it must be 1 to 1000000000"},
		{"file": "`+bad+`", "line": 3, "column": 54, "severity": "warning", "message": "policy \"a\": bulkhead.maxQueue has no effect without maxWait, since nobody waits; say how long"}
	]`, out)
	status, out, _ = call("version: 1\npolicies: [{name: a, exempt: true}]\n", "check", "-json", "-")
	assert.Zero(t, status)
	assert.JSONEq(t, `[]`, out)
}

const comb = `servicecomb:
  matchGroup:
    cart: |
      matches:
        - apiPath:
            prefix: /v1/
  bulkhead:
    cart: |
      services: shop-api:1.2.0
      maxConcurrentCalls: 7
  circuitBreaker:
    cart: |
      slidingWindowType: count
`

func TestServiceCombFiles(t *testing.T) {
	status, out, _ := call(comb, "check", "-service", "shop-api:1.2.0", "-")
	assert.Equal(t, exitFaulty, status)
	assert.Equal(t, `<stdin>:13:26: circuitBreaker "cart": slidingWindowType is count, which ServiceComb takes for TIME_BASED; write COUNT_BASED`+"\n", out)
	status, out, _ = call(comb, "check", "-", "-lenient", "-service", "shop-api:1.2.0")
	assert.Zero(t, status)
	assert.Contains(t, out, "<stdin>:13:26: warning: ")

	status, out, _ = call(comb, "explain", "-lenient", "-service", "shop-api:1.2.0", "-json", "-", "/v1/cart")
	assert.Zero(t, status)
	var got map[string]*part
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, "cart", got["bulkhead"].Policy)
	assert.Equal(t, "", got["bulkhead"].Key)
	assert.Equal(t, map[string]any{"maxConcurrent": 7.0, "maxQueue": 0.0, "maxWait": "0s"}, got["bulkhead"].Settings)
	assert.Equal(t, "cart", got["breaker"].Policy)
	status, out, _ = call(comb, "explain", "-lenient", "-service", "shop-api:1.3.0", "-json", "-", "/v1/cart")
	assert.Zero(t, status)
	assert.Contains(t, out, `"bulkhead": null`)
}
