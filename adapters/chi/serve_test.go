package watertightchi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
)

// serve starts a server on loopback, for as long as the test runs.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// E12: streams on an exempt route take no permit of the others, and no query
// makes a request exempt.
func TestStreamsOnAnExemptRoute(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: streams, side: server, match: [{route: "/events/{topic}"}], exempt: true}
  - {name: rest, side: server, per: policy, bulkhead: {maxConcurrent: 1}}
`)
	done := make(chan struct{})
	slow := newGate()
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Get("/events/{topic}", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-done
	})
	r.Method("GET", "/things", slow)
	s := serve(t, r)
	t.Cleanup(func() { close(done) }) // before the server closes

	for i := range 2 {
		resp, err := http.Get(s.URL + fmt.Sprint("/events/", i))
		require.NoError(t, err)
		defer resp.Body.Close()
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: 1\n", line, "through the middleware without waiting for its end")
	}
	assert.EqualValues(t, 2, compartment(t, g, "streams", "").InFlight)
	held := slow.hold(r, "/things")
	requireFull(t, get(r, "/things?watch=true"))
	close(slow.open)
	require.Equal(t, 200, (<-held).Code)
}

// E04, E05: without a breaker the handler gets the very same writer, chi's
// wrapped one included; with one, everything that it can do is there.
func TestResponseWriters(t *testing.T) {
	var given http.ResponseWriter
	outside := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given = chimw.NewWrapResponseWriter(w, r.ProtoMajor)
			next.ServeHTTP(given, r)
		})
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/same") {
			assert.True(t, given == w)
		}
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		assert.True(t, flusher && hijacker && readerFrom)
		c := http.NewResponseController(w)
		assert.NoError(t, c.SetReadDeadline(time.Time{}))
		assert.NoError(t, c.SetWriteDeadline(time.Time{}))
		assert.NoError(t, c.EnableFullDuplex())
		assert.NoError(t, c.Flush())
		conn, rw, err := c.Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		line, _ := rw.ReadString('\n')
		rw.WriteString("echo " + line)
		rw.Flush()
	}
	g := guard(t, `
version: 1
policies:
  - {name: same, side: server, match: [{route: "/same/{id}"}], bulkhead: {maxConcurrent: 1}}
  - {name: watched, side: server, match: [{route: "/watched/{id}"}], bulkhead: {maxConcurrent: 1}, breaker: {}}
`)
	r := chi.NewRouter()
	r.Use(outside, watertightchi.Middleware(g))
	r.Get("/same/{id}", handler)
	r.Get("/watched/{id}", handler)
	s := serve(t, r)
	for _, path := range []string{"/same/1", "/watched/1"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\nhello\n", path)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(answer), "echo hello\n", path)
	}
}

// E09: however a handler ends, the permit of its route comes back, and chi's
// Recoverer outside sees the same panic.
func TestHandlersThatPanic(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 100}}]}")
	value := &struct{ int }{1}
	var recovered any
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { recovered = recover() }()
			next.ServeHTTP(w, r)
		})
	})
	r.Use(watertightchi.Middleware(g))
	r.Route("/end", func(r chi.Router) {
		r.Get("/{how}", func(_ http.ResponseWriter, r *http.Request) {
			switch chi.URLParam(r, "how") {
			case "panic":
				panic(value)
			case "abort":
				panic(http.ErrAbortHandler)
			case "exit":
				runtime.Goexit()
			}
		})
	})
	for _, test := range []struct {
		how  string
		want any
	}{{"panic", value}, {"abort", http.ErrAbortHandler}, {"exit", nil}, {"well", nil}} {
		recovered = nil
		var wg sync.WaitGroup
		wg.Go(func() { get(r, "/end/"+test.how) })
		wg.Wait()
		assert.Equal(t, test.want, recovered, test.how)
		c := compartment(t, g, "routes", "/end/{how}")
		assert.Zero(t, c.InFlight, test.how)
	}
	c := compartment(t, g, "routes", "/end/{how}")
	assert.EqualValues(t, 4, c.Granted)
	assert.Equal(t, 4, c.Breaker.Calls)
}

// E24: many goroutines look routes up at once, in routers of all kinds, and
// each handler gets its own parameters. Limits hold for each route.
func TestManyAtOnce(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 5, maxWait: 1m}}]}")
	m := watertightchi.Middleware(g)
	var inside, worst [3]atomic.Int64
	handler := func(i int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			n := inside[i].Add(1)
			for w := worst[i].Load(); n > w && !worst[i].CompareAndSwap(w, n); w = worst[i].Load() {
			}
			runtime.Gosched()
			io.WriteString(w, chi.URLParam(r, "id"))
			inside[i].Add(-1)
		}
	}
	r := chi.NewRouter()
	r.Use(m)
	r.Get("/flat/{id}", handler(0))
	r.Route("/sub/{x}", func(r chi.Router) {
		r.Use(m)
		r.Get("/{id}", handler(1))
		r.With(m).Route("/deep", func(r chi.Router) { r.Get("/{id}", handler(2)) })
	})
	const goroutines, requests = 64, 200
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for j := range requests {
				id := fmt.Sprint(i, "-", j)
				path := []string{"/flat/", "/sub/x/", "/sub/x/deep/"}[j%3]
				if w := get(r, path+id); w.Body.String() != id {
					t.Errorf("%s%s answered %d %q", path, id, w.Code, w.Body)
					return
				}
			}
		})
	}
	wg.Wait()
	total := uint64(0)
	for i, key := range []string{"/flat/{id}", "/sub/{x}/{id}", "/sub/{x}/deep/{id}"} {
		c := compartment(t, g, "routes", key)
		assert.Zero(t, c.InFlight, key)
		assert.LessOrEqual(t, worst[i].Load(), int64(5), key)
		total += c.Granted
	}
	assert.EqualValues(t, goroutines*requests, total)
}

// A client that left while its request queued is told apart, by route.
func TestLeftInTheQueueOfARoute(t *testing.T) {
	g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
	slow := newGate()
	r := chi.NewRouter()
	r.Use(watertightchi.Middleware(g))
	r.Method("GET", "/{id}", slow)
	held := slow.hold(r, "/1")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan int, 1)
	go func() { left <- do(r, request("GET", "/2").WithContext(ctx)).Code }()
	for compartment(t, g, "routes", "/{id}").Bulkhead.Queued == 0 {
		runtime.Gosched()
	}
	cancel()
	assert.Equal(t, 503, <-left)
	assert.EqualValues(t, 1, compartment(t, g, "routes", "/{id}").Left)
	close(slow.open)
	<-held
}
