package transport_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/transport"
)

// halfCloser is a session that can close its sending half.
type halfCloser struct {
	session
	half int
}

func (h *halfCloser) CloseWrite() error {
	h.half++
	return nil
}

// readOnly is a body that can only be read, but has more methods.
type readOnly struct{ io.ReadCloser }

func (readOnly) CloseWrite() error { return nil }

func switched(body io.ReadCloser) base {
	return func(r *http.Request) (*http.Response, error) {
		return answer(r, http.StatusSwitchingProtocols, body), nil
	}
}

// E37: what the body of a 101 can do, it still can: no more and no less.
func TestSessionKeepsItsMethods(t *testing.T) {
	type closeWriter interface{ CloseWrite() error }
	for _, test := range []struct {
		name                 string
		status               int
		body                 io.ReadCloser
		writes, closesWrites bool
	}{
		{"session", 101, &session{Reader: strings.NewReader("")}, true, false},
		{"session with CloseWrite", 101, &halfCloser{session: session{Reader: strings.NewReader("")}}, true, true},
		{"101 that cannot be written to", 101, text(""), false, false},
		{"200", 200, text("x"), false, false},
		{"200 with CloseWrite and no Write", 200, readOnly{text("x")}, false, false},
		{"200 that can be written to", 200, &session{Reader: strings.NewReader("")}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
				return answer(r, test.status, test.body), nil
			}), g)
			body := open(t, rt, get(t, "http://up/")).Body
			_, writes := body.(io.Writer)
			assert.Equal(t, test.writes, writes, "io.Writer")
			_, closesWrites := body.(closeWriter)
			assert.Equal(t, test.closesWrites, closesWrites, "CloseWrite")
			assert.Equal(t, 1, inFlight(t, g))
			assert.NoError(t, body.Close())
			assert.Zero(t, inFlight(t, g))
		})
	}
}

// E37: a session has ended when it is closed. The other side may have stopped
// sending long before.
func TestSessionEndsWithClose(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	inner := &halfCloser{session: session{Reader: strings.NewReader("hello")}}
	body := open(t, transport.New(switched(inner), g), get(t, "http://up/")).Body

	got, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	assert.Equal(t, 1, inFlight(t, g), "EOF is half of the end")
	_, err = io.WriteString(body.(io.Writer), "goodbye")
	require.NoError(t, err)
	assert.Equal(t, "goodbye", inner.sent.String())
	require.NoError(t, body.(interface{ CloseWrite() error }).CloseWrite())
	assert.Equal(t, 1, inner.half)
	assert.Equal(t, 1, inFlight(t, g))

	require.NoError(t, body.Close())
	assert.Equal(t, 1, inner.closes)
	assert.Equal(t, 1, capacity(t, g))
}

// A session that breaks, or whose request's context ends, has ended as well.
func TestSessionEndsOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		broken := &session{Reader: &chunks{end: io.ErrClosedPipe}}
		body := open(t, transport.New(switched(broken), g), get(t, "http://up/")).Body
		_, err := body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		assert.Equal(t, 1, capacity(t, g))

		ctx, cancel := context.WithCancel(t.Context())
		body = open(t, transport.New(switched(&session{}), g), get(t, "http://up/").WithContext(ctx)).Body
		assert.Zero(t, capacity(t, g))
		cancel()
		synctest.Wait()
		assert.Equal(t, 1, capacity(t, g))
		require.NoError(t, body.Close())
	})
}

// A body that happens to have Write but is no session, such as a file of a cache,
// ends at EOF like any other.
func TestWritableBodyThatIsNoSession(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		return answer(r, 200, &session{Reader: strings.NewReader("cached")}), nil
	}), g)
	body := open(t, rt, get(t, "http://up/")).Body
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "cached", string(got))
	assert.Equal(t, 1, capacity(t, g))
}

// E37, E50e: the clock of the slow rule stops at the headers; a session may last.
func TestSessionIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {slowCall: 100ms, minCalls: 1}}`)
		body := open(t, transport.New(switched(&session{Reader: strings.NewReader("")}), g), get(t, "http://up/")).Body
		time.Sleep(time.Hour)
		require.NoError(t, body.Close())
		b := only(t, g).Breaker
		assert.Equal(t, 1, b.Calls)
		assert.Zero(t, b.SlowCallRate)
		assert.Zero(t, b.FailureRate)
		assert.Equal(t, "closed", b.State)
	})
}

// E37, end to end: a reverse proxy upgrades through the transport, bytes go both
// ways, each side closes its half, and the permit is back when it is over.
func TestReverseProxyUpgrade(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, err := rw.ReadString('\n')
		assert.NoError(t, err)
		_, _ = rw.WriteString("echo: " + line)
		_ = rw.Flush()
		rest, err := io.ReadAll(rw) // until the client has closed its half
		assert.NoError(t, err)
		_, _ = rw.WriteString("last words after " + string(rest))
		_ = rw.Flush()
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)

	released := make(chan bool, 1)
	g := guard(t, `  - {name: p, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`, watertight.WithHooks(watertight.Hooks{
		Release: func(_ context.Context, e watertight.ReleaseEvent) { released <- e.Leaked },
	}))
	client := backend.Client().Transport.(*http.Transport)
	defer client.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport.New(client, g),
	}
	frontend := httptest.NewServer(proxy)
	defer frontend.Close()

	conn, err := net.Dial("tcp", frontend.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: chat\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)

	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "echo: hello\n", line)
	assert.Equal(t, 1, inFlight(t, g), "held while the session lasts")

	_, err = io.WriteString(conn, "bye")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "last words after bye", string(rest))

	assert.False(t, <-released, "closed, not leaked")
	assert.Equal(t, 1, only(t, g).Breaker.Calls)
	assert.Zero(t, inFlight(t, g))
}
