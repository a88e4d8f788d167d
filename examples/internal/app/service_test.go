package app_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/policy"
)

func TestRoutes(t *testing.T) {
	a := start(t, "", app.Config{})
	for _, tt := range []struct {
		path   string
		status int
		body   string
	}{
		{"/delay/0", 200, "slept 0s\n"},
		{"/delay/20", 200, "slept 20ms\n"},
		{"/delay/600001", 400, "*"},
		{"/pool/20", 200, "a worker slept 20ms\n"},
		{"/pool/600001", 400, "*"},
		{"/pool/x", 400, "*"},
		{"/delay/-1", 400, "*"},
		{"/delay/+1", 400, "*"},
		{"/delay/1.5", 400, "*"},
		{"/delay/99999999999999999999", 400, "*"},
		{"/delay/x", 400, "*"},
		{"/delay/", 404, "*"},
		{"/status/200", 200, "200 OK\n"},
		{"/status/204", 204, ""},
		{"/status/205", 205, ""},
		{"/status/304", 304, ""},
		{"/status/404", 404, "404 Not Found\n"},
		{"/status/503", 503, "503 Service Unavailable\n"},
		{"/status/599", 599, "599 \n"},
		{"/status/100", 400, "*"},
		{"/status/101", 400, "*"},
		{"/status/199", 400, "*"},
		{"/status/600", 400, "*"},
		{"/status/999", 400, "*"},
		{"/status/-200", 400, "*"},
		{"/status/ok", 400, "*"},
		{"/stream/0", 200, ""},
		{"/stream/3?every=1ms", 200, "chunk 1 of 3\nchunk 2 of 3\nchunk 3 of 3\n"},
		{"/stream/2", 200, "chunk 1 of 2\nchunk 2 of 2\n"},
		{"/stream/2?every=0s", 200, "chunk 1 of 2\nchunk 2 of 2\n"},
		{"/stream/2?every=", 400, "*"},
		{"/stream/2?every=soon", 400, "*"},
		{"/stream/2?every=-1s", 400, "*"},
		{"/stream/2?every=2m", 400, "*"},
		{"/stream/100001", 400, "*"},
		{"/stream/x", 400, "*"},
		{"/upstream/nobody", 404, "*"},
		{"/upstream/nobody/x", 404, "*"},
		{"/healthz", 200, "ok\n"},
		{"/readyz", 200, "ready\n"},
		{"/debug/watertight.json", 200, "*"},
		{"/debug/traces", 200, "*"},
		{"/debug/traces?n=x", 400, "*"},
		{"/", 404, "*"},
		{"/debug/", 404, "*"},
		{"/healthz/", 404, "*"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			got := do(t, http.MethodGet, a.URL()+tt.path)
			assert.Equal(t, tt.status, got.StatusCode)
			if tt.body != "*" {
				assert.Equal(t, tt.body, got.body)
			}
			if tt.body != "" {
				assert.NotEmpty(t, got.Header.Get("Content-Type"))
			}

			head := do(t, http.MethodHead, a.URL()+tt.path)
			assert.Equal(t, tt.status, head.StatusCode, "HEAD")
			assert.Equal(t, got.Header.Get("Content-Type"), head.Header.Get("Content-Type"), "HEAD")
		})
	}
}

func TestOtherMethods(t *testing.T) {
	a := start(t, "", app.Config{})
	for _, path := range []string{"/delay/1", "/status/200", "/stream/1", "/healthz", "/readyz", "/debug/watertight.json", "/debug/traces"} {
		got := do(t, http.MethodPost, a.URL()+path)
		assert.Equal(t, http.StatusMethodNotAllowed, got.StatusCode, path)
		allow := strings.Join(got.Header.Values("Allow"), ", ")
		assert.Contains(t, allow, "GET", path)
		assert.Contains(t, allow, "HEAD", path)
	}
}

// The first chunk is there while the second is a minute away.
func TestStreamIsFlushed(t *testing.T) {
	a := start(t, "", app.Config{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL()+"/stream/2?every=1m", nil)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "chunk 1 of 2\n", line)
	assert.Equal(t, int64(1), inFlight(a, "streams", "/stream/{chunks}"))

	leave()
	eventually(t, func() bool { return inFlight(a, "streams", "/stream/{chunks}") == 0 }, "a stream should end when its client leaves")
}

func TestDelayEndsWhenItsClientLeaves(t *testing.T) {
	a := start(t, "", app.Config{})
	c := dial(t, a)
	c.say(t, "GET /delay/600000 HTTP/1.1", "Host: x", "", "")
	eventually(t, func() bool { return inFlight(a, "routes", "/delay/{ms}") == 1 }, "the call should begin")
	require.NoError(t, c.Close())
	eventually(t, func() bool { return inFlight(a, "routes", "/delay/{ms}") == 0 }, "the call should end")
}

// A client that closes its sending half looks like one that left. It can still
// read, and must not read that all went well.
func TestHalfClosedClientGetsNoFalseSuccess(t *testing.T) {
	a := start(t, "", app.Config{})
	t.Run("delay", func(t *testing.T) {
		c := dial(t, a)
		c.say(t, "GET /delay/600000 HTTP/1.1", "Host: x", "", "")
		require.NoError(t, c.CloseWrite())
		assert.Equal(t, http.StatusServiceUnavailable, c.head(t, "GET").StatusCode)
	})
	t.Run("stream", func(t *testing.T) {
		c := dial(t, a)
		c.say(t, "GET /stream/2?every=1m HTTP/1.1", "Host: x", "", "")
		resp := c.head(t, "GET")
		require.NoError(t, c.CloseWrite())
		_, err := io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// roomy is in nobody's way.
const roomy = `
version: 1
policies:
  - name: roomy
    bulkhead: {maxConcurrent: 1000}
`

func TestHTTP2(t *testing.T) {
	gate := newGate(t)
	a := start(t, roomy, app.Config{Upstreams: map[string]string{"gate": gate.url}})
	tr := http2(t)
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+path, nil)
		if !assert.NoError(t, err) {
			return 0, ""
		}
		resp, err := tr.RoundTrip(req)
		if !assert.NoError(t, err) {
			return 0, ""
		}
		defer resp.Body.Close()
		assert.Equal(t, 2, resp.ProtoMajor)
		body, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for path, want := range map[string]string{
		"/delay/1":            "slept 1ms\n",
		"/stream/2?every=1ms": "chunk 1 of 2\nchunk 2 of 2\n",
		"/healthz":            "ok\n",
	} {
		status, body := get(path)
		assert.Equal(t, http.StatusOK, status, path)
		assert.Equal(t, want, body, path)
	}

	// More at once, on one connection, than net/http lets in by default.
	const calls = 300
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			status, body := get("/upstream/gate/x")
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, "through the gate", body)
		})
	}
	for range calls {
		receive(t, gate.arrived)
	}
	assert.Equal(t, int64(calls), inFlight(a, "roomy", "/upstream/{name}/*"))
	gate.open()
	wg.Wait()
}

// The built-in policies must cope with what a load generator does first.
func TestBuiltInPoliciesUnderLoad(t *testing.T) {
	set, err := app.DefaultPolicies()
	require.NoError(t, err)
	assert.Empty(t, set.Warnings())

	fast := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fast") })
	a := start(t, "", app.Config{Upstreams: map[string]string{"fast": fast}})
	tr := &http.Transport{MaxConnsPerHost: 300, MaxIdleConnsPerHost: 300}
	defer tr.CloseIdleConnections()
	for path, clients := range map[string]int{
		"/delay/5":    200,
		"/status/200": 200,
		"/stream/1":   200,
		// A machine that is busy with other tests should not find it slow.
		"/upstream/fast/x": 50,
	} {
		t.Run(path, func(t *testing.T) {
			var mu sync.Mutex
			statuses := make(map[int]int)
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for range 5 {
						req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+path, nil)
						if !assert.NoError(t, err) {
							return
						}
						resp, err := tr.RoundTrip(req)
						if !assert.NoError(t, err) {
							return
						}
						_, err = io.Copy(io.Discard, resp.Body)
						assert.NoError(t, err)
						resp.Body.Close()
						mu.Lock()
						statuses[resp.StatusCode]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			assert.Equal(t, map[int]int{200: 5 * clients}, statuses)
		})
	}
}

func TestDelayDelays(t *testing.T) {
	a := start(t, "", app.Config{})
	began := time.Now()
	const ms = 30
	do(t, http.MethodGet, a.URL()+"/delay/"+strconv.Itoa(ms))
	assert.GreaterOrEqual(t, time.Since(began), ms*time.Millisecond)
}

// More than the workers and their backlog can take is refused, by the pool.
func TestPool(t *testing.T) {
	a := start(t, "", app.Config{})
	running := make([]<-chan reply, 12)
	for i := range running {
		running[i] = later(t, http.MethodGet, a.URL()+"/pool/600000")
	}
	eventually(t, func() bool {
		p := compartment(a, "jobs", "").Pool
		return p.Active == 4 && p.Queued == 8
	}, "the pool should be full")
	got := do(t, http.MethodGet, a.URL()+"/pool/0")
	assert.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
	assert.Equal(t, "full", got.reason())
	assert.EqualValues(t, 1, compartment(a, "jobs", "").Rejected["full"])
}

func TestPoolsNameIsTaken(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte("version: 1\npolicies: [{name: jobs, bulkhead: {maxConcurrent: 1}}]\n"))
	require.NoError(t, err)
	_, err = app.Start(t.Context(), app.Config{Policies: set, Admin: "127.0.0.1:0"})
	require.ErrorContains(t, err, `"jobs"`)
}
