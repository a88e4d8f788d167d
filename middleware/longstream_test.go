package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

const slowAfterASecond = `
version: 1
policies:
  - name: all
    side: server
    per: policy
    breaker: {minCalls: 2, window: {calls: 4}, slowCall: 1s, slowCallRate: 100, openFor: 10s, halfOpen: {calls: 2, probeTimeout: 30s}}
`

// E50, on the server: what is slow is a handler that takes long until its answer
// begins. How long the rest takes is up to the stream, and to the client: neither
// server-sent events nor clients that read slowly shut a route for the others.
func TestALongAnswerIsNotSlow(t *testing.T) {
	for name, test := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request)
		leave time.Duration // when the client leaves; 0: it does not
		calls int
		slow  float64
	}{
		"late, then at once": {func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second + 1)
			w.(http.Flusher).Flush()
		}, 0, 2, 100},
		"begun late, and long": {func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second + 1)
			w.(http.Flusher).Flush()
			time.Sleep(time.Hour)
		}, 0, 2, 100},
		"long, still buffered": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("x"))
			time.Sleep(time.Hour)
		}, 0, 2, 100},
		"begun in time, and long": {func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			w.(http.Flusher).Flush()
			time.Sleep(time.Hour)
		}, 0, 2, 0},
		"begun at once, and long": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Hour)
		}, 0, 2, 0},
		"begun in time, until the client leaves": {func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, time.Hour, 0, -1},
		"begun late, until the client leaves": {func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second + 1)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, time.Hour, 2, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, slowAfterASecond)
				h := middleware.New(g)(http.HandlerFunc(test.serve))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.leave > 0 {
					time.AfterFunc(test.leave, cancel)
				}
				for range 2 {
					go do(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				b := compartment(t, g, "all", "").Breaker
				assert.Equal(t, test.calls, b.Calls)
				assert.Equal(t, test.slow, b.SlowCallRate)
			})
		})
	}
}

// A panic in the middle of a long answer is a failure all the same.
func TestALongAnswerThatBreaksOffIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, slowAfterASecond)
		h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Hour)
			panic(http.ErrAbortHandler)
		}))
		for range 2 {
			assert.PanicsWithValue(t, http.ErrAbortHandler, func() { get(h, "/") })
		}
		b := compartment(t, g, "all", "").Breaker
		assert.Equal(t, "open", b.State)
		assert.EqualValues(t, 100, b.FailureRate)
		assert.Zero(t, b.SlowCallRate)
	})
}

// E42, for handlers that stream: probes are decided when their answers begin, so that
// the others need not wait for the streams to end, nor find them given up.
func TestProbesThatStream(t *testing.T) {
	for status, state := range map[int]string{200: "closed", 500: "open"} {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, slowAfterASecond)
			answer := 500
			h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(answer)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fails := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
			for range 2 {
				require.Equal(t, 500, get(fails, "/").Code)
			}
			requireRefused(t, get(h, "/"), 503, "open")
			time.Sleep(10 * time.Second)
			answer = status
			for range 2 {
				go do(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			}
			synctest.Wait()
			require.Equal(t, state, compartment(t, g, "all", "").Breaker.State, "%d", status)
			cancel()
			synctest.Wait()
			require.Equal(t, state, compartment(t, g, "all", "").Breaker.State, "and is not asked again")
		})
	}
}

// A flush that only http.ResponseController can reach, since a middleware further out
// hides the Flusher, is heard as well: an answer has begun with it, and its status is
// what went out.
func TestHiddenFlushIsHeard(t *testing.T) {
	for name, through := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"to all":     func(w http.ResponseWriter) http.ResponseWriter { return w },
		"to handler": func(w http.ResponseWriter) http.ResponseWriter { return hiding{w} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, slowAfterASecond)
				limited := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					assert.NoError(t, http.NewResponseController(through(w)).Flush())
					time.Sleep(time.Hour)
					w.WriteHeader(500) // too late
				}))
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(hiding{w}, r) })
				for range 2 {
					assert.Equal(t, 200, get(h, "/").Code)
				}
				b := compartment(t, g, "all", "").Breaker
				assert.Equal(t, 2, b.Calls)
				assert.Zero(t, b.SlowCallRate)
				assert.Zero(t, b.FailureRate)
			})
		})
	}
}
