package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/internal/program"
)

// What stands behind the prefix arrives as it was sent, byte for byte.
func TestPathAndQueryArriveAsSent(t *testing.T) {
	echo := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	a := start(t, roomy, app.Config{Upstreams: map[string]string{
		"root": echo, "slash": echo + "/", "base": echo + "/b%2Fase", "base-slash": echo + "/base/",
	}})
	for _, tt := range []struct{ sent, want string }{
		{"/upstream/root/", "/"},
		{"/upstream/root", "/"},
		{"/upstream/root?q", "/?q"},
		{"/upstream/root/a/b", "/a/b"},
		{"/upstream/root/a%2Fb", "/a%2Fb"},
		{"/upstream/root/a%2fb", "/a%2fb"},
		{"/upstream/root/%61", "/%61"},
		{"/upstream/root/a%20b", "/a%20b"},
		{"/upstream/root/a+b;c=d,e:f@g!$&'()*=", "/a+b;c=d,e:f@g!$&'()*="},
		{"/upstream/root/%25", "/%25"},
		{"/upstream/root/%2525", "/%2525"},
		{"/upstream/root//a//b//", "//a//b//"},
		{"/upstream/root/a/../b/./c", "/a/../b/./c"},
		{"/upstream/root/%2e%2e/a", "/%2e%2e/a"},
		{"/upstream/root/upstream/root/x", "/upstream/root/x"},
		{"/upstream/root/a|b", "/a%7Cb"},
		{"/upstream/root/a|b%2Fc", "/a%7Cb%2Fc"},
		{"/upstream/root/\xc3\xa4%2f\"", "/%C3%A4%2f%22"},
		{"/upstream/root/[a]", "/[a]"},
		{"/upstream/root/x?a=1&b=2", "/x?a=1&b=2"},
		{"/upstream/root/x?a=1;b=2", "/x?a=1;b=2"},
		{"/upstream/root/x?%zz&&=&a", "/x?%zz&&=&a"},
		{"/upstream/root/x?", "/x?"},
		{"/upstream/root/x?a?b", "/x?a?b"},
		{"/upstream/%72oot/x", "/x"},
		{"/upstream/%72oot/a%2Fb", "/a%2Fb"},
		{"http://elsewhere/upstream/root/x?y", "/x?y"},
		{"/upstream/slash/", "/"},
		{"/upstream/slash/a%2Fb", "/a%2Fb"},
		{"/upstream/base", "/b%2Fase/"},
		{"/upstream/base/", "/b%2Fase/"},
		{"/upstream/base/a%2Fb", "/b%2Fase/a%2Fb"},
		{"/upstream/base-slash/a", "/base/a"},
	} {
		c := dial(t, a)
		c.say(t, "GET "+tt.sent+" HTTP/1.1", "Host: gateway.example", "Connection: close", "", "")
		resp := c.head(t, "GET")
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err, tt.sent)
		assert.Equal(t, tt.want, string(body), tt.sent)
	}
}

// The rest of the request, and all of the response.
func TestRequestAndResponsePassThrough(t *testing.T) {
	type seen struct {
		Method, Host, Body string
		Header             http.Header
	}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.Header().Set("X-From-Upstream", "yes")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		if r.Method != http.MethodHead {
			assert.NoError(t, json.NewEncoder(w).Encode(seen{r.Method, r.Host, string(body), r.Header}))
		}
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"up": up}})
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL"} {
		t.Run(method, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), method, a.URL()+"/upstream/up/x", strings.NewReader("the body"))
			require.NoError(t, err)
			req.Header.Set("X-Custom", "1")
			req.Header.Add("X-Custom", "2")
			req.Header.Set("X-Forwarded-For", "192.0.2.1")
			req.Header.Set("Forwarded", "for=192.0.2.1")
			req.Header.Set("Accept-Encoding", "gzip")
			req.Header.Set("Connection", "X-Hop")
			req.Header.Set("X-Hop", "gone")
			got := send(t, req)
			assert.Equal(t, http.StatusTeapot, got.StatusCode)
			assert.Equal(t, "yes", got.Header.Get("X-From-Upstream"))
			if method == http.MethodHead {
				assert.Empty(t, got.body)
				return
			}
			var s seen
			require.NoError(t, json.Unmarshal([]byte(got.body), &s), got.body)
			assert.Equal(t, method, s.Method)
			assert.Equal(t, strings.TrimPrefix(up, "http://"), s.Host)
			assert.Equal(t, "the body", s.Body)
			assert.Equal(t, []string{"1", "2"}, s.Header["X-Custom"])
			assert.Equal(t, []string{"192.0.2.1, 127.0.0.1"}, s.Header["X-Forwarded-For"])
			assert.Equal(t, []string{"for=192.0.2.1"}, s.Header["Forwarded"])
			assert.Equal(t, []string{"gzip"}, s.Header["Accept-Encoding"])
			assert.Empty(t, s.Header["X-Hop"])
		})
	}
}

// What the client did not say is not said for it.
func TestNothingIsAddedForTheClient(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header["Accept-Encoding"], r.Header["User-Agent"])
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"up": up}})
	c := dial(t, a)
	c.say(t, "GET /upstream/up/ HTTP/1.1", "Host: x", "Connection: close", "", "")
	body, err := io.ReadAll(c.head(t, "GET").Body)
	require.NoError(t, err)
	assert.Equal(t, "[] []", string(body))
}

func TestStreamPassesThroughAsItComes(t *testing.T) {
	next := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10") // else a proxy would know that it streams
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, "again")
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"up": up}})
	resp, err := http.Get(a.URL() + "/upstream/up/")
	require.NoError(t, err)
	defer resp.Body.Close()
	five := make([]byte, 5)
	_, err = io.ReadFull(resp.Body, five)
	require.NoError(t, err)
	assert.Equal(t, "first", string(five))
	close(next)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "again", string(rest))
}

// A session after an upgrade goes both ways, holds its permits, and lets each
// side say in its own time that it has nothing more to say.
func TestUpgrade(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if !assert.Equal(t, "echo", r.Header.Get("Upgrade")) {
			return
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, err = io.Copy(conn, rw) // until the client has closed its half
		assert.NoError(t, err)
		fmt.Fprint(conn, "goodbye")
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"up": up}})
	c := dial(t, a)
	c.say(t, "GET /upstream/up/ws HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo", "", "")
	require.Equal(t, http.StatusSwitchingProtocols, c.head(t, "GET").StatusCode)
	c.say(t, "hello\n")
	line, err := c.r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", line)
	assert.Equal(t, int64(1), inFlight(a, "roomy", "/upstream/{name}/*"))
	assert.Equal(t, int64(1), inFlight(a, "roomy", up))

	require.NoError(t, c.CloseWrite())
	rest, err := io.ReadAll(c.r)
	require.NoError(t, err)
	assert.Equal(t, "goodbye", string(rest))
	eventually(t, func() bool {
		return inFlight(a, "roomy", "/upstream/{name}/*") == 0 && inFlight(a, "roomy", up) == 0
	}, "the session should give its permits back")
}

func TestGatewayErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	breaksOff := upstream(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	hangs := newGate(t)
	a := start(t, roomy, app.Config{
		UpstreamTimeout: 20 * time.Millisecond,
		Upstreams: map[string]string{
			"closed":     "http://" + closed.Addr().String(),
			"breaks-off": breaksOff,
			"hangs":      hangs.url,
		},
	})
	for path, status := range map[string]int{
		"/upstream/closed/x":     http.StatusBadGateway,
		"/upstream/breaks-off/x": http.StatusBadGateway,
		"/upstream/hangs/x":      http.StatusGatewayTimeout,
		"/upstream/nobody/x":     http.StatusNotFound,
		"/upstream/nobody":       http.StatusNotFound,
		"/upstream/Closed/x":     http.StatusNotFound,
	} {
		got := do(t, http.MethodGet, a.URL()+path)
		assert.Equal(t, status, got.StatusCode, path)
		assert.Equal(t, "application/problem+json", got.Header.Get("Content-Type"), path)
		var p struct {
			Status int
			Title  string
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &p), path)
		assert.Equal(t, status, p.Status, path)
		assert.NotEmpty(t, p.Title, path)

		head := do(t, http.MethodHead, a.URL()+path)
		assert.Equal(t, status, head.StatusCode, path)
		assert.Empty(t, head.body, path)
	}
}

// What the client's own policies refuse is answered like what the server's do.
func TestRefusalByTheClientSide(t *testing.T) {
	gate := newGate(t)
	fails := upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	a := start(t, `
version: 1
policies:
  - name: full
    side: client
    match: [{path: /full}]
    bulkhead: {maxConcurrent: 1}
  - name: wait
    side: client
    match: [{path: /wait}]
    bulkhead: {maxConcurrent: 1, maxWait: 10ms}
  - name: own-status
    side: client
    match: [{path: /own-status}]
    bulkhead: {maxConcurrent: 1}
    reject: {status: {full: 429}, retryAfter: 7s}
  - name: failing
    side: client
    match: [{path: /failing}]
    breaker: {window: {calls: 2}, minCalls: 2, openFor: 1h}
`, app.Config{Upstreams: map[string]string{"gate": gate.url, "fails": fails}})

	for _, tt := range []struct {
		path, reason, retryAfter string
		status                   int
	}{
		{"/full", "full", "1", 503},
		{"/wait", "wait_timeout", "1", 408},
		{"/own-status", "full", "7", 429},
	} {
		held := later(t, http.MethodGet, a.URL()+"/upstream/gate"+tt.path)
		receive(t, gate.arrived)
		got := do(t, http.MethodGet, a.URL()+"/upstream/gate"+tt.path)
		assert.Equal(t, tt.status, got.StatusCode, tt.path)
		assert.Equal(t, tt.reason, got.reason(), tt.path)
		assert.Equal(t, tt.retryAfter, got.Header.Get("Retry-After"), tt.path)
		defer func() { assert.Equal(t, http.StatusOK, receive(t, held).StatusCode) }()
	}
	defer gate.open()

	for range 2 {
		assert.Equal(t, http.StatusInternalServerError, do(t, http.MethodGet, a.URL()+"/upstream/fails/failing").StatusCode)
	}
	got := do(t, http.MethodGet, a.URL()+"/upstream/fails/failing")
	assert.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
	assert.Equal(t, "open", got.reason())
	assert.Equal(t, "3600", got.Header.Get("Retry-After"))
}

// watchful trips at the first failure.
const watchful = `
version: 1
policies:
  - name: watchful
    side: client
    bulkhead: {maxConcurrent: 10}
    breaker: {window: {calls: 1}, minCalls: 1, openFor: 1h}
`

func breakerState(a *app.App, key string) string {
	if b := compartment(a, "watchful", key).Breaker; b != nil {
		return b.State
	}
	return ""
}

// The tests below rely on this: a failure does trip it.
func TestWatchfulTrips(t *testing.T) {
	breaksOff := upstream(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	a := start(t, watchful, app.Config{Upstreams: map[string]string{"up": breaksOff}})
	do(t, http.MethodPost, a.URL()+"/upstream/up/")
	assert.Equal(t, "open", breakerState(a, breaksOff))
}

func TestClientThatLeavesIsNotTheUpstreamsFault(t *testing.T) {
	gate := newGate(t)
	a := start(t, watchful, app.Config{Upstreams: map[string]string{"gate": gate.url}})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL()+"/upstream/gate/", nil)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := http.DefaultTransport.RoundTrip(req)
		failed <- err
	}()
	receive(t, gate.arrived)
	leave()
	require.ErrorIs(t, receive(t, failed), context.Canceled)
	receive(t, gate.left) // the upstream hears of it
	eventually(t, func() bool { return inFlight(a, "watchful", gate.url) == 0 }, "the call should end")
	assert.Equal(t, "closed", breakerState(a, gate.url))
}

func TestUploadThatBreaksOffIsNotTheUpstreamsFault(t *testing.T) {
	arrived := make(chan struct{}, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	for name, rest := range map[string][]string{
		"client leaves": {"Content-Length: 1000", "", "half"},
		"nonsense":      {"Transfer-Encoding: chunked", "", "4", "half", "this is not a length", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, watchful, app.Config{Upstreams: map[string]string{"up": up}})
			c := dial(t, a)
			c.say(t, append([]string{"POST /upstream/up/ HTTP/1.1", "Host: x"}, rest...)...)
			receive(t, arrived)
			if name == "client leaves" {
				require.NoError(t, c.Close())
			}
			eventually(t, func() bool { return inFlight(a, "watchful", up) == 0 }, "the call should end")
			assert.Equal(t, uint64(1), compartment(a, "watchful", up).Granted)
			assert.Equal(t, "closed", breakerState(a, up))
		})
	}
}

// An answer that does not need the body must not wait for a client that does
// not send it.
func TestAnswerDoesNotWaitForTheBody(t *testing.T) {
	gate := newGate(t)
	eager := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // or net/http itself waits for the body
		w.WriteHeader(http.StatusUnauthorized)
	})
	a := start(t, `
version: 1
policies:
  - name: one
    side: client
    match: [{path: /one}]
    bulkhead: {maxConcurrent: 1}
`, app.Config{Upstreams: map[string]string{"eager": eager, "gate": gate.url, "closed": "http://127.0.0.1:1"}})
	held := later(t, http.MethodGet, a.URL()+"/upstream/gate/one")
	receive(t, gate.arrived)
	for path, status := range map[string]int{
		"/upstream/eager/x":  http.StatusUnauthorized,
		"/upstream/gate/one": http.StatusServiceUnavailable,
		"/upstream/closed/x": http.StatusBadGateway,
		"/upstream/nobody/x": http.StatusNotFound,
	} {
		c := dial(t, a)
		c.say(t, "POST "+path+" HTTP/1.1", "Host: x", "Content-Length: 1000", "", "")
		assert.Equal(t, status, c.head(t, "POST").StatusCode, path)
		require.NoError(t, c.Close())
	}
	gate.open()
	assert.Equal(t, http.StatusOK, receive(t, held).StatusCode)
}

// E02: net/http reads the rest of the body after the answer, and must not take
// what comes behind it for the next request.
func TestAnswerBeforeTheEndOfTheBodyClosesTheConnection(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/eager" {
			w.Header().Set("Connection", "close") // or net/http itself waits for the body
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	var log program.Buffer
	a := startLogging(t, roomy, app.Config{Upstreams: map[string]string{"up": up}}, &log)
	for _, tt := range []struct {
		path, length, body, rest string
		status                   int
		closes                   bool
	}{
		{"/eager", "Content-Length: 4", "", "body", http.StatusUnauthorized, true},
		{"/eager", "Transfer-Encoding: chunked", "", "4\r\nbody\r\n0\r\n\r\n", http.StatusUnauthorized, true},
		{"/echo", "Content-Length: 4", "body", "", http.StatusOK, false},
		{"/echo", "Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n", "", http.StatusOK, false},
	} {
		name := tt.path + " " + tt.length
		c := dial(t, a)
		c.say(t, "POST /upstream/up"+tt.path+" HTTP/1.1", "Host: x", tt.length, "", tt.body)
		resp := c.head(t, "POST")
		assert.Equal(t, tt.status, resp.StatusCode, name)
		assert.Equal(t, tt.closes, resp.Close, name)
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err, name)

		_, _ = io.WriteString(c, tt.rest+"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") // it may be closed by now
		if tt.closes {
			_, err := c.r.ReadByte()
			assert.Error(t, err, name)
		} else {
			assert.Equal(t, http.StatusOK, c.head(t, "GET").StatusCode, name)
		}
	}
	assert.NotContains(t, log.String(), "panic")
}

// A client that is still sending gets the answer, not a connection that was reset.
func TestAnswerReachesAClientThatIsStillSending(t *testing.T) {
	eager := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		fmt.Fprint(w, "too much")
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"eager": eager}})
	for range 100 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL()+"/upstream/eager/", endless{})
		require.NoError(t, err)
		got := send(t, req)
		require.Equal(t, http.StatusRequestEntityTooLarge, got.StatusCode)
		require.Equal(t, "too much", got.body)
	}
}

// On HTTP/2, closing would take the connection from under the other requests.
func TestAnswerBeforeTheEndOfTheBodyKeepsHTTP2(t *testing.T) {
	eager := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	})
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"eager": eager}})
	h2 := http2(t)
	for i := range 3 {
		unsent, _ := io.Pipe()
		var reused bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL()+"/upstream/eager/", unsent)
		require.NoError(t, err)
		resp, err := h2.RoundTrip(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		assert.Equal(t, i > 0, reused)
	}
}

// endless is a body of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Bodies that wait with their requests leave room on the connection for the one
// that does not.
func TestUploadsThatQueueDoNotStallTheOneInside(t *testing.T) {
	const waiting = 50
	inside := make(chan struct{}, 1+waiting)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	a := start(t, `
version: 1
policies:
  - name: one
    side: server
    bulkhead: {maxConcurrent: 1, maxWait: 1h}
`, app.Config{Upstreams: map[string]string{"up": up}})
	tr := http2(t)
	ctx, leave := context.WithCancel(t.Context())
	upload := func(body io.Reader) <-chan reply {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL()+"/upstream/up/", body)
		require.NoError(t, err)
		done := make(chan reply, 1)
		go func() { done <- fetchBy(tr, req) }()
		return done
	}
	body, w := io.Pipe()
	first := upload(body)
	receive(t, inside)

	others := make([]<-chan reply, waiting)
	for i := range others {
		others[i] = upload(endless{})
	}
	eventually(t, func() bool { return queued(a, "one", "/upstream/{name}/*") == waiting }, "the others should queue")

	const size = 8 << 20
	go func() {
		_, err := io.CopyN(w, endless{}, size)
		w.CloseWithError(err)
	}()
	assert.Equal(t, fmt.Sprint(size, " <nil>"), receive(t, first).body)
	leave()
	for _, other := range others {
		receive(t, other)
	}
}

// A client that sends nonsense is told so, and is not held against the route
// either.
func TestNonsenseAsBodyIsTheClientsFault(t *testing.T) {
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	a := start(t, `
version: 1
policies:
  - name: watchful
    breaker: {window: {calls: 1}, minCalls: 1, openFor: 1h}
`, app.Config{Upstreams: map[string]string{"up": up}})
	c := dial(t, a)
	c.say(t, "POST /upstream/up/ HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "", "4", "half", "this is not a length", "")
	assert.Equal(t, http.StatusBadRequest, c.head(t, "POST").StatusCode)
	eventually(t, func() bool { return inFlight(a, "watchful", "/upstream/{name}/*") == 0 }, "the call should end")
	assert.Equal(t, "closed", breakerState(a, "/upstream/{name}/*"))
	assert.Equal(t, "closed", breakerState(a, up))
}

func TestParseUpstream(t *testing.T) {
	for _, s := range []string{
		"a=http://127.0.0.1:1", "a.b-c_9=https://host", "a=http://host/base/path", "a=http://[::1]:80/", "a=http://h/x=y",
	} {
		name, base, err := app.ParseUpstream(s)
		require.NoError(t, err, s)
		assert.Equal(t, s, name+"="+base)
	}
	for _, s := range []string{
		"", "a", "=", "=http://h", "a=", "a=h", "a=h:80", "a=//h", "a=ftp://h", "a=http://", "a=http://u:p@h", "a=http://h?q", "a=http://h?",
		"a=http://h#f", "a/b=http://h", "..=http://h", "a b=http://h", "ä=http://h", "a=http://h:x", "a=http://%zz",
		strings.Repeat("a", 65) + "=http://h",
	} {
		_, _, err := app.ParseUpstream(s)
		assert.Error(t, err, s)
	}
	_, err := app.Start(t.Context(), app.Config{Upstreams: map[string]string{"a": "b"}})
	assert.ErrorContains(t, err, `"b"`)
}
