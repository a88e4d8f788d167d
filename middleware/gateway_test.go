package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

func gatewayTo(t testing.TB, upstream string, base http.RoundTripper) http.Handler {
	t.Helper()
	target, err := url.Parse(upstream)
	require.NoError(t, err)
	return &httputil.ReverseProxy{Transport: base, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
}

// E04, end to end: an upgrade passes a ReverseProxy behind the middleware, and the
// permit is held until both ends are done with it.
func TestUpgradeThroughAReverseProxy(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			io.Copy(conn, rw)
		}))
		g := guard(t, yaml)
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		limited := middleware.New(g)(gatewayTo(t, upstream.URL, base))
		returned := make(chan struct{})
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(returned)
			limited.ServeHTTP(w, r)
		}))

		client := s.dial(t)
		client.send("GET / HTTP/1.1", "Host: here", "Connection: Upgrade", "Upgrade: echo")
		resp, err := http.ReadResponse(client.r, nil)
		require.NoError(t, err)
		require.Equal(t, 101, resp.StatusCode)
		for _, line := range []string{"one\n", "two\n"} {
			_, err := io.WriteString(client, line)
			require.NoError(t, err)
			echo, err := bufio.NewReader(client.r).ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, line, echo)
		}
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 1, c.InFlight)
		if c.Breaker != nil {
			assert.Equal(t, 1, c.Breaker.Calls, "it settled when it was upgraded")
		}
		require.NoError(t, client.Close())
		<-returned
		assert.Zero(t, compartment(t, g, "all", "").InFlight)
	})
}

// E27: the mark is for the server side. A gateway's context flows into its
// transport, whose calls count all the same.
func TestMarkDoesNotReachTheClientSide(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: all, side: both, per: policy, bulkhead: {maxConcurrent: 1}}
`)
	upstream := serve(t, ok)
	limited := transport.New(nil, g)
	t.Cleanup(limited.CloseIdleConnections)
	wrap := middleware.New(g)
	h := wrap(wrap(gatewayTo(t, upstream.URL, limited)))
	for range 3 {
		require.Equal(t, 200, get(h, "/").Code)
	}
	granted := map[string]uint64{}
	for _, c := range g.Snapshot().Compartments {
		granted[c.Side] += c.Granted
		assert.Zero(t, c.InFlight)
	}
	assert.Equal(t, map[string]uint64{"server": 3, "client": 3}, granted)
}

// A client that leaves in the middle makes ReverseProxy abort: neutral, and the
// permit comes back.
func TestReverseProxyWhoseClientLeaves(t *testing.T) {
	upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	g := guard(t, withBreaker)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	limited := middleware.New(g)(gatewayTo(t, upstream.URL, base))
	thrown := make(chan any, 1)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			thrown <- v
			if v != nil {
				panic(v)
			}
		}()
		limited.ServeHTTP(w, r)
	}))
	client := s.dial(t)
	client.send("GET / HTTP/1.1", "Host: here")
	resp, err := http.ReadResponse(client.r, nil)
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, len("first")))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.Equal(t, http.ErrAbortHandler, <-thrown)
	c := compartment(t, g, "all", "")
	assert.Zero(t, c.InFlight)
	assert.Equal(t, "closed", c.Breaker.State)
	assert.Zero(t, c.Breaker.Calls)
	assert.Equal(t, 200, do(middleware.New(g)(ok), httptest.NewRequest("GET", "/", nil)).Code)
}
