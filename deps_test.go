package watertight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/watertight-go/watertight"

// Import paths in the two tables below: "." is the package at the root of this
// module, "./x" its package x, anything else stands as it is imported. A
// pattern that ends in "/..." means the path before it and all below it.

// layers has one entry for every package of the module. It says all that the
// package itself may import beside the standard library; tests are exempt.
var layers = []struct {
	pkg     string
	may     []string
	because string
}{
	{"./bulkhead", nil,
		"a primitive: usable in any program, with nothing but the standard library behind it"},
	{"./breaker", nil,
		"a primitive: usable in any program, with nothing but the standard library behind it"},
	{"./policy", []string{"go.yaml.in/yaml/v3"},
		"says which limits apply and enforces none, so that a policy file can be checked where nothing runs"},
	{".", []string{"./bulkhead", "./breaker", "./policy", "./internal/flood"},
		"joins the primitives to the policies; the two sides of the wire and all telemetry stand on it, never under it"},
	{"./middleware", []string{".", "./policy"},
		"the server side: net/http and the Guard, no router and no client"},
	{"./transport", []string{".", "./policy", "./breaker"},
		"the client side: net/http and the Guard, no client library and no server; a classifier answers with the breaker's outcomes"},
	{"./metrics", []string{".", "./breaker", "./policy", "./internal/flood", "go.opentelemetry.io/otel/..."},
		"turns the Guard's hooks into telemetry and takes no part in a decision"},
	{"./dashboard", []string{"."},
		"shows what a snapshot says, with nothing but net/http: it must work when all else fails"},
	{"./adapters/chi", []string{".", "./middleware", "github.com/go-chi/chi/v5"},
		"teaches the server side one router"},
	{"./cmd/watertight", []string{"./policy"},
		"checks and explains policy files where nothing runs, with the standard flag package: a library for commands would be every user's dependency"},
	{"./internal/flood", nil,
		"counts records, and knows of none what it says"},
	{"./internal/program", nil,
		"runs programs for the tests of nested modules, which can import nothing else of each other"},
	{"./internal/linear", nil,
		"checks histories for the tests of the primitives, and is nothing but a search"},
	{"./adapters/resty", []string{".", "./transport", "github.com/go-resty/resty/v2"},
		"teaches the client side one client library"},
}

// bans are imports that must not come about, however many packages lie between,
// those of the standard library and of other modules included.
var bans = []struct {
	from    []string
	to      string
	because string
}{
	{[]string{"./bulkhead", "./breaker"}, "net/http",
		"permits and breakers guard any call, and net/http is a large thing to link for it"},
	{[]string{"./bulkhead"}, "./breaker",
		"either primitive must be of use without the other"},
	{[]string{"./breaker"}, "./bulkhead",
		"either primitive must be of use without the other"},
	{[]string{"./middleware"}, "./transport",
		"the two sides share no compartment and no code but the Guard's"},
	{[]string{"./transport"}, "./middleware",
		"the two sides share no compartment and no code but the Guard's"},
	{[]string{"./..."}, "./metrics",
		"telemetry is the program's choice: whoever wants it passes it in as hooks"},
	{[]string{".", "./bulkhead", "./breaker", "./policy", "./middleware", "./transport", "./adapters/..."}, "go.opentelemetry.io/...",
		"only programs that import metrics link OpenTelemetry"},
	{[]string{"./..."}, "go.opentelemetry.io/otel/sdk/...",
		"a library speaks the API; which SDK receives it is the program's choice"},
	{[]string{"./..."}, "go.opentelemetry.io/otel/exporters/...",
		"where telemetry goes is the program's choice"},
	{[]string{"./..."}, "testing/...",
		"a program must not link the testing package, nor get its flags"},
	{[]string{"./..."}, "net/http/httptest",
		"it is for tests"},
	{[]string{"./..."}, "github.com/stretchr/testify/...",
		"it is for tests"},
	{[]string{"./..."}, "pgregory.net/rapid/...",
		"it is for tests"},
	{[]string{"./..."}, "./internal/linear",
		"it is for tests"},
	{[]string{"./..."}, "./internal/program",
		"it is for tests"},
	{[]string{"./..."}, "./examples/...",
		"examples show the library and are no part of it"},
}

func TestDependencyDirection(t *testing.T) {
	for _, v := range violations(listPackages(t)) {
		t.Error(v)
	}
}

// TestDependencyRulesBite breaks each rule once in a made-up module.
func TestDependencyRulesBite(t *testing.T) {
	require.Empty(t, violations(lawful()))

	for _, l := range layers {
		t.Run("stray import of "+l.pkg, func(t *testing.T) {
			g := lawful()
			g.add(l.pkg, "example.com/stray")
			assert.Equal(t, []string{l.pkg + " imports example.com/stray: " + l.because}, violations(g))
		})
		t.Run("missing "+l.pkg, func(t *testing.T) {
			g := lawful()
			delete(g, full(l.pkg))
			assert.Equal(t, []string{l.pkg + " does not exist, so its rules hold nothing"}, violations(g))
		})
	}
	for _, b := range bans {
		for _, l := range layers {
			if !matchesAny(b.from, full(l.pkg)) || matches(b.to, full(l.pkg)) {
				continue
			}
			t.Run(l.pkg+" to "+b.to, func(t *testing.T) {
				g := lawful()
				g.add(l.pkg, "bridge") // in the standard library, so no layer forbids it
				g["bridge"] = node{standard: true}
				g.add("bridge", strings.TrimSuffix(b.to, "/..."))
				want := l.pkg + " -> bridge -> " + strings.TrimSuffix(b.to, "/...") + ": " + b.because
				assert.Contains(t, violations(g), want)
			})
		}
	}
	t.Run("package without a layer", func(t *testing.T) {
		g := lawful()
		g.add("./internal/clock")
		assert.Equal(t, []string{"./internal/clock has no rule: add it to layers in deps_test.go"}, violations(g))
	})
}

// A graph holds packages by import path.
type graph map[string]node

type node struct {
	imports  []string
	standard bool
}

// add makes pkg, which it creates where needed, import others as well.
func (g graph) add(pkg string, imports ...string) {
	n := g[full(pkg)]
	for _, path := range imports {
		n.imports = append(slices.Clip(n.imports), full(path))
	}
	g[full(pkg)] = n
}

// lawful returns a graph in which every package imports all that it may.
func lawful() graph {
	g := graph{}
	for _, l := range layers {
		g.add(l.pkg)
		for _, path := range l.may {
			g.add(l.pkg, strings.TrimSuffix(path, "/..."))
		}
	}
	return g
}

// listPackages asks the go command for the packages of this module and for all
// that they depend on, tests left out.
func listPackages(t *testing.T) graph {
	t.Helper()
	openDirectories(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	require.NoError(t, err)

	g := graph{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g
		}
		require.NoError(t, err)
		g[p.ImportPath] = node{p.Imports, p.Standard}
	}
}

// openDirectories makes go test rerun this package's tests when a file of the
// module has changed: it repeats an earlier result unless what the test itself
// has opened is different, and does not see what the go command reads.
func openDirectories(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	require.NoError(t, err)
}

// violations returns a sentence for each breach of layers and bans.
func violations(g graph) []string {
	var found []string
	for _, l := range layers {
		if _, ok := g[full(l.pkg)]; !ok {
			found = append(found, l.pkg+" does not exist, so its rules hold nothing")
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(g)) {
		if !matches("./...", pkg) {
			continue
		}
		found = append(found, strays(g, pkg)...)
		for _, b := range bans {
			if !matchesAny(b.from, pkg) {
				continue
			}
			if chain := g.chain(pkg, b.to); chain != nil {
				found = append(found, strings.Join(chain, " -> ")+": "+b.because)
			}
		}
	}
	return found
}

// strays returns a sentence for each import that the layer of pkg does not
// allow.
func strays(g graph, pkg string) []string {
	for _, l := range layers {
		if full(l.pkg) != pkg {
			continue
		}
		var found []string
		for _, path := range g[pkg].imports {
			if !g[path].standard && !matchesAny(l.may, path) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", l.pkg, short(path), l.because))
			}
		}
		return found
	}
	return []string{short(pkg) + " has no rule: add it to layers in deps_test.go"}
}

// chain returns the shortest way from pkg to a package that matches the
// pattern, or nil if there is none.
func (g graph) chain(pkg, pattern string) []string {
	cameFrom := map[string]string{pkg: ""}
	for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
		for _, path := range g[queue[0]].imports {
			if _, seen := cameFrom[path]; seen {
				continue
			}
			cameFrom[path] = queue[0]
			if !matches(pattern, path) {
				queue = append(queue, path)
				continue
			}
			var chain []string
			for ; path != ""; path = cameFrom[path] {
				chain = append(chain, short(path))
			}
			slices.Reverse(chain)
			return chain
		}
	}
	return nil
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, path) })
}

// matches reports whether the pattern means the package with this full path.
func matches(pattern, path string) bool {
	above, all := strings.CutSuffix(full(pattern), "/...")
	return path == above || all && strings.HasPrefix(path, above+"/")
}

// full writes out a path of the tables; short is the way back.
func full(path string) string {
	if path == "." {
		return module
	}
	if rest, ok := strings.CutPrefix(path, "./"); ok {
		return module + "/" + rest
	}
	return path
}

func short(path string) string {
	if path == module {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "./" + rest
	}
	return path
}
