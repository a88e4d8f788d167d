package faults

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// clientConns are the connections of a client that its transport has not closed.
type clientConns struct {
	mu   sync.Mutex // guards the field below
	open map[*clientConn]bool
}

// A clientConn is known to clientConns until the transport closes it.
type clientConn struct {
	net.Conn
	of *clientConns
}

func (c *clientConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// watch makes what base dials known from now on.
func (c *clientConns) watch(base *http.Transport) {
	c.open = make(map[*clientConn]bool)
	dial := base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		known := &clientConn{conn, c}
		c.mu.Lock()
		c.open[known] = true
		c.mu.Unlock()
		return known, nil
	}
}

// cut cuts every connection, and waits until the transport has noticed.
func (c *clientConns) cut(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	for conn := range c.open {
		_ = conn.Conn.Close() // the transport, which hears of it, closes it again
	}
	c.mu.Unlock()
	eventually(t, "connections are left", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.open) == 0
	})
}
