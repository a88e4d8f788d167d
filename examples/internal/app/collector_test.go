package app_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/app"
)

// A collector that is away, or hangs, costs spans and nothing else: calls are
// served, and the server ends without it.
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
			for range 100 {
				assert.Equal(t, http.StatusOK, do(t, http.MethodGet, a.URL()+"/delay/0").StatusCode)
			}
			done := make(chan error, 1)
			go func() { done <- a.Shutdown(context.Background()) }()
			require.NoError(t, receive(t, done), "the collector is no reason to fail")
		})
	}
}
