// Package program runs programs for tests, and sees that none outlives its test.
package program

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
	"time"
)

// A T is what is needed here of a *testing.T. No package of this module but tests links
// package testing.
type T interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

const (
	// patience is how long a test waits for what should come soon.
	patience = 30 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 20 * time.Millisecond
	// leaving is how long a program may take to end when it is asked to.
	leaving = 10 * time.Second
)

// Build builds the program in a directory, and returns where it is. go test remembers
// which directories a test has read, but not what a compiler did for it: sources names
// others that the program is made of and the test does not import.
func Build(t T, dir string, sources ...string) string {
	t.Helper()
	for _, from := range append([]string{dir}, sources...) {
		if _, err := os.ReadDir(from); err != nil {
			t.Fatalf("the sources of %s: %v", dir, err)
		}
	}
	bin := filepath.Join(t.TempDir(), filepath.Base(dir)+".exe") // the ending is for Windows, and harmless
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", dir, err, out)
	}
	return bin
}

// A Program is one that a test runs. It ends with the test at the latest. The methods
// are for concurrent use.
type Program struct {
	cmd    *exec.Cmd
	output Buffer
	exited chan struct{}
	status error // of Wait, once exited is closed
}

// Start starts a program, with env added to what the test itself was given; without
// what would change where telemetry goes, and how much of it.
func Start(t T, env []string, bin string, args ...string) *Program {
	t.Helper()
	p := &Program{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
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
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", bin, err)
	}
	t.Cleanup(func() {
		_ = p.Stop() // the test has said what it thinks of how it ends, if it cares
		if t.Failed() {
			t.Logf("the output of %s:\n%s", filepath.Base(bin), p.Output())
		}
	})
	return p
}

// Output returns what the program has written so far, to stdout and to stderr.
func (p *Program) Output() string { return p.output.String() }

// Exited is closed when the program has ended; then Status is how.
func (p *Program) Exited() <-chan struct{} { return p.exited }

// Status returns how the program ended, as [exec.Cmd.Wait] has it. It waits for that.
func (p *Program) Status() error {
	<-p.exited
	return p.status
}

// Wait waits for the program to end by itself, and returns how it did.
func (p *Program) Wait(t T, atMost time.Duration) error {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(atMost):
		t.Fatalf("the program does not end within %s", atMost)
	}
	return p.status
}

// Stop asks the program to end, makes it end if it does not, and returns how it did.
func (p *Program) Stop() error {
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
		_ = p.cmd.Process.Kill() // it fails only if the program has ended
		<-p.exited
	}
	return p.status
}

// Says waits until the output matches, and returns the first group of the match.
func (p *Program) Says(t T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for begun := time.Now(); ; {
		if m := re.FindStringSubmatch(p.Output()); m != nil {
			return m[1]
		}
		if time.Since(begun) > patience {
			t.Fatalf("the output does not match %s within %s:\n%s", pattern, patience, p.Output())
		}
		time.Sleep(poll)
	}
}

// A Buffer keeps what is written. It may be written by one goroutine while another reads
// it, and the zero Buffer is empty.
type Buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
