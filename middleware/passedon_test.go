package middleware_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"

	"github.com/watertight-go/watertight"
)

func guarding(t *testing.T, yaml string) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return watertight.New(set)
}

// E02: refused callers that neither send their bodies nor leave must not pin
// connections while the server has too much to do.
func TestARefusedCallerThatOwesItsBodyIsLetGo(t *testing.T) {
	g := guarding(t, "version: 1\npolicies:\n  - {name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}\n")
	held, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server, Method: "GET", EscapedPath: "/"})
	require.NoError(t, err)
	defer held.Release()
	s := httptest.NewServer(middleware.New(g)(http.NotFoundHandler()))
	defer s.Close()

	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	_, err = r.ReadByte()
	assert.Equal(t, io.EOF, err, "the server closes, not this client's deadline")
}

// "Our own refusals are neutral" also for the breaker of a gateway's route, which
// only sees a status.
func TestAPassedOnRefusalIsNoFailureOfTheRoute(t *testing.T) {
	g := guarding(t, "version: 1\npolicies:\n  - {name: all, side: server, per: policy, breaker: {minCalls: 1}}\n")
	wrapped := func(h http.HandlerFunc) http.Handler { // as otelhttp and others do
		return middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h(wrapper{w}, r)
		}))
	}
	refuse := wrapped(func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteRejection(w, r, &watertight.RejectedError{Reason: policy.ReasonFull, Err: bulkhead.ErrFull})
	})
	for range 10 {
		w := httptest.NewRecorder()
		refuse.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	}
	b := g.Snapshot().Compartments[0].Breaker
	assert.Zero(t, b.Calls)
	assert.Equal(t, "closed", b.State)

	fail := wrapped(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	fail.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, "open", g.Snapshot().Compartments[0].Breaker.State, "a 503 of the handler's own still counts")
}

type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }
