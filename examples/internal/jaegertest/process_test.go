package jaegertest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	// What the programs are made of. go test would otherwise not know that a
	// result is out of date when one of these changes.
	_ "github.com/watertight-go/watertight/adapters/resty"
	_ "github.com/watertight-go/watertight/examples/internal/app"
)

const (
	// patience is how long a test waits for what should come soon.
	patience = 20 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 20 * time.Millisecond
	// leaving is how long a process may take to end when it is asked to.
	leaving = 10 * time.Second
)

// build builds a program of the examples and returns where it is.
func build(t *testing.T, program string) string {
	t.Helper()
	dir := filepath.Join("..", "..", program)
	// As for the imports above: go test remembers which directories a test has
	// read, but not what a compiler did for it.
	_, err := os.ReadDir(dir)
	require.NoError(t, err)
	bin := filepath.Join(t.TempDir(), program+".exe") // the ending is for Windows, and harmless
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// A process is a program that a test runs. It ends with the test at the latest.
type process struct {
	cmd    *exec.Cmd
	output buffer // stdout and stderr
	exited chan struct{}
	status error // of Wait, once exited is closed
}

// run starts a program, with env added to what the test itself was given.
func run(t *testing.T, env []string, bin string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	// These would change where spans go, and how many.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = endsWithTest()
	p.cmd.WaitDelay = leaving

	started := make(chan error)
	go func() {
		// It is the thread, not this process, with which the other one ends. So
		// the thread stays with this goroutine for as long as the other runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.status = p.cmd.Wait()
			close(p.exited)
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = p.stop()
		if t.Failed() {
			t.Logf("the output of %s:\n%s", filepath.Base(bin), p.output.String())
		}
	})
	return p
}

// wait waits for the process to end by itself, and returns how it did.
func (p *process) wait(t *testing.T, atMost time.Duration) error {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(atMost):
		require.FailNow(t, "the process does not end")
	}
	return p.status
}

// stop asks the process to end, makes it end if it does not, and returns how it
// did.
func (p *process) stop() error {
	select {
	case <-p.exited:
		return p.status
	default:
	}
	patient := leaving
	if p.cmd.Process.Signal(syscall.SIGTERM) != nil {
		patient = 0 // where there is no asking
	}
	select {
	case <-p.exited:
	case <-time.After(patient):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return p.status
}

// says waits until the output matches, and returns the first group of the match.
func (p *process) says(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var m []string
	require.Eventually(t, func() bool {
		m = re.FindStringSubmatch(p.output.String())
		return m != nil
	}, patience, poll, "the output should match %s", pattern)
	return m[1]
}

// A buffer may be written by one goroutine while another reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
