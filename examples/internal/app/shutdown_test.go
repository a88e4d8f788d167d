package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
)

// narrow lets one call into the gateway and one wait for it.
const narrow = `
version: 1
policies:
  - name: exempt
    side: server
    match: [{path: /status/200}]
    exempt: true
  - name: narrow
    side: server
    match:
      - route: /upstream/{name}/*
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1h}
`

func TestDrain(t *testing.T) {
	gate := newGate(t)
	a := start(t, narrow, app.Config{
		Upstreams: map[string]string{"gate": gate.url},
		Drain:     time.Hour,
	})
	const key = "/upstream/{name}/*"
	inside := later(t, http.MethodGet, a.URL()+"/upstream/gate/")
	receive(t, gate.arrived)
	waits := later(t, http.MethodGet, a.URL()+"/upstream/gate/")
	eventually(t, func() bool { return queued(a, "narrow", key) == 1 }, "the second call should queue")
	keptAlive := dial(t, a)
	keptAlive.say(t, "HEAD /status/200 HTTP/1.1", "Host: x", "", "")
	require.Equal(t, http.StatusOK, keptAlive.head(t, "HEAD").StatusCode)

	ended := make(chan error, 1)
	go func() { ended <- a.Shutdown(t.Context()) }()

	refused := receive(t, waits)
	assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode, "the call that queued")
	assert.Equal(t, "draining", refused.reason())
	eventually(t, func() bool { return !a.Guard().Ready() }, "draining should begin")
	for path, want := range map[string]string{
		"/upstream/gate/": "draining", // limited
		"/delay/0":        "draining", // no policy matches
		"/no/such/route":  "draining", // no route matches
	} {
		got := do(t, http.MethodGet, a.URL()+path)
		assert.Equal(t, http.StatusServiceUnavailable, got.StatusCode, path)
		assert.Equal(t, want, got.reason(), path)
		assert.NotEmpty(t, got.Header.Get("Retry-After"), path)
	}
	for path, status := range map[string]int{
		"/status/200":            http.StatusOK, // exempt
		"/healthz":               http.StatusOK,
		"/readyz":                http.StatusServiceUnavailable,
		"/debug/watertight.json": http.StatusOK,
		"/debug/traces":          http.StatusOK,
	} {
		assert.Equal(t, status, do(t, http.MethodGet, a.URL()+path).StatusCode, path)
		assert.Equal(t, status, do(t, http.MethodHead, a.URL()+path).StatusCode, path)
	}
	keptAlive.say(t, "HEAD /delay/0 HTTP/1.1", "Host: x", "", "")
	assert.Equal(t, http.StatusServiceUnavailable, keptAlive.head(t, "HEAD").StatusCode, "an old connection")

	select {
	case err := <-ended:
		require.Fail(t, "Shutdown did not wait", "%v", err)
	default:
	}
	gate.open()
	got := receive(t, inside)
	assert.Equal(t, http.StatusOK, got.StatusCode)
	assert.Equal(t, "through the gate", got.body)
	require.NoError(t, receive(t, ended))
	_, err := http.Get(a.URL() + "/healthz")
	assert.Error(t, err, "the listener should be closed")
}

func TestNothingToDrain(t *testing.T) {
	a := start(t, "", app.Config{})
	c := dial(t, a) // idle
	c.say(t, "GET /status/200 HTTP/1.1", "Host: x", "", "")
	require.Equal(t, http.StatusOK, c.head(t, "GET").StatusCode)
	require.NoError(t, a.Shutdown(t.Context()))
}

// A client that does not finish its request has no call inside, and nothing is
// cut off when its connection is closed.
func TestUnfinishedRequestIsNoCall(t *testing.T) {
	a := start(t, "", app.Config{Drain: 50 * time.Millisecond})
	c := dial(t, a)
	// The second request on the connection: before its first, net/http takes it
	// for idle.
	c.say(t, "GET /status/204 HTTP/1.1", "Host: x", "", "GET /delay/")
	require.Equal(t, http.StatusNoContent, c.head(t, "GET").StatusCode)
	require.NoError(t, a.Shutdown(t.Context()))
	_, err := io.ReadAll(c.r)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection should be closed")
}

func TestCutOff(t *testing.T) {
	hold := func(t *testing.T, a *app.App, c *raw, request ...string) {
		c.say(t, request...)
		eventually(t, func() bool {
			var n int64
			for _, c := range a.Guard().Snapshot().Compartments {
				if c.Side == "server" {
					n += c.InFlight
				}
			}
			return n == 1
		}, "the call should be inside")
	}
	session := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	for _, tt := range []struct {
		name    string
		request []string
	}{
		{"limited", []string{"GET /delay/600000 HTTP/1.1", "Host: x", "", ""}},
		{"streaming", []string{"GET /stream/2?every=1m HTTP/1.1", "Host: x", "", ""}},
		{"upgraded", []string{"GET /upstream/session/ HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo", "", ""}},
	} {
		for policies, yaml := range map[string]string{"limited": "", "unlimited": "version: 1\npolicies: []\n"} {
			t.Run(tt.name+"/"+policies, func(t *testing.T) {
				a := start(t, yaml, app.Config{
					Drain:     time.Millisecond,
					Upstreams: map[string]string{"session": session},
				})
				c := dial(t, a)
				hold(t, a, c, tt.request...)
				require.ErrorIs(t, a.Shutdown(t.Context()), app.ErrCutOff)
				// And it is over: for the client, for the handler, for all.
				_, _ = io.ReadAll(c.r)
				_, err := http.Get(a.URL() + "/healthz")
				assert.Error(t, err, "the listener should be closed")
				for _, c := range a.Guard().Snapshot().Compartments {
					assert.Zero(t, c.InFlight, c.Policy)
				}
			})
		}
	}
}
