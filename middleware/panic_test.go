package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// E09: the permit comes back, and whoever stands outside recovers the same value.
func TestPanicPassesThrough(t *testing.T) {
	type custom struct{ n int }
	value := &custom{1}
	for name, thrown := range map[string]any{"custom": value, "abort": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, yaml string) {
				g := guard(t, yaml)
				h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(thrown) }))
				recovered := func() (v any) {
					defer func() { v = recover() }()
					get(h, "/")
					return nil
				}()
				assert.True(t, recovered == thrown)
				c := compartment(t, g, "all", "")
				assert.Zero(t, c.InFlight)
				if c.Breaker != nil {
					assert.Equal(t, "open", c.Breaker.State, "a panic is a failure")
				}
			})
		})
	}
}

// E09: runtime.Goexit gives the permit back and is a failure.
func TestGoexit(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		g := guard(t, yaml)
		h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
		done := make(chan struct{})
		go func() {
			defer close(done)
			get(h, "/")
		}()
		<-done
		c := compartment(t, g, "all", "")
		assert.Zero(t, c.InFlight)
		if c.Breaker != nil {
			assert.Equal(t, "open", c.Breaker.State)
		}
	})
}

// E09, on the wire: a deliberate abort reaches the client as such, the log stays
// silent, and the next request finds the permit free, at a limit of one.
func TestAbortOnTheWire(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		g := guard(t, yaml)
		mux := http.NewServeMux()
		mux.HandleFunc("/abort", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half.")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		mux.Handle("/plain", ok)
		limited := middleware.New(g)(mux)
		returned := make(chan struct{}, 1)
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { returned <- struct{}{} }()
			limited.ServeHTTP(w, r)
		}))
		resp, err := s.Client().Get(s.URL + "/abort")
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, "half.", string(body))
		<-returned
		assert.Empty(t, s.log.String())

		resp = s.get(t, "/plain")
		if c := compartment(t, g, "all", ""); c.Breaker != nil {
			assert.Equal(t, "open", c.Breaker.State)
			assert.Equal(t, "open", reason(t, resp.Body))
		} else {
			assert.Equal(t, 200, resp.StatusCode)
		}
	})
}

// httputil.ReverseProxy, for one, aborts when its client goes away in the middle.
// That the client left is neutral all the same, unless its patience lasted longer
// than slowCall.
func TestAbortBecauseTheClientLeft(t *testing.T) {
	for name, test := range map[string]struct {
		lasts time.Duration
		calls int
		slow  float64
	}{
		"soon":       {time.Second - 1, 0, -1},
		"after long": {time.Second, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - {name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, slowCall: 1s, slowCallRate: 100, window: {calls: 2}}}
`)
				ctx, cancel := context.WithCancel(t.Context())
				h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(test.lasts)
					cancel()
					panic(http.ErrAbortHandler)
				}))
				assert.PanicsWithValue(t, http.ErrAbortHandler, func() { do(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil)) })
				c := compartment(t, g, "all", "")
				assert.Zero(t, c.InFlight)
				assert.Equal(t, test.calls, c.Breaker.Calls)
				assert.EqualValues(t, test.slow, c.Breaker.SlowCallRate)
				assert.LessOrEqual(t, c.Breaker.FailureRate, 0.0, "it never counts as failed")
			})
		})
	}
}

// A panic copies back what is on the request, too.
func TestPatternAfterAPanic(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/a/{id}", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h := middleware.New(guard(t, withPermits), middleware.Reentrant())(mux)
	r := httptest.NewRequest("GET", "/a/7", nil)
	assert.Panics(t, func() { do(h, r) })
	assert.Equal(t, "/a/{id}", r.Pattern)
}
