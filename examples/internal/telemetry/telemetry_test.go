package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/watertight-go/watertight/examples/internal/telemetry"
)

// A collector is as much of one as a test needs. The body of a request is
// protobuf, in which strings stand as they are.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	paths  []string
	bodies bytes.Buffer
	status int
}

func newCollector(t *testing.T) *collector {
	c := &collector{status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paths = append(c.paths, r.URL.Path)
		_, _ = io.Copy(&c.bodies, r.Body)
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

func TestShutdownSendsWhatIsQueued(t *testing.T) {
	c := newCollector(t)
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "the-service", OTLP: c.URL})
	require.NoError(t, err)
	assert.Nil(t, tel.Store())
	_, span := tel.Provider().Tracer("test").Start(t.Context(), "the-span")
	span.End()
	require.NoError(t, tel.Shutdown(t.Context()))

	assert.Equal(t, []string{"/v1/traces"}, c.paths)
	assert.Contains(t, c.bodies.String(), "the-service")
	assert.Contains(t, c.bodies.String(), "the-span")
}

// A collector that is away costs one line in the log, however long it is.
func TestUnreachableCollectorIsLoggedOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close()) // now nobody listens there
	var log bytes.Buffer
	tel, err := telemetry.New(t.Context(), telemetry.Config{
		OTLP:   "http://" + ln.Addr().String(),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	tr := tel.Provider().Tracer("test")
	for range 10_000 { // several batches
		_, span := tr.Start(t.Context(), "x")
		span.End()
	}
	require.NoError(t, tel.Shutdown(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", &log)
	assert.Contains(t, log.String(), "cannot be reached")
}

// A collector that takes the connection and never answers must not keep a
// program from ending.
func TestHangingCollectorDoesNotHoldUpShutdown(t *testing.T) {
	hang := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer c.Close()
	defer close(hang)
	tel, err := telemetry.New(t.Context(), telemetry.Config{OTLP: c.URL})
	require.NoError(t, err)
	_, span := tel.Provider().Tracer("test").Start(t.Context(), "x")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tel.Shutdown(ctx), context.DeadlineExceeded)
}

func TestAttributesAreBounded(t *testing.T) {
	tel, err := telemetry.New(t.Context(), telemetry.Config{})
	require.NoError(t, err)
	_, span := tel.Provider().Tracer("test").Start(t.Context(), "x")
	span.SetAttributes(attribute.String("url.path", strings.Repeat("p", 1<<20)))
	for range 100 {
		span.AddEvent("e")
	}
	span.End()
	got, ok := tel.Store().Latest("x", nil)
	require.True(t, ok)
	v, _ := got.Spans[0].Attribute("url.path")
	assert.Len(t, v.AsString(), 256)
	assert.LessOrEqual(t, len(got.Spans[0].Events), 16)
}

func TestStoreIsShared(t *testing.T) {
	store := telemetry.NewStore()
	for _, service := range []string{"client", "server"} {
		tel, err := telemetry.New(t.Context(), telemetry.Config{Service: service, Store: store})
		require.NoError(t, err)
		_, span := tel.Provider().Tracer("test").Start(t.Context(), service)
		span.End()
		require.NoError(t, tel.Shutdown(t.Context()))
	}
	assert.Len(t, store.Traces(), 2)
}

func TestParseOTLP(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"},
		{"http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"},
		{"https://collector/in/traces", "https://collector/in/traces"},
		{"127.0.0.1:4318", ""},
		{"localhost:4318", ""},
		{"http://", ""},
		{"ftp://127.0.0.1", ""},
		{"http://user@host", ""},
		{"http://host?x", ""},
		{"http://host#x", ""},
		{"http://ho st", ""},
		{"", ""},
	} {
		got, err := telemetry.ParseOTLP(tt.in)
		assert.Equal(t, tt.want, got, tt.in)
		assert.Equal(t, tt.want == "", err != nil, tt.in)
	}
	_, err := telemetry.New(t.Context(), telemetry.Config{OTLP: "x"})
	assert.Error(t, err)
}
