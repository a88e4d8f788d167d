package conformance_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
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

// A suite is the copy of a foreign module, in a workspace of its own with the
// module of Watertight.
type suite struct {
	dir     string // of the copy
	env     []string
	program string // the go command; empty: whichever is first in PATH
}

// checkout copies a module from the module cache.
func checkout(t *testing.T, module string) *suite {
	t.Helper()
	from := output(t, "", nil, "go", "list", "-m", "-f", "{{.Dir}}", module)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	tmp := t.TempDir()
	s := &suite{dir: filepath.Join(tmp, "module")}
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(from)))
	// The cache is read-only, and so is the copy of it.
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	}))
	work := filepath.Join(tmp, "go.work")
	require.NoError(t, os.WriteFile(work, []byte("go 1.26.0\n\nuse (\n\t./module\n\t"+root+"\n)\n"), 0o644))
	sums, err := os.ReadFile(filepath.Join(root, "go.work.sum"))
	require.NoError(t, err)
	own, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "go.work.sum"), append(sums, own...), 0o644))
	s.env = append(os.Environ(), "GOWORK="+work, "GOFLAGS=-buildvcs=false")
	return s
}

// add writes a file of ours into the copy.
func (s *suite) add(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// patch replaces text that has to be there, once.
func (s *suite) patch(t *testing.T, name, old, with string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), old), "in %s:\n%s", name, old)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, with, 1)), 0o644))
}

// countLeft is what the tests' packages share: how many calls are left in a Guard when the
// garbage collector has found the bodies that nobody closed.
const countLeft = `
func left(wt *watertight.Guard) (n int64) {
	for range 1000 {
		n = 0
		for _, c := range wt.Snapshot().Compartments {
			n += c.InFlight
		}
		if n == 0 {
			break
		}
		runtime.GC()
	}
	return n
}
`

// results are how each test ended, "pass", "fail" or "skip", by package and name.
type results map[string]string

// run runs the tests of some packages, and returns also what each of them said.
func (s *suite) run(t *testing.T, packages ...string) (results, map[string]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cmp.Or(s.program, "go"), append([]string{"test", "-json", "-count=1", "-timeout=5m"}, packages...)...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run() // fails if a test does
	ended, said := make(results), make(map[string]string)
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var e struct{ Action, Package, Test, Output string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e), lines.Text())
		name := e.Package
		if e.Test != "" {
			name += "." + e.Test
		}
		switch e.Action {
		case "pass", "fail", "skip":
			ended[name] = e.Action
		case "output", "build-output":
			said[name] += e.Output
		}
	}
	require.NotEmpty(t, ended, "%v\n%s", err, problems.String())
	return ended, said
}

// differences returns a line for each test that ends otherwise with us than without,
// unless that is explained; explained differences must be there.
func differences(without, with results, said, explained map[string]string) (found []string) {
	tests := slices.Collect(maps.Keys(without))
	for name := range with {
		tests = append(tests, name)
	}
	for name := range explained {
		tests = append(tests, name)
	}
	slices.Sort(tests)
	for _, name := range slices.Compact(tests) {
		want, got := cmp.Or(without[name], "nothing"), cmp.Or(with[name], "nothing")
		why, ok := explained[name]
		switch {
		case ok && want == got:
			found = append(found, name+" is no difference any more: "+why)
		case !ok && want != got:
			found = append(found, name+": "+want+" without us, "+got+" with us:\n"+said[name])
		}
	}
	return found
}

func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, problems.String())
	return strings.TrimSpace(string(out))
}

// Differences and results that are missing are found: a comparison that cannot fail
// would prove nothing.
func TestCompareFindsDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		without, with results
		explained     map[string]string
		fails         bool
	}{
		"the same":                    {results{"a": "pass", "b": "fail"}, results{"a": "pass", "b": "fail"}, nil, false},
		"one fails":                   {results{"a": "pass"}, results{"a": "fail"}, nil, true},
		"one passes":                  {results{"a": "fail"}, results{"a": "pass"}, nil, true},
		"one is missing":              {results{"a": "pass"}, results{}, nil, true},
		"one too many":                {results{}, results{"a": "pass"}, nil, true},
		"explained":                   {results{"a": "pass"}, results{"a": "fail"}, map[string]string{"a": "why"}, false},
		"explained, and not so":       {results{"a": "pass"}, results{"a": "pass"}, map[string]string{"a": "why"}, true},
		"explained, and no such test": {results{}, results{}, map[string]string{"a": "why"}, true},
	} {
		assert.Equal(t, test.fails, len(differences(test.without, test.with, nil, test.explained)) > 0, name)
	}
}
