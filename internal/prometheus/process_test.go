package prometheus_test

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
)

const (
	// patience is how long a test waits for what should come soon.
	patience = 30 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 100 * time.Millisecond
	// leaving is how long a process may take to end when it is asked to.
	leaving = 10 * time.Second
)

// build builds the example server and returns where it is. It is a program of another
// module, which a test cannot import.
func build(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(root, "examples", "server")
	for _, from := range []string{dir, filepath.Join(root, "examples", "internal", "app"), filepath.Join(root, "metrics")} {
		// go test remembers which directories a test has read, not what a compiler did.
		_, err := os.ReadDir(from)
		require.NoError(t, err)
	}
	bin := filepath.Join(t.TempDir(), "server.exe") // the ending is for Windows, and harmless
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
}

func run(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	// These would change what becomes of the metrics.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
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
			_ = p.cmd.Wait()
			close(p.exited)
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the output of %s:\n%s", filepath.Base(bin), p.output.String())
		}
	})
	return p
}

// stop asks the process to end, and makes it end if it does not.
func (p *process) stop() {
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
