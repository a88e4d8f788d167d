package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/middleware"
)

// E29, and the rest of what a handler leaves on its request: whoever stands outside
// sees it as if there were no copy.
func TestWhatTheHandlerDidToItsRequestIsSeenOutside(t *testing.T) {
	var body io.ReadCloser = http.MaxBytesReader(httptest.NewRecorder(), http.NoBody, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}/{rest...}", func(_ http.ResponseWriter, r *http.Request) {
		r.SetPathValue("by", "hand")
		r.Method = "PUT"
		r.Body = body
		r.Header = http.Header{"New": {"yes"}}
	})
	for name, opts := range map[string][]middleware.Option{"the same request": nil, "a copy": {middleware.Reentrant()}} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/users/7/a/b", nil)
			ctx := r.Context()
			do(middleware.New(guard(t, withPermits), opts...)(mux), r)
			assert.Equal(t, "GET /users/{id}/{rest...}", r.Pattern)
			assert.Equal(t, "7", r.PathValue("id"))
			assert.Equal(t, "a/b", r.PathValue("rest"))
			assert.Equal(t, "hand", r.PathValue("by"))
			assert.Equal(t, "PUT", r.Method)
			assert.True(t, r.Body == body)
			assert.Equal(t, http.Header{"New": {"yes"}}, r.Header)
			assert.True(t, r.Context() == ctx, "all but the context")
		})
	}
}

// Trailers that the client did not announce reach the handler as well, although
// the server puts them on the request of which the handler has a copy.
func TestUnannouncedTrailers(t *testing.T) {
	for name, opts := range map[string][]middleware.Option{"the same request": nil, "a copy": {middleware.Reentrant()}} {
		t.Run(name, func(t *testing.T) {
			got := make(chan http.Header, 2)
			limited := middleware.New(guard(t, withPermits), opts...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				got <- r.Trailer
			}))
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(w, r)
				got <- r.Trailer
			}))
			client := s.dial(t)
			client.send("POST / HTTP/1.1", "Host: here", "Transfer-Encoding: chunked", "", "4", "body", "0", "Sum: 42")
			assert.Equal(t, 200, client.receive("POST").StatusCode)
			assert.Equal(t, http.Header{"Sum": {"42"}}, <-got, "in the handler")
			assert.Equal(t, http.Header{"Sum": {"42"}}, <-got, "outside")
		})
	}
}

// The names of those that the client did announce are there before the body is read.
func TestAnnouncedTrailers(t *testing.T) {
	limited := middleware.New(guard(t, withPermits), middleware.Reentrant())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.Header{"Sum": nil}, r.Trailer)
		io.Copy(io.Discard, r.Body)
		assert.Equal(t, http.Header{"Sum": {"42"}}, r.Trailer)
	}))
	client := serve(t, limited).dial(t)
	client.send("POST / HTTP/1.1", "Host: here", "Transfer-Encoding: chunked", "Trailer: Sum", "", "4", "body", "0", "Sum: 42")
	assert.Equal(t, 200, client.receive("POST").StatusCode)
}

// Whoever measures requests by their routes finds that of a refused one too.
func TestRefusedRequestHasItsRoute(t *testing.T) {
	mux := http.NewServeMux()
	var h http.Handler
	refused := httptest.NewRequest("GET", "/users/8", nil)
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {
		assert.Equal(t, http.StatusServiceUnavailable, do(h, refused).Code)
	})
	h = middleware.New(guard(t, "version: 1\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}}]\n"))(mux)
	assert.Equal(t, http.StatusOK, do(h, httptest.NewRequest("GET", "/users/7", nil)).Code)
	assert.Equal(t, "GET /users/{id}", refused.Pattern)
}
