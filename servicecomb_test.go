package watertight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A file as a team has it for its services in Java: the application's, with the
// policies in both spellings.
const governance = `
server:
  port: 8080
spring:
  application:
    name: shop-api
  profiles:
    active: ${PROFILE:dev}
servicecomb:
  rest:
    address: 0.0.0.0:8080
  matchGroup:
    reports: |
      matches:
        - apiPath:
            prefix: /reports/
          method: [GET]
    imports: |
      matches:
        - apiPath:
            exact: /imports
      services: shop-api
    closed: |
      matches:
        - apiPath:
            prefix: /closed
    allOperation:
      matches:
        - apiPath: {prefix: "/"}
  bulkhead:
    reports: |
      maxConcurrentCalls: 1
    imports: |
      maxConcurrentCalls: 1
      maxWaitDuration: 1
  circuitBreaker:
    reports: |
      order: 1
      slidingWindowType: COUNT_BASED
      slidingWindowSize: 4
      minimumNumberOfCalls: 2
      recordFailureStatus: [500, 502]
      waitDurationInOpenState: 20s
    closed: |
      forceOpen: true
  instanceBulkhead: {allOperation: {maxConcurrentCalls: 20, maxWaitDuration: 1000}}
  retry:
    allOperation: |
      maxAttempts: 2
`

// On a server one bulkhead and one breaker stand for the whole policy, whatever the
// route.
func TestServiceCombOnAServer(t *testing.T) {
	g := guard(t, governance)
	inside, leave := make(chan struct{}), make(chan int)
	mux := http.NewServeMux()
	handler := func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		w.WriteHeader(<-leave)
	}
	mux.HandleFunc("/reports/{id}", handler)
	mux.HandleFunc("/imports", handler)
	mux.HandleFunc("/closed/{id}", handler)
	mux.HandleFunc("/open", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(middleware.New(g)(mux))
	t.Cleanup(s.Close)
	send := func(path string) *http.Response {
		resp, err := http.Get(s.URL + path)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	held := func(path string, status int, meanwhile func()) {
		var wg sync.WaitGroup
		wg.Go(func() { assert.Equal(t, status, send(path).StatusCode) })
		<-inside
		meanwhile()
		leave <- status
		wg.Wait()
	}

	held("/reports/1", 200, func() {
		resp := send("/reports/2")
		assert.Equal(t, 503, resp.StatusCode, "full, and nobody may wait")
		assert.Equal(t, "1", resp.Header.Get("Retry-After"))
		assert.Equal(t, 200, send("/open").StatusCode, "another policy's bulkhead, or none")
	})
	held("/imports", 200, func() {
		assert.Equal(t, 408, send("/imports").StatusCode, "waited for maxWaitDuration")
	})
	assert.Equal(t, 503, send("/closed/1").StatusCode, "forceOpen")

	held("/reports/3", 503, func() {}) // not among recordFailureStatus
	held("/reports/4", 500, func() {})
	held("/reports/5", 502, func() {}) // two of four have failed
	resp := send("/reports/6")
	assert.Equal(t, 503, resp.StatusCode, "the breaker is open")
	assert.Equal(t, "20", resp.Header.Get("Retry-After"), "waitDurationInOpenState")

	reports := compartment(t, g, "reports", "")
	assert.Equal(t, "server", reports.Side)
	assert.Equal(t, map[string]uint64{"full": 1, "open": 1}, nonZero(reports.Rejected))
	assert.Equal(t, uint64(4), reports.Granted)
	assert.Equal(t, 1, reports.Bulkhead.Limit)
	assert.Equal(t, "open", reports.Breaker.State, "one policy, since the bulkhead and the breaker have one name")
	assert.Equal(t, map[string]uint64{"wait_timeout": 1}, nonZero(compartment(t, g, "imports", "").Rejected))
	assert.Equal(t, "forced_open", compartment(t, g, "closed", "").Breaker.State)
}

func nonZero(counts map[string]uint64) map[string]uint64 {
	some := map[string]uint64{}
	for reason, n := range counts {
		if n > 0 {
			some[reason] = n
		}
	}
	return some
}

// On a client each host is an instance: it has its own bulkhead. The permit is held
// until the body ends.
func TestServiceCombOnAClient(t *testing.T) {
	g := guard(t, governance)
	leave := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-leave
	}))
	t.Cleanup(slow.Close)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(other.Close)
	client := &http.Client{Transport: transport.New(nil, g)}
	t.Cleanup(client.CloseIdleConnections)
	get := func(url string) *http.Response {
		resp, err := client.Get(url)
		require.NoError(t, err)
		return resp
	}

	var open []*http.Response
	for range 20 {
		open = append(open, get(slow.URL+"/any"))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		resp := get(slow.URL) // the 21st waits
		assert.NoError(t, resp.Body.Close())
	})
	for compartment(t, g, "allOperation", slow.URL).Bulkhead.Queued == 0 {
		runtime.Gosched()
	}
	assert.NoError(t, get(other.URL).Body.Close(), "another host")
	assert.NoError(t, open[0].Body.Close())
	wg.Wait()

	full := compartment(t, g, "allOperation", slow.URL)
	assert.Equal(t, "client", full.Side)
	assert.Equal(t, 20, full.Bulkhead.Limit)
	assert.Equal(t, 20, full.Bulkhead.Peak)
	assert.Equal(t, uint64(21), full.Granted)
	assert.Equal(t, uint64(1), compartment(t, g, "allOperation", other.URL).Granted)
	close(leave)
	for _, resp := range open[1:] {
		assert.NoError(t, resp.Body.Close())
	}
}

// maxWaitDuration of a published experiment: a thousand milliseconds.
func TestServiceCombMaxWaitDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, governance)
		for range 20 {
			defer admit(t, g, to("stock:8080")).Release()
		}
		start := time.Now()
		_, err := g.Admit(t.Context(), to("stock:8080"))
		rejected, ok := errors.AsType[*watertight.RejectedError](err)
		require.True(t, ok, "%v", err)
		assert.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, "allOperation", rejected.Policy)
		assert.Equal(t, "http://stock:8080", rejected.Key)
	})
}

// A breaker that is held in a state stays in it, whatever comes of the calls.
func TestForcedBreakers(t *testing.T) {
	g := guard(t, `
version: 1
defaults: {maxCompartments: 2}
policies:
  - {name: open, match: [{path: /open}], breaker: {force: open, openFor: 1ms}, reject: {retryAfter: 7s}}
  - {name: closed, match: [{path: /closed}], per: policy, breaker: {force: closed, minCalls: 1}}
`)
	for _, key := range []string{"http://a:80", "http://b:80", "http://c:80"} {
		r := to(key[len("http://"):])
		r.EscapedPath = "/open"
		for range 3 {
			_, err := g.Admit(t.Context(), r)
			rejected, ok := errors.AsType[*watertight.RejectedError](err)
			require.True(t, ok, "%v", err)
			assert.ErrorIs(t, err, breaker.ErrOpen)
			assert.Equal(t, 7*time.Second, rejected.RetryAfter, "nobody knows when it ends")
			assert.Equal(t, key, rejected.Key, "what is at rest makes room, though it is not closed")
		}
	}
	r := to("a")
	r.EscapedPath = "/closed"
	for range 10 {
		c := admit(t, g, r)
		c.SettleFailure()
		c.Release()
	}
	c := compartment(t, g, "closed", "")
	assert.Equal(t, "disabled", c.Breaker.State)
	assert.Zero(t, c.Breaker.Calls)
	assert.Equal(t, policy.ForceOpen, g.Policies().Rules()[0].Breaker.Force)
}

// A name may be that of a policy on each side. A reload leaves both where they are.
func TestServiceCombReload(t *testing.T) {
	const file = `
servicecomb:
  matchGroup.all: {matches: [{apiPath: {prefix: "/"}}]}
  bulkhead.all: {maxConcurrentCalls: 1}
  instanceBulkhead.all: {maxConcurrentCalls: 1}
`
	g := guard(t, file)
	in, out := on("/a"), to("stock:80")
	defer admit(t, g, in).Release()
	defer admit(t, g, out).Release()
	set, err := policy.Parse("test.yaml", []byte(file))
	require.NoError(t, err)
	g.Reload(set)
	for _, r := range []*policy.Request{in, out} {
		_, err := g.Admit(t.Context(), r)
		assert.ErrorIs(t, err, bulkhead.ErrFull, "%v: what is inside counts after the reload", r.Side)
	}
}

// Do is a client, and names the policies for it once.
func TestServiceCombDo(t *testing.T) {
	g := guard(t, governance)
	assert.EqualError(t, g.Do(t.Context(), "none", func(context.Context) error { return nil }),
		`watertight: there is no policy "none"; those for the client side are "allOperation"`)
	assert.ErrorContains(t, g.Do(t.Context(), "reports", func(context.Context) error { return nil }),
		`policy "reports" is for the server side`)
	both := guard(t, `
servicecomb:
  matchGroup.all: {matches: [{apiPath: {prefix: "/"}}]}
  bulkhead.all: {maxConcurrentCalls: 1}
  instanceBulkhead.all: {maxConcurrentCalls: 1}
`)
	assert.EqualError(t, both.Do(t.Context(), "none", func(context.Context) error { return nil }),
		`watertight: there is no policy "none"; those for the client side are "all"`)
	assert.NoError(t, both.Do(t.Context(), "all", func(context.Context) error { return nil }))
}
