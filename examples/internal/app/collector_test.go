package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
)

// A collector that is away, or hangs, costs spans and nothing else: no call
// waits for it, and the server ends without it.
func TestServerDoesNotNeedItsCollector(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close() // now nobody listens there

	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer hanging.Close()
	defer close(hang) // only when all is over

	for name, url := range map[string]string{"away": away.URL, "hanging": hanging.URL} {
		t.Run(name, func(t *testing.T) {
			a := start(t, "", app.Config{OTLP: url, Drain: patience})
			// Each call makes two spans, so that these are more than are kept
			// for the collector.
			const workers, calls = 10, 1000
			tr := &http.Transport{MaxIdleConnsPerHost: workers}
			defer tr.CloseIdleConnections()
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range calls {
						req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/delay/0", nil)
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
						if !assert.Equal(t, http.StatusOK, resp.StatusCode) {
							return
						}
					}
				})
			}
			wg.Wait()
			done := make(chan error, 1)
			go func() { done <- a.Shutdown(context.Background()) }()
			require.NoError(t, receive(t, done), "the collector is no reason to fail")
		})
	}
}
