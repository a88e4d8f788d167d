package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/telemetry"
)

// Whoever ends a span never waits for the collector, however many are queued
// for it.
func TestSpansAreDroppedRatherThanWaitedFor(t *testing.T) {
	hang := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer c.Close()
	defer close(hang)
	tel, err := telemetry.New(t.Context(), telemetry.Config{OTLP: c.URL})
	require.NoError(t, err)

	done := make(chan struct{})
	go func() {
		defer close(done)
		tr := tel.Provider().Tracer("test")
		// Many times what the queue takes, and what a collector that times out
		// makes room for while the test is patient.
		for range 200_000 {
			_, span := tr.Start(context.Background(), "x")
			span.End()
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "a span waits for the collector")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tel.Shutdown(ctx), context.Canceled)
}
