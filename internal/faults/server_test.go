package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An answerer writes what a server has to say to a request. The connection is closed
// when it returns false.
type answerer func(conn *net.TCPConn, r *http.Request) bool

// A rawServer is an HTTP/1 server that may break every rule.
type rawServer struct {
	net.Listener
	answer atomic.Pointer[answerer]
	wg     sync.WaitGroup
	mu     sync.Mutex // guards the field below
	conns  []net.Conn
}

func startRaw(t *testing.T) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{Listener: l}
	s.wg.Go(func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(conn.(*net.TCPConn)) })
		}
	})
	return s
}

func (s *rawServer) serve(conn *net.TCPConn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if !(*s.answer.Load())(conn, r) {
			return
		}
	}
}

func (s *rawServer) close() {
	_ = s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// wellBehaved answers as the server of the other tests does.
func wellBehaved(conn *net.TCPConn, r *http.Request) bool {
	switch r.URL.Path {
	case "/hold":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // until the client leaves
		return false
	case "/upload":
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != size {
			return false
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	default:
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	}
	return true
}

// says answers every request with the same words, and closes.
func says(text string) answerer {
	return func(conn *net.TCPConn, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, text)
		return false
	}
}

// Servers that answer what no server should, or break off where they should not, leave
// as little behind as networks do; whether that is a failure depends on when it shows.
func TestServersThatMisbehave(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, test := range []struct {
		name    string
		answer  answerer
		breaker string
		uses    []use
	}{
		{"nothing", says(""), strict, nil},
		{"no HTTP", says("SSH-2.0-OpenSSH_9.2\r\n"), strict, nil},
		{"half a status line", says("HTTP/1.1 20"), strict, nil},
		{"headers without an end", says(ok + "Content-Length: 3\r\n"), strict, nil},
		{"a malformed header", says(ok + "no colon\r\n\r\n"), strict, nil},
		{"two lengths", says(ok + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"), strict, nil},
		{"headers without measure", says(ok + "X: " + strings.Repeat("x", 11<<20) + "\r\n\r\n"), strict, nil},
		{"informational answers without end", says(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000)), strict, nil},
		{"less than was promised", says(ok + "Content-Length: 10\r\n\r\nabc"), strictAtBody, []use{download}},
		{"a malformed chunk", says(ok + "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"), strictAtBody, []use{download}},
		{"chunks without an end", says(ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), strictAtBody, []use{download}},
		{"no gzip", says(ok + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), strictAtBody, []use{download}},
		{"a reset in the middle of the body", func(conn *net.TCPConn, _ *http.Request) bool {
			_, _ = io.WriteString(conn, ok+"Content-Length: 10\r\n\r\nabc")
			_ = conn.SetLinger(0)
			return false
		}, strictAtBody, []use{download}},
		{"a reset in the middle of an upload", func(conn *net.TCPConn, r *http.Request) bool {
			_, _ = r.Body.Read(make([]byte, 1))
			_ = conn.SetLinger(0)
			return false
		}, strict, []use{upload}},
		{"an answer before the upload is over, and a close", func(conn *net.TCPConn, _ *http.Request) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return false
		}, strict, []use{upload}},
		{"an answer to a question that nobody asked", func(conn *net.TCPConn, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			return true
		}, strict, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			goroutines := goroutinesReturn(t)
			srv := startRaw(t)
			r := &rig{base: &http.Transport{MaxIdleConnsPerHost: limit}, url: "http://" + srv.Addr().String()}
			r.protect(t, test.breaker)
			well := answerer(wellBehaved)
			srv.answer.Store(&well)
			defer goroutines()
			defer srv.close()
			defer r.base.CloseIdleConnections()
			r.requireExact(t)
			endure := func() {
				srv.answer.Store(&test.answer)
				r.base.CloseIdleConnections()
				r.suffer(t, fault{breaker: test.breaker, uses: test.uses, patience: 10 * time.Second})
				r.requireIdle(t)
				srv.answer.Store(&well)
				r.base.CloseIdleConnections()
				r.recover(t)
				r.requireExact(t)
			}
			endure()
			requireNoGrowth(t, endure)
		})
	}
}
