package middleware_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

const (
	queuedGet  = "GET /work HTTP/1.1\r\nHost: here\r\n\r\n"
	queuedPost = "POST /work HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
)

// E01, on the wire: a server notices that the client of a GET left, and cannot
// notice it for a POST whose body nobody has read; then maxWait ends the wait.
func TestClientLeavesTheQueue(t *testing.T) {
	for _, test := range []struct {
		name, request, maxWait, result string
	}{
		{"GET: noticed", queuedGet, "1h", "canceled"},
		{"POST: at maxWait", queuedPost, "100ms", "wait_timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			waits := make(chan watertight.WaitEvent, 1)
			g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: "+test.maxWait+"}}]}",
				watertight.WithHooks(watertight.Hooks{Wait: func(_ context.Context, e watertight.WaitEvent) { waits <- e }}))
			gate := newGate()
			var ran atomic.Int64
			mux := http.NewServeMux()
			mux.Handle("/held", gate)
			mux.HandleFunc("/work", func(http.ResponseWriter, *http.Request) { ran.Add(1) })
			limited := middleware.New(g)(mux)
			arrived := make(chan struct{}, 1)
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				limited.ServeHTTP(w, r)
			}))
			held := gate.hold(limited, "/held")

			client := s.dial(t)
			_, err := client.Write([]byte(test.request))
			require.NoError(t, err)
			<-arrived
			for compartment(t, g, "all", "").Bulkhead.Queued == 0 && len(waits) == 0 {
				// Until it queues.
			}
			require.NoError(t, client.Close())
			assert.Equal(t, test.result, (<-waits).Result)
			assert.Zero(t, compartment(t, g, "all", "").Bulkhead.Queued)

			close(gate.open)
			assert.Equal(t, 200, (<-held).Code)
			assert.Equal(t, 200, get(limited, "/work").Code, "the permit is free")
			assert.EqualValues(t, 1, ran.Load(), "the handler did not run for nobody")
		})
	}
}

// E01, and a server whose client leaves after 0.1 s while it would wait for 2 s:
// to the millisecond.
func TestWhenTheClientOfAQueuedRequestLeaves(t *testing.T) {
	for _, test := range []struct {
		name, request string
		freed         time.Duration // when the permit comes back; 0: never
		ends          time.Duration // when the queue is empty again
		ran           int64
		left, timeout uint64
	}{
		{"GET", queuedGet, 0, 100 * time.Millisecond, 0, 1, 0},
		{"POST", queuedPost, 0, 2 * time.Second, 0, 0, 1},
		{"POST, granted meanwhile", queuedPost, time.Second, time.Second, 1, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 2s}}]}")
				gate := newGate()
				var ran atomic.Int64
				mux := http.NewServeMux()
				mux.Handle("/held", gate)
				mux.HandleFunc("/work", func(http.ResponseWriter, *http.Request) { ran.Add(1) })
				limited := middleware.New(g)(mux)
				ended := make(chan time.Time, 1)
				dial := servePipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					limited.ServeHTTP(w, r)
					ended <- time.Now()
				}))
				gate.hold(limited, "/held")

				began := time.Now()
				client := dial()
				_, err := client.Write([]byte(test.request))
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, 1, compartment(t, g, "all", "").Bulkhead.Queued)
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, client.Close())
				if test.freed > 0 {
					time.Sleep(time.Until(began.Add(test.freed)))
					close(gate.open)
				}

				assert.Equal(t, test.ends, (<-ended).Sub(began))
				synctest.Wait()
				c := compartment(t, g, "all", "")
				assert.Zero(t, c.Bulkhead.Queued)
				assert.Equal(t, test.ran, ran.Load())
				assert.Equal(t, test.left, c.Left)
				assert.Equal(t, test.timeout, c.Rejected["wait_timeout"])
				if test.freed == 0 {
					close(gate.open)
					synctest.Wait()
				}
				assert.Zero(t, compartment(t, g, "all", "").InFlight)
				assert.Equal(t, 200, get(limited, "/work").Code)
			})
		})
	}
}

// A client that closed only its sending half still reads, and must not take an
// empty 200 for success.
func TestHalfClosedClientIsToldThatItWasGivenUp(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
	gate := newGate()
	limited := middleware.New(g)(gate)
	s := serve(t, limited)
	held := gate.hold(limited, "/")

	client := s.dial(t)
	_, err := client.Write([]byte(queuedGet))
	require.NoError(t, err)
	require.NoError(t, client.Conn.(*net.TCPConn).CloseWrite())
	resp := client.receive("GET")
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "canceled", reason(t, resp.Body))
	assert.EqualValues(t, 1, compartment(t, g, "all", "").Left)
	assert.Zero(t, compartment(t, g, "all", "").Rejected["full"])
	close(gate.open)
	<-held
}

// The time that somebody further out gives a request is the caller's own, too: it
// is neither a refusal nor waited out.
func TestDeadlineWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 2s}}]}")
		gate := newGate()
		h := middleware.New(g)(gate)
		gate.hold(h, "/")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		w := do(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		assert.Equal(t, time.Second, time.Since(began))
		requireRefused(t, w, 503, "canceled")
		assert.EqualValues(t, 1, compartment(t, g, "all", "").Left)
		close(gate.open)
	})
}
