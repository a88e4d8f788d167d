package middleware_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// Refusals on HTTP/2 arrive at once whatever the client owes of its body, and
// leave the connection to the other streams.
func TestHTTP2(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		g := guard(t, yaml)
		gate := newGate()
		limited := middleware.New(g)(gate)
		var conns atomic.Int64
		s := start(t, limited, func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
			s.StartTLS()
		})

		inside := make(chan *http.Response, 1)
		go func() {
			defer close(inside)
			if resp, err := s.Client().Get(s.URL); assert.NoError(t, err) {
				inside <- resp
			}
		}()
		<-gate.entered

		never, owes := io.Pipe() // a body that does not come
		defer owes.Close()
		for _, test := range []struct {
			method string
			body   io.Reader
		}{{"GET", nil}, {"HEAD", nil}, {"POST", strings.NewReader("body")}, {"PUT", never}} {
			r, err := http.NewRequest(test.method, s.URL, test.body)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			resp = readAll(t, resp)
			assert.Equal(t, 2, resp.ProtoMajor)
			assert.Equal(t, 503, resp.StatusCode)
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			assert.Equal(t, "1", resp.Header.Get("Retry-After"))
			assert.Empty(t, resp.Header.Values("Connection"))
			assert.Positive(t, resp.ContentLength)
			if test.method == "HEAD" {
				assert.Zero(t, resp.Body.(nopCloser).Len())
			} else {
				assert.EqualValues(t, resp.Body.(nopCloser).Len(), resp.ContentLength)
				assert.Equal(t, "full", reason(t, resp.Body))
			}
		}

		close(gate.open)
		resp := readAll(t, <-inside)
		assert.Equal(t, 200, resp.StatusCode, "the stream beside them lived on")
		assert.Equal(t, "ok", resp.Body.(nopCloser).String())
		assert.Equal(t, 200, s.get(t, "/").StatusCode)
		assert.EqualValues(t, 1, conns.Load())
		assert.Empty(t, s.log.String())
	})
}

// The writer of HTTP/2 is a Pusher and no Hijacker, and stays that.
func TestHTTP2Writer(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		abilities := make(chan []string, 1)
		s := serveHTTP2(t, middleware.New(guard(t, yaml))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			abilities <- can(w)
		})))
		s.get(t, "/")
		assert.Equal(t, []string{"Flush", "Push"}, <-abilities)
	})
}
