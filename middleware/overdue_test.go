package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// Overdue are the handlers that have answered nothing for longer than slowCall, and
// not those that have begun to answer and stream on.
func TestOverdueIsWhatHasNotBegunToAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		begin func(w http.ResponseWriter)
		state string
	}{
		"nothing":                           {func(http.ResponseWriter) {}, "open"},
		"headers, still buffered":           {func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, "open"},
		"a little, still buffered":          {func(w http.ResponseWriter) { io.WriteString(w, "x") }, "open"},
		"flushed":                           {func(w http.ResponseWriter) { assert.NoError(t, http.NewResponseController(w).Flush()) }, "closed"},
		"more than the buffer":              {func(w http.ResponseWriter) { w.Write(make([]byte, 4097)) }, "closed"},
		"as much as the buffer":             {func(w http.ResponseWriter) { w.Write(make([]byte, 4096)) }, "open"},
		"more than the buffer, bit by bit":  {func(w http.ResponseWriter) { io.WriteString(w, strings.Repeat("x", 4000)); w.Write(make([]byte, 97)) }, "closed"},
		"as much as the buffer, bit by bit": {func(w http.ResponseWriter) { io.WriteString(w, strings.Repeat("x", 4000)); w.Write(make([]byte, 96)) }, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guarding(t, "version: 1\npolicies:\n  - {name: all, side: server, per: policy, breaker: {slowCall: 800ms, minCalls: 3}}\n")
				leave := make(chan struct{})
				h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					test.begin(w)
					<-leave
				}))
				for range 3 {
					go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Equal(t, test.state, g.Snapshot().Compartments[0].Breaker.State)
				close(leave)
				synctest.Wait()
			})
		})
	}
}

// What the recorder takes for sent is sent: the client has the headers, on either
// protocol, while the handler still works.
func TestWhatIsMoreThanTheBufferIsSent(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		leave := make(chan struct{})
		s := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 4097 {
				w.Write([]byte("x"))
			}
			<-leave
		}), func(s *httptest.Server) {
			s.EnableHTTP2 = http2
			s.StartTLS()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		require.NoError(t, err)
		resp, err := s.Client().Do(r)
		close(leave)
		if assert.NoError(t, err) {
			assert.Equal(t, http2, resp.ProtoMajor == 2)
			assert.EqualValues(t, 200, readAll(t, resp).StatusCode)
		}
		cancel()
	}
}
