package transport_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// base is a RoundTripper of a test's own.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is what a well-behaved base returns. A nil body is an empty one.
func answer(r *http.Request, status int, body io.ReadCloser) *http.Response {
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: body, ContentLength: -1, Request: r,
	}
	if body == nil {
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp
}

// always answers every call with that status and an empty body.
func always(status int) base {
	return func(r *http.Request) (*http.Response, error) { return answer(r, status, nil), nil }
}

// streaming answers every call with 200 and a body that somebody has to end.
func streaming(r *http.Request) (*http.Response, error) {
	return answer(r, 200, &chunks{left: 3, end: io.EOF}), nil
}

// counted counts the calls that reach b.
func counted(n *atomic.Int64, b base) base {
	return func(r *http.Request) (*http.Response, error) {
		n.Add(1)
		return b(r)
	}
}

// chunks is a body of so many reads of one byte, and then an error. After
// Close it has only errClosed.
type chunks struct {
	mu       sync.Mutex // guards the fields below
	left     int
	end      error
	closeErr error
	reads    int
	closes   int
}

var errClosed = errors.New("read on a closed body")

func (c *chunks) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.closes > 0 {
		return 0, errClosed
	}
	if c.left == 0 {
		return 0, c.end
	}
	c.left--
	p[0] = 'x'
	return 1, nil
}

func (c *chunks) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closes++
	return c.closeErr
}

func (c *chunks) counts() (reads, closes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.closes
}

// guard makes a Guard from native YAML.
func guard(t testing.TB, yaml string, opts ...watertight.Option) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte("version: 1\npolicies:\n"+yaml))
	require.NoError(t, err)
	return watertight.New(set, opts...)
}

// get makes a request for a host; its context is the test's.
func get(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return r
}

func post(t testing.TB, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	require.NoError(t, err)
	return r
}

// open sends a request that must be admitted, and returns what the caller gets.
func open(t testing.TB, rt http.RoundTripper, r *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	require.NoError(t, err)
	return resp
}

// only returns the one compartment that the Guard has.
func only(t testing.TB, g *watertight.Guard) watertight.CompartmentSnapshot {
	t.Helper()
	all := g.Snapshot().Compartments
	require.Len(t, all, 1)
	return all[0]
}

func inFlight(t testing.TB, g *watertight.Guard) int {
	t.Helper()
	return only(t, g).Bulkhead.InFlight
}

// capacity returns how many calls to http://up/ can be inside at once, beyond
// those that are. It asks the Guard itself, so no base is bothered.
func capacity(t testing.TB, g *watertight.Guard) int {
	t.Helper()
	var calls []watertight.Call
	for {
		c, err := g.Admit(t.Context(), &policy.Request{
			Side: policy.Client, Method: "GET", Scheme: "http", Host: "up", EscapedPath: "/",
		})
		if err != nil {
			break
		}
		calls = append(calls, c)
	}
	for i := range calls {
		calls[i].Release()
	}
	return len(calls)
}

// keys lists the keys of the Guard's compartments.
func keys(g *watertight.Guard) []string {
	var ks []string
	for _, c := range g.Snapshot().Compartments {
		ks = append(ks, c.Key)
	}
	return ks
}

func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
