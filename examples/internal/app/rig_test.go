package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/internal/program"
	"github.com/watertight-go/watertight/policy"
)

// patience is how long a test waits for what should come soon.
const patience = 20 * time.Second

// start starts a server with the policies in yaml, or with the built-in ones if
// that is empty. It ends with the test, and what is still inside is cut off.
func start(t *testing.T, yaml string, cfg app.Config) *app.App {
	t.Helper()
	return startLogging(t, yaml, cfg, new(program.Buffer))
}

// startLogging does what start does, and the server writes its log to stderr.
func startLogging(t *testing.T, yaml string, cfg app.Config, stderr *program.Buffer) *app.App {
	t.Helper()
	if yaml != "" {
		set, err := policy.Parse("test.yaml", []byte(yaml))
		require.NoError(t, err)
		cfg.Policies = set
	}
	cfg.Stderr = stderr
	a, err := app.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // no time to drain
		_ = a.Shutdown(ctx)
		if t.Failed() {
			t.Logf("the server's log:\n%s", stderr.String())
		}
	})
	return a
}

// http2 returns a transport that speaks nothing but cleartext HTTP/2, on one
// connection.
func http2(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{StrictMaxConcurrentRequests: true},
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// upstream starts a service to put behind the gateway.
func upstream(t *testing.T, h http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// A gate is an upstream whose requests, up to 1000, wait until it is opened.
type gate struct {
	url     string
	arrived chan struct{} // one for each request that came
	left    chan struct{} // one for each whose caller left before the gate opened
	open    func()
}

func newGate(t *testing.T) *gate {
	t.Helper()
	opened := make(chan struct{})
	g := &gate{
		arrived: make(chan struct{}, 1000),
		left:    make(chan struct{}, 1000),
		open:    sync.OnceFunc(func() { close(opened) }),
	}
	g.url = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		g.arrived <- struct{}{}
		select {
		case <-opened:
			fmt.Fprint(w, "through the gate")
		case <-r.Context().Done():
			g.left <- struct{}{}
		}
	})
	t.Cleanup(g.open) // before the service is closed, which waits for requests
	return g
}

// A reply is a response read to its end.
type reply struct {
	*http.Response
	body string
}

// reason returns the reason that a problem document gives, "" if the reply is
// none.
func (r reply) reason() string {
	var p struct{ Reason string }
	if r.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return p.Reason
}

// do sends a request on a connection of its own.
func do(t *testing.T, method, url string) reply {
	t.Helper()
	got := receive(t, later(t, method, url))
	require.NotNil(t, got.Response, "%s %s failed", method, url)
	return got
}

// later does what do does, in another goroutine. If the request fails, the
// reply has no Response.
func later(t *testing.T, method, url string) <-chan reply {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	req.Close = true
	c := make(chan reply, 1)
	go func() { c <- fetch(req) }()
	return c
}

func send(t *testing.T, req *http.Request) reply {
	t.Helper()
	got := fetch(req)
	require.NotNil(t, got.Response, "%s %s failed", req.Method, req.URL)
	return got
}

func fetch(req *http.Request) reply { return fetchBy(http.DefaultTransport, req) }

func fetchBy(rt http.RoundTripper, req *http.Request) reply {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return reply{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}
	}
	return reply{resp, string(body)}
}

// receive waits for a value that should come soon.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// eventually waits for a state that nothing announces.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, time.Millisecond, what)
}

// compartment returns what the server tells about a policy's compartment with
// that key; the zero value if there is none.
func compartment(a *app.App, policy, key string) watertight.CompartmentSnapshot {
	for _, c := range a.Guard().Snapshot().Compartments {
		if c.Policy == policy && c.Key == key {
			return c
		}
	}
	return watertight.CompartmentSnapshot{}
}

func inFlight(a *app.App, policy, key string) int64 { return compartment(a, policy, key).InFlight }

func queued(a *app.App, policy, key string) int {
	if b := compartment(a, policy, key).Bulkhead; b != nil {
		return b.Queued
	}
	return 0
}

// A raw client says exactly what it means.
type raw struct {
	*net.TCPConn
	r *bufio.Reader
}

func dial(t *testing.T, a *app.App) *raw {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(a.URL(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &raw{c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *raw) say(t *testing.T, lines ...string) {
	t.Helper()
	_, err := io.WriteString(c, strings.Join(lines, "\r\n"))
	require.NoError(t, err)
}

// head reads the head of a response, for a request of the given method.
func (c *raw) head(t *testing.T, method string) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	require.NoError(t, err)
	return resp
}
