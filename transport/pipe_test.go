package transport_test

import (
	"context"
	"net"
	"net/http"
	"testing"
)

// A pipeListener is a listener without sockets, so that a real server and a real
// client can meet inside a bubble, where time passes by itself.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { return nil }

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// served returns a client transport of net/http whose every host is h, over
// HTTP/1. Server and connections end with the test.
func served(t *testing.T, h http.HandlerFunc) *http.Transport {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	client := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			here, there := net.Pipe()
			select {
			case l.conns <- there:
				return here, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		close(l.done)
		_ = srv.Close()
	})
	return client
}
