package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

const costly = `
version: 1
policies:
  - {name: fixed, side: server, match: [{path: /fixed}], per: policy, bulkhead: {maxConcurrent: 100, maxWait: 1s}}
  - {name: keyed, side: server, match: [{path: /keyed}], bulkhead: {maxConcurrent: 100}}
  - {name: watched, side: server, match: [{path: /watched}], per: policy, bulkhead: {maxConcurrent: 100}, breaker: {slowCall: 1s}}
  - {name: full, side: server, match: [{path: /full}], per: policy, bulkhead: {maxConcurrent: 1}}
`

// nullWriter is a server's writer as far as its abilities go, without a server.
type nullWriter struct{ header http.Header }

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) WriteHeader(int)             {}
func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *nullWriter) Flush()                      {}

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A pass without a breaker allocates nothing beyond what the handler does. With a
// breaker it takes two allocations: the recorder, and what gives it exactly the
// abilities of the writer beneath.
func TestPassAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for path, want := range map[string]float64{"/unlimited": 0, "/fixed": 0, "/keyed": 0, "/watched": 2} {
		h := middleware.New(guard(t, costly))(noop)
		w := &nullWriter{http.Header{}}
		r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
		assert.Equal(t, want, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), path)
	}
}

// A refusal allocates its error and one array for the values of its headers.
func TestRefusalAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	gate := newGate()
	h := middleware.New(guard(t, costly))(gate)
	held := gate.hold(h, "/full")
	defer func() {
		close(gate.open)
		<-held
	}()
	for _, method := range []string{"GET", "HEAD"} {
		w := &nullWriter{http.Header{}}
		r := httptest.NewRequest(method, "/full", nil)
		assert.EqualValues(t, 2, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), method)
	}
}

func BenchmarkPass(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for _, bench := range []struct {
		name, path string
		opts       []middleware.Option
		hooks      []watertight.Option
	}{
		{"unlimited", "/unlimited", nil, nil},
		{"bulkhead", "/fixed", nil, nil},
		{"bulkhead per route", "/keyed", nil, nil},
		{"bulkhead, reentrant", "/fixed", []middleware.Option{middleware.Reentrant()}, nil},
		{"bulkhead, a hook that derives", "/fixed", nil, []watertight.Option{watertight.WithHooks(watertight.Hooks{
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
				return context.WithValue(ctx, ctxKey{}, "x")
			},
		})}},
		{"bulkhead and breaker", "/watched", nil, nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := middleware.New(guard(b, costly, bench.hooks...), bench.opts...)(noop)
			w := &nullWriter{http.Header{}}
			r := httptest.NewRequestWithContext(ctx, "GET", bench.path, nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
	b.Run("nothing in between", func(b *testing.B) {
		var h http.Handler = noop
		w := &nullWriter{http.Header{}}
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
	})
}

func BenchmarkRefusal(b *testing.B) {
	gate := newGate()
	h := middleware.New(guard(b, costly))(gate)
	held := gate.hold(h, "/full")
	defer func() {
		close(gate.open)
		<-held
	}()
	r := httptest.NewRequest("GET", "/full", nil)
	b.ReportAllocs()
	for b.Loop() {
		w := &nullWriter{http.Header{}}
		h.ServeHTTP(w, r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(b, 503, w.Code)
}
