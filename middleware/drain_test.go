package middleware_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// The whole way down over a real server: those who queue and those who come are
// told, with the listener still open; exempt requests pass; who is inside finishes;
// and then nothing keeps the server.
func TestDrainThenShutdown(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: slow, side: server, match: [{path: /slow}], bulkhead: {maxConcurrent: 1, maxWait: 1h}}
  - {name: watched, side: server, match: [{path: /watched}], breaker: {}}
`)
	gate := newGate()
	mux := http.NewServeMux()
	mux.Handle("/slow", gate)
	mux.Handle("/watched", ok)
	mux.Handle("/other", ok)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !g.Ready() {
			io.WriteString(w, "draining")
		}
	})
	s := serve(t, middleware.New(g)(mux))
	answer := func() <-chan *http.Response {
		c := make(chan *http.Response, 1)
		go func() {
			defer close(c)
			if resp, err := s.Client().Get(s.URL + "/slow"); assert.NoError(t, err) {
				c <- resp
			}
		}()
		return c
	}
	inside := answer()
	<-gate.entered
	queued := answer()
	for compartment(t, g, "slow", "/slow").Bulkhead.Queued == 0 {
		runtime.Gosched()
	}

	drained := make(chan error, 1)
	go func() { drained <- g.Drain(t.Context()) }()
	resp := readAll(t, <-queued)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Equal(t, "draining", reason(t, resp.Body))
	for _, path := range []string{"/slow", "/watched", "/other", "/unknown"} {
		resp := s.get(t, path)
		assert.Equal(t, 503, resp.StatusCode, path)
		assert.Equal(t, "draining", reason(t, resp.Body), path)
	}
	resp = s.get(t, "/healthz")
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "draining", resp.Body.(nopCloser).String())
	assert.Empty(t, drained)

	close(gate.open)
	resp = readAll(t, <-inside)
	assert.Equal(t, 200, resp.StatusCode)
	require.NoError(t, <-drained)
	require.NoError(t, s.Config.Shutdown(t.Context()))
	assert.EqualValues(t, 2, compartment(t, g, "slow", "/slow").Rejected["draining"])
	assert.EqualValues(t, 2, compartment(t, g, "(unmatched)", "").Rejected["draining"])
	assert.Empty(t, s.log.String())
}
