package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// cached answers 200 with a page that needs no permit.
func cached(w http.ResponseWriter, _ *http.Request, _ *watertight.RejectedError) {
	io.WriteString(w, "yesterday's page")
}

// Every refusal comes to the handler, with the request as it came, and what the
// handler writes is the answer.
func TestRejectHandlerAnswers(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - name: all
    side: server
    per: policy
    bulkhead: {maxConcurrent: 1}
    breaker: {minCalls: 1}
    reject: {status: {full: 429, open: 502}, retryAfter: 1500ms}
`)
	var got []*watertight.RejectedError
	var seen *http.Request
	status := 200
	gate := newGate()
	h := middleware.New(g, middleware.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
		got = append(got, rejected)
		seen = r
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(rejected.StatusCode())
		fmt.Fprintf(w, "<p>%s", rejected.Reason)
	}), middleware.WithRejectHandler(nil))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate.ServeHTTP(w, r)
		w.WriteHeader(status)
	}))
	check := func(code int, retryAfter, body string) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		w := do(h, r)
		assert.Same(t, r, seen)
		assert.Equal(t, code, w.Code)
		assert.Equal(t, body, w.Body.String())
		assert.Equal(t, "text/html", w.Header().Get("Content-Type"))
		assert.Equal(t, retryAfter, w.Header().Get("Retry-After"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}

	held := gate.hold(h, "/")
	check(429, "2", "<p>full")
	close(gate.open)
	<-held
	call, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server})
	require.NoError(t, err)
	call.SettleFailure()
	call.Release()
	check(502, "30", "<p>open")
	require.NoError(t, g.Drain(t.Context()))
	check(503, "2", "<p>draining")

	require.Len(t, got, 3)
	for _, rejected := range got {
		assert.Equal(t, "all", rejected.Policy)
	}
}

// A caller that left the queue comes to the handler as well: it may have closed
// only its sending half.
func TestRejectHandlerOfACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
		gate := newGate()
		var reason policy.Reason
		h := middleware.New(g, middleware.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
			assert.ErrorIs(t, rejected, r.Context().Err())
			reason = rejected.Reason
			cached(w, r, rejected)
		}))(gate)
		held := gate.hold(h, "/")
		client := servePipes(t, h)()
		client.send("GET / HTTP/1.1", "Host: here")
		synctest.Wait()
		require.NoError(t, client.Close())
		synctest.Wait()
		assert.Equal(t, policy.ReasonCanceled, reason)
		close(gate.open)
		<-held
	})
}

// E02, for handlers of one's own: they know nothing of request bodies that never
// come, and need not.
func TestRejectHandlerIsNotStuckBehindTheBody(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}")
	call, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server})
	require.NoError(t, err)
	defer call.Release()
	s := serve(t, middleware.New(g, middleware.WithRejectHandler(cached))(ok))

	client := s.dial(t)
	client.send("POST / HTTP/1.1", "Host: here", "Content-Length: 1000")
	resp := client.receive("POST")
	assert.Equal(t, 200, resp.StatusCode)
	assert.True(t, resp.Close)
	_, err = client.r.ReadByte()
	assert.Equal(t, io.EOF, err, "the server does not wait for the body for ever")

	keeps := s.dial(t)
	for range 2 {
		keeps.send("GET / HTTP/1.1", "Host: here")
		assert.False(t, keeps.receive("GET").Close)
	}
}

// Whatever status the handler chooses, the answer stays a refusal to a breaker
// further out, and for the Guard.
func TestRejectHandlerIsNoOutcome(t *testing.T) {
	outer := guard(t, "{version: 1, policies: [{name: watch, side: server, per: policy, breaker: {minCalls: 1}}]}")
	inner := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}")
	call, err := inner.Admit(t.Context(), &policy.Request{Side: policy.Server})
	require.NoError(t, err)
	defer call.Release()
	for _, status := range []int{200, 503} {
		h := middleware.New(outer)(middleware.New(inner, middleware.WithRejectHandler(
			func(w http.ResponseWriter, _ *http.Request, _ *watertight.RejectedError) { w.WriteHeader(status) }))(ok))
		assert.Equal(t, status, get(h, "/").Code)
		assert.Zero(t, compartment(t, outer, "watch", "").Breaker.Calls)
	}
	assert.EqualValues(t, 2, compartment(t, inner, "all", "").Rejected["full"])
}

// The default is one call away, also for a handler that answers some itself; what
// somebody further out set for another body is gone either way.
func TestRejectHandlerMayPassOn(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}")
	call, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server})
	require.NoError(t, err)
	defer call.Release()
	h := middleware.New(g, middleware.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
		if r.Method == "GET" {
			cached(w, r, rejected)
			return
		}
		middleware.WriteRejection(w, r, rejected)
	}))(ok)
	compressing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		h.ServeHTTP(w, r)
	})
	w := get(compressing, "/")
	assert.Equal(t, "yesterday's page", w.Body.String())
	assert.NotContains(t, w.Header(), "Content-Encoding")
	w = do(compressing, httptest.NewRequest("POST", "/", nil))
	assert.NotContains(t, w.Header(), "Content-Encoding")
	requireRefused(t, w, 503, "full")
}

// A handler that panics costs nobody a permit, and its panic goes on.
func TestRejectHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}]}")
		call, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server})
		require.NoError(t, err)
		h := middleware.New(g, middleware.WithRejectHandler(func(http.ResponseWriter, *http.Request, *watertight.RejectedError) {
			panic(http.ErrAbortHandler)
		}))(ok)
		start := time.Now()
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { get(h, "/") })
		assert.Equal(t, time.Second, time.Since(start))
		call.Release()
		assert.Equal(t, 200, get(h, "/").Code)
		assert.Zero(t, compartment(t, g, "all", "").Bulkhead.InFlight)
	})
}

// Whoever finds a page in the cache gets that when there is no permit.
func ExampleWithRejectHandler() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies: [{name: pages, side: server, bulkhead: {maxConcurrent: 1}}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	wt := watertight.New(policies)
	cache := map[string]string{"/news": "yesterday's news"}

	entered, finish := make(chan bool), make(chan bool)
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-finish
	})
	limited := middleware.New(wt, middleware.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
		page, ok := cache[r.URL.Path]
		if !ok {
			middleware.WriteRejection(w, r, rejected)
			return
		}
		w.Header().Set("Warning", `110 - "Response is Stale"`)
		io.WriteString(w, page)
	}))(pages)

	go limited.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	<-entered
	for _, path := range []string{"/news", "/weather"} {
		rec := httptest.NewRecorder()
		limited.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, rec.Code, rec.Header().Get("Content-Type"))
	}
	close(finish)
	// Output:
	// /news 200 text/plain; charset=utf-8
	// /weather 503 application/problem+json
}
