package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

// patience is how long a test waits for what should come soon.
const patience = 30 * time.Second

// The test binary is the server if this is set, so that signals and exit
// statuses are those of a process.
const beServer = "WATERTIGHT_TEST_BE_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(beServer) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A process is a server that runs.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr program.Buffer
	stdout program.Buffer
	exited chan struct{} // closed when cmd can be asked how it ended
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beServer+"=1")
	return cmd
}

// start starts a server on a free port, and returns when it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: command(append([]string{"-addr", "127.0.0.1:0", "-admin", ""}, args...)...), exited: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	first := make(chan string, 1)
	go func() {
		defer close(p.exited)
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n')
		first <- line
		_, _ = io.Copy(&p.stdout, r)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("stderr of the server:\n%s", p.stderr.String())
		}
	})
	select {
	case line := <-first:
		m := regexp.MustCompile(`^listening on (http://127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(line)
		require.NotNil(t, m, "the first line is %q", line)
		p.url = m[1]
	case <-time.After(patience):
		require.FailNow(t, "the server does not say that it listens")
	}
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// exit waits for the end and returns the exit status.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.FailNow(t, "the server does not end")
		panic("unreachable")
	}
}

func (p *process) eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

// get returns the status and the body; 0 if there was no answer.
func (p *process) get(path string) (int, string) {
	resp, err := http.Get(p.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// hold sends a request for a long delay and returns when it is inside.
func (p *process) hold(t *testing.T, ms int) <-chan int {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		got, _ := p.get(fmt.Sprint("/delay/", ms))
		status <- got
	}()
	p.eventually(t, func() bool {
		_, body := p.get("/debug/watertight.json")
		return strings.Contains(body, `"inFlight": 1`)
	}, "the call should be inside")
	return status
}

func TestSignalsEndIt(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(s.String(), func(t *testing.T) {
			p := start(t)
			status, body := p.get("/healthz")
			assert.Equal(t, http.StatusOK, status, body)
			p.signal(t, s)
			assert.Equal(t, 0, p.exit(t))
			assert.Empty(t, p.stdout.String(), "more than one line on stdout")
		})
	}
}

func TestCallInsideIsServedToItsEnd(t *testing.T) {
	p := start(t)
	inside := p.hold(t, 1000)
	p.signal(t, syscall.SIGTERM)
	p.eventually(t, func() bool { status, _ := p.get("/readyz"); return status == http.StatusServiceUnavailable }, "it should drain")
	status, _ := p.get("/healthz")
	assert.Equal(t, http.StatusOK, status)
	status, body := p.get("/status/200")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, `"reason":"draining"`)
	assert.Equal(t, http.StatusOK, <-inside)
	assert.Equal(t, 0, p.exit(t))
}

func TestCutOff(t *testing.T) {
	p := start(t, "-drain", "10ms")
	inside := p.hold(t, 600_000)
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 1, p.exit(t))
	assert.Contains(t, p.stderr.String(), "cut off")
	assert.NotEqual(t, http.StatusOK, <-inside)
}

func TestSecondSignalEndsItAtOnce(t *testing.T) {
	p := start(t, "-drain", "1h")
	inside := p.hold(t, 600_000)
	p.signal(t, syscall.SIGTERM)
	p.eventually(t, func() bool { status, _ := p.get("/readyz"); return status == http.StatusServiceUnavailable }, "it should drain")
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 1, p.exit(t))
	assert.NotEqual(t, http.StatusOK, <-inside)
}

// failure runs a server that should not start.
func failure(t *testing.T, dir string, args ...string) (status int, stderr string) {
	t.Helper()
	cmd := command(args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
	assert.Empty(t, out.String(), "stdout")
	return cmd.ProcessState.ExitCode(), errs.String()
}

func TestBadPolicyFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o700))
	bad := strings.Join([]string{
		"version: 1",                      // 1
		"policies:",                       // 2
		"  - name: a",                     // 3
		"    side: both",                  // 4
		"    bulkhead:",                   // 5
		"      maxConcurrent: -5",         // 6: a bad value, at the value
		"      maxWaits: 1s",              // 7: an unknown key, at the key
		"  - name: a",                     // 8: the name again
		"    breaker: {failureRate: 101}", // 9
		"    breaker: {}",                 // 10: the key again, at the key
	}, "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etc", "bad.yaml"), []byte(bad), 0o600))

	status, stderr := failure(t, dir, "-addr", "127.0.0.1:0", "-policy", "./etc/bad.yaml")
	assert.Equal(t, 1, status)
	var at []string
	for line := range strings.Lines(stderr) {
		m := regexp.MustCompile(`^(\./etc/bad\.yaml:\d+:\d+): \S`).FindStringSubmatch(line)
		if assert.NotNil(t, m, line) {
			at = append(at, m[1])
		}
	}
	assert.Subset(t, at, []string{
		"./etc/bad.yaml:6:22", "./etc/bad.yaml:7:7", "./etc/bad.yaml:8:11", "./etc/bad.yaml:9:28", "./etc/bad.yaml:10:5",
	})
}

func TestCannotStart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	for _, args := range [][]string{
		{"-admin", "", "-addr", ln.Addr().String()},
		{"-admin", "", "-addr", "nonsense"},
		{"-addr", "127.0.0.1:0", "-admin", ln.Addr().String()},
		{"-addr", "127.0.0.1:0", "-admin", "nonsense"},
		{"-addr", "127.0.0.1:0", "-policy", filepath.Join(t.TempDir(), "missing.yaml")},
		{"-addr", "127.0.0.1:0", "-policy", t.TempDir()},
	} {
		status, stderr := failure(t, "", args...)
		assert.Equal(t, 1, status, "%v", args)
		assert.NotEmpty(t, stderr, "%v", args)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"-upstream", "x"},
		{"-upstream", "x=ftp://host"},
		{"-upstream", "a/b=http://host"},
		{"-upstream", "a=http://one", "-upstream", "a=http://two"},
		{"-otlp", "127.0.0.1:4318"},
		{"-drain", "soon"},
		{"-drain", "-1s"},
		{"-no-such-flag"},
		{"argument"},
	} {
		status, stderr := failure(t, "", append([]string{"-addr", "127.0.0.1:0"}, args...)...)
		assert.Equal(t, 2, status, "%v", args)
		assert.Contains(t, stderr, "-upstream NAME=URL", "%v", args)
	}
	status, stderr := failure(t, "", "-h")
	assert.Equal(t, 0, status)
	assert.Contains(t, stderr, "127.0.0.1:8080")
}

// The listener for operators is there as soon as the server says so, and as long as it
// drains.
func TestAdmin(t *testing.T) {
	p := start(t, "-admin", "127.0.0.1:0")
	var url string
	p.eventually(t, func() bool {
		m := regexp.MustCompile(`^for operators: (http://127\.0\.0\.1:\d+/)\n$`).FindStringSubmatch(p.stdout.String())
		if m != nil {
			url = m[1]
		}
		return m != nil
	}, "the server should say where operators look")
	inside := p.hold(t, 1000)
	p.signal(t, syscall.SIGTERM)
	p.eventually(t, func() bool { status, _ := p.get("/readyz"); return status == http.StatusServiceUnavailable }, "it should drain")
	resp, err := http.Get(url + "metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `watertight_bulkhead_limit`)
	assert.Equal(t, http.StatusOK, <-inside)
	assert.Equal(t, 0, p.exit(t))
}

func TestFlagsReachTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\npolicies:\n  - name: my-policy\n    bulkhead: {maxConcurrent: 7}\n"), 0o600))
	other := start(t)
	// Nobody listens on port 1: a collector that is away changes nothing.
	p := start(t, "-policy", file, "-otlp", "http://127.0.0.1:1",
		"-upstream", "one="+other.url, "-upstream", "two="+other.url)
	for _, name := range []string{"one", "two"} {
		status, body := p.get("/upstream/" + name + "/status/202")
		assert.Equal(t, http.StatusAccepted, status, body)
	}
	_, body := p.get("/debug/watertight.json")
	assert.Contains(t, body, `"policy": "my-policy"`)
	assert.Contains(t, body, `"limit": 7`)
	status, _ := p.get("/debug/traces")
	assert.Equal(t, http.StatusNotFound, status)
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 0, p.exit(t))
	assert.Contains(t, p.stderr.String(), "the collector cannot be reached")
}
