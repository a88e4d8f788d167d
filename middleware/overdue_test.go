package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/middleware"
)

// Overdue are the handlers that have answered nothing for longer than slowCall, and
// not those that have begun to answer and stream on.
func TestOverdueIsWhatHasNotBegunToAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		begin func(w http.ResponseWriter)
		state string
	}{
		"nothing":                          {func(http.ResponseWriter) {}, "open"},
		"headers, still buffered":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, "open"},
		"a little, still buffered":         {func(w http.ResponseWriter) { io.WriteString(w, "x") }, "open"},
		"flushed":                          {func(w http.ResponseWriter) { assert.NoError(t, http.NewResponseController(w).Flush()) }, "closed"},
		"more than the buffer":             {func(w http.ResponseWriter) { w.Write(make([]byte, 3000)) }, "closed"},
		"more than the buffer, bit by bit": {func(w http.ResponseWriter) { io.WriteString(w, strings.Repeat("x", 2000)); w.Write(make([]byte, 100)) }, "closed"},
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
