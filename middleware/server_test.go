package middleware_test

import (
	"bufio"
	"bytes"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server is an httptest.Server whose ErrorLog can be read.
type server struct {
	*httptest.Server
	log *syncBuffer
}

// serve starts a server on loopback. It is closed after everything that the test
// registers later, such as the connections of dial: a server cannot close while
// it waits for a body that somebody still owes it.
func serve(t testing.TB, h http.Handler) *server { return start(t, h, (*httptest.Server).Start) }

func serveHTTP2(t testing.TB, h http.Handler) *server {
	return start(t, h, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
}

func start(t testing.TB, h http.Handler, how func(*httptest.Server)) *server {
	s := &server{httptest.NewUnstartedServer(h), new(syncBuffer)}
	s.Config.ErrorLog = log.New(s.log, "", 0)
	how(s.Server)
	t.Cleanup(s.Close)
	return s
}

// get sends a GET and returns the answer with its body read.
func (s *server) get(t testing.TB, path string) *http.Response {
	t.Helper()
	resp, err := s.Client().Get(s.URL + path)
	require.NoError(t, err)
	return readAll(t, resp)
}

// readAll replaces the body by one that is in memory.
func readAll(t testing.TB, resp *http.Response) *http.Response {
	t.Helper()
	var body bytes.Buffer
	_, err := body.ReadFrom(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	resp.Body = nopCloser{&body}
	return resp
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// A rawConn is a client that writes its requests by hand.
type rawConn struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

// dial connects to the server by TCP.
func (s *server) dial(t testing.TB) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	// Only so that a server that does not answer fails the test.
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return newRawConn(t, conn)
}

func newRawConn(t testing.TB, conn net.Conn) *rawConn {
	t.Cleanup(func() { conn.Close() })
	return &rawConn{t, conn, bufio.NewReader(conn)}
}

// send writes lines, with the blank line that ends the head of a request.
func (c *rawConn) send(lines ...string) {
	c.t.Helper()
	_, err := c.Write([]byte(strings.Join(lines, "\r\n") + "\r\n\r\n"))
	require.NoError(c.t, err)
}

// receive reads one answer to a request of the given method.
func (c *rawConn) receive(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	require.NoError(c.t, err)
	return readAll(c.t, resp)
}

// servePipes serves over net.Pipe, which works in a synctest bubble; real sockets
// never settle there. It returns how to connect.
func servePipes(t testing.TB, h http.Handler) (dial func() *rawConn) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: h, ErrorLog: log.New(new(syncBuffer), "", 0)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return func() *rawConn {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return newRawConn(t, ours)
	}
}

type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
