package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// faulty is a server over pipes, in a bubble, whose handler a test can watch. Its
// policy has as many permits and places as the test says, and waits of 10 s.
type faulty struct {
	t     testing.TB
	guard *watertight.Guard
	wrap  func(http.Handler) http.Handler
	limit int
	l     *pipeListener
}

// dial connects by a pipe.
func (f *faulty) dial() *rawConn { return newRawConn(f.t, f.pipe()) }

func (f *faulty) pipe() net.Conn {
	ours, theirs := net.Pipe()
	f.l.conns <- theirs
	return ours
}

// limited serves h in one of the ways.
func limited(t testing.TB, way int, limit, queue int, h http.Handler, configure func(*http.Server)) *faulty {
	f := &faulty{t: t, limit: limit}
	bulkhead := fmt.Sprintf("bulkhead: {maxConcurrent: %d, maxQueue: %d, maxWait: 10s}", limit, queue)
	if queue == 0 {
		bulkhead = fmt.Sprintf("bulkhead: {maxConcurrent: %d}", limit)
	}
	f.guard = guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, "+
		strings.Replace(ways[way].limits, "bulkhead: {maxConcurrent: 2}", bulkhead, 1)+"}]}")
	f.wrap = middleware.New(f.guard, ways[way].opts...)
	s := &http.Server{Handler: f.wrap(h), ErrorLog: log.New(io.Discard, "", 0)}
	if configure != nil {
		configure(s)
	}
	f.l = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(f.l) }()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return f
}

// figures returns the one compartment.
func (f *faulty) figures() watertight.CompartmentSnapshot {
	return compartment(f.t, f.guard, "all", "")
}

// requireRest fails unless nothing is inside or queued, every request that came is
// accounted for, and exactly as many requests fit in as ever.
func (f *faulty) requireRest(arrived int) {
	f.t.Helper()
	synctest.Wait()
	if arrived == 0 {
		require.Empty(f.t, f.guard.Snapshot().Compartments)
	} else {
		c := f.figures()
		require.Zero(f.t, c.InFlight)
		require.Zero(f.t, c.Bulkhead.Queued)
		require.LessOrEqual(f.t, c.Bulkhead.Peak, f.limit)
		sum := c.Granted + c.Left
		for _, n := range c.Rejected {
			sum += n
		}
		require.EqualValues(f.t, arrived, sum, "%+v", c)
	}

	gate := newGate()
	full := f.wrap(gate)
	for range f.limit {
		gate.hold(full, "/")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.Equal(f.t, 503, do(full, httptest.NewRequestWithContext(ctx, "GET", "/", nil)).Code)
	close(gate.open)
	synctest.Wait()
	require.Zero(f.t, f.figures().InFlight)
}

// inEachWay runs a test in a bubble for each way. A bubble does not end while a
// goroutine in it is left: none may be.
func inEachWay(t *testing.T, test func(t *testing.T, way int)) {
	for way := range ways {
		t.Run(ways[way].name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, way) })
		})
	}
}

// Slow-loris: heads that come byte by byte are no requests yet. They take no permit
// and no place in the queue, and the server's own time-out ends them.
func TestSlowHeadsTakeNoPermit(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		f := limited(t, way, 2, 2, ok, func(s *http.Server) { s.ReadHeaderTimeout = time.Minute })
		var clients sync.WaitGroup
		for range 100 {
			slow := f.dial()
			clients.Go(func() {
				for _, b := range []byte("GET / HTTP/1.1\r\nHost: here\r\nX: " + strings.Repeat("x", 100)) {
					if _, err := slow.Write([]byte{b}); err != nil {
						return // let go by the server
					}
					time.Sleep(time.Second)
				}
				t.Error("a head may take as long as it likes")
			})
		}
		time.Sleep(30 * time.Second)
		quick := f.dial()
		quick.send("GET / HTTP/1.1", "Host: here")
		assert.Equal(t, 200, quick.receive("GET").StatusCode, "while they dawdle")
		assert.EqualValues(t, 1, f.figures().Granted)
		clients.Wait()
		f.requireRest(1)
	})
}

// A body that comes byte by byte holds the permit of the handler that reads it, and
// no longer than the server lets it: the permit bounds how many can do that.
func TestSlowBodiesHoldNoMoreThanTheirPermits(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		f := limited(t, way, 2, 0, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
		}), func(s *http.Server) { s.ReadTimeout = time.Minute })
		var clients sync.WaitGroup
		for range 2 {
			slow := f.dial()
			slow.send("POST / HTTP/1.1", "Host: here", "Content-Length: 1000")
			clients.Go(func() {
				for {
					if _, err := slow.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			clients.Go(func() { io.Copy(io.Discard, slow.r) })
		}
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 2, f.figures().InFlight)
		third := f.dial()
		third.send("GET / HTTP/1.1", "Host: here")
		assert.Equal(t, "full", reason(t, third.receive("GET").Body))
		third.Close()
		clients.Wait()
		f.requireRest(3)
	})
}

// A client that does not read its answer holds the permit for as long as the server
// goes on writing.
func TestClientThatDoesNotRead(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		f := limited(t, way, 1, 0, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, 1<<20))
		}), func(s *http.Server) { s.WriteTimeout = time.Minute })
		deaf := f.dial()
		deaf.send("GET / HTTP/1.1", "Host: here")
		time.Sleep(time.Minute - time.Second)
		assert.EqualValues(t, 1, f.figures().InFlight)
		time.Sleep(2 * time.Second)
		f.requireRest(1)
	})
}

// A client may vanish at any stage.
func TestClientThatVanishes(t *testing.T) {
	stages := map[string]struct {
		sent    string
		taken   int  // requests that come to the middleware
		crowded bool // all permits are out when it comes
		wait    time.Duration
		receive int // bytes of the answer
	}{
		"before its first byte":     {"", 0, false, 0, 0},
		"within the request line":   {"GET / HT", 0, false, 0, 0},
		"within the head":           {"GET / HTTP/1.1\r\nHost: he", 0, false, 0, 0},
		"after the head":            {"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n", 1, false, 0, 0},
		"within the body":           {"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf.", 1, false, 0, 0},
		"within a chunk":            {"POST /read HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf.", 1, false, 0, 0},
		"within the trailers":       {"POST /read HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA", 1, false, 0, 0},
		"while it queues":           {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 1, true, time.Second, 0},
		"while its body queues":     {"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf.", 1, true, time.Second, 0},
		"while a pipeline queues":   {"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET / HTTP/1.1\r\nHost: here\r\n\r\n", 1, true, time.Second, 0},
		"while the handler works":   {"GET /work HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, time.Second, 0},
		"within the answer's head":  {"GET /large HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, 0, 10},
		"within the answer":         {"GET /large HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, 0, 10_000},
		"within a stream":           {"GET /stream HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, 10 * time.Second, 150},
		"within an upgrade":         {"GET /hijack HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, 0, 5},
		"after the answer":          {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, 0, 30},
		"with a pipeline to answer": {"GET /work HTTP/1.1\r\nHost: here\r\n\r\nGET / HTTP/1.1\r\nHost: here\r\n\r\n", 1, false, time.Second, 0},
	}
	for stage, test := range stages {
		t.Run(stage, func(t *testing.T) {
			inEachWay(t, func(t *testing.T, way int) {
				mux := http.NewServeMux()
				mux.Handle("/", ok)
				mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						panic(http.ErrAbortHandler)
					}
				})
				mux.HandleFunc("/work", func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
					case <-time.After(time.Hour): // nobody may have noticed
					}
				})
				mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) })
				mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
					for r.Context().Err() == nil {
						io.WriteString(w, "data\n\n")
						w.(http.Flusher).Flush()
						time.Sleep(time.Second)
					}
				})
				mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
					conn, rw, err := http.NewResponseController(w).Hijack()
					if err != nil {
						panic(err)
					}
					defer conn.Close()
					conn.Write([]byte("hello"))
					io.Copy(io.Discard, rw)
				})
				f := limited(t, way, 2, 5, mux, nil)
				arrived := test.taken
				if test.crowded {
					gate := newGate()
					full := f.wrap(gate)
					for range f.limit {
						gate.hold(full, "/")
					}
					arrived += f.limit
					defer func() {
						close(gate.open)
						f.requireRest(arrived)
					}()
				}

				client := f.dial()
				go io.WriteString(client, test.sent) // a pipe holds what the server does not read
				time.Sleep(test.wait)
				synctest.Wait()
				if test.crowded {
					require.Equal(t, 1, f.figures().Bulkhead.Queued)
				}
				_, err := io.CopyN(io.Discard, client.r, int64(test.receive))
				require.NoError(t, err)
				require.NoError(t, client.Close())
				time.Sleep(2 * time.Hour) // beyond all that may have to run out
				if !test.crowded {
					f.requireRest(arrived)
				}
			})
		})
	}
}

// Requests that a client sends ahead are served one after the other, refusals in
// their places; one that owes a body when it is refused ends the connection.
func TestPipeline(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		mux := http.NewServeMux()
		mux.Handle("/", ok)
		mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		f := limited(t, way, 1, 0, mux, nil)
		gate := newGate()
		full := f.wrap(gate)
		pipeline := "GET / HTTP/1.1\r\nHost: here\r\n\r\n" +
			"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody" +
			"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n" +
			"GET / HTTP/1.1\r\nHost: here\r\n\r\n"

		client := f.dial()
		go io.WriteString(client, pipeline)
		for _, want := range []struct{ method, body string }{{"GET", "ok"}, {"POST", "body"}, {"HEAD", ""}, {"GET", "ok"}} {
			resp := client.receive(want.method)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, want.body, resp.Body.(nopCloser).String())
		}

		gate.hold(full, "/")
		go io.WriteString(client, pipeline)
		require.Equal(t, "full", reason(t, client.receive("GET").Body))
		resp := client.receive("POST")
		require.Equal(t, "full", reason(t, resp.Body))
		require.True(t, resp.Close)
		_, err := client.r.ReadByte()
		require.Equal(t, io.EOF, err, "what comes after that is not answered")
		close(gate.open)
		client.Close()
		f.requireRest(4 + 1 + 2)
	})
}

// Ten thousand connections at once, of clients that read their answers, leave at
// once, leave later or read nothing at all. As many are let in as there are permits,
// the queue fills, the rest hear so; each is counted once. When they have gone,
// nothing is left of them: no goroutine (the bubble would not end), no memory, no
// permit.
func TestFlood(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		clients := 10_000
		if raceEnabled || way > 0 { // which keeps track of no more than 8128 goroutines
			clients = 1000
		}
		var inside, worst atomic.Int64
		f := limited(t, way, 10, 100, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := inside.Add(1)
			defer inside.Add(-1)
			for old := worst.Load(); n > old && !worst.CompareAndSwap(old, n); old = worst.Load() {
			}
			time.Sleep(100 * time.Millisecond)
			w.Write(make([]byte, 10_000))
		}), func(s *http.Server) { s.WriteTimeout = time.Minute })
		var answered [1000]atomic.Int64
		flood := func() {
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					client := f.pipe()
					defer client.Close()
					if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
						t.Error(err)
						return
					}
					switch i % 4 {
					case 0: // gone at once
					case 1: // gone later, with or without an answer on its way
						time.Sleep(time.Duration(i) * time.Millisecond)
					case 2: // deaf: the server lets go of it
						time.Sleep(time.Hour)
					case 3:
						resp, err := http.ReadResponse(bufio.NewReader(client), nil)
						if !assert.NoError(t, err) {
							return
						}
						_, err = io.Copy(io.Discard, resp.Body)
						assert.NoError(t, err)
						answered[resp.StatusCode].Add(1)
					}
				})
			}
			wg.Wait()
			synctest.Wait()
		}
		flood()
		// The runtime keeps what it needs for so many goroutines, and may find that
		// it needs more. A leak grows each time.
		floods, grown := 1, int64(math.MaxInt64)
		for ; floods < 5 && grown > int64(50*clients); floods++ {
			before := heap()
			flood()
			grown = heap() - before
		}
		assert.LessOrEqual(t, grown, int64(50*clients), "nothing is left of a client")

		assert.LessOrEqual(t, worst.Load(), int64(10))
		assert.EqualValues(t, floods*clients/4, answered[200].Load()+answered[408].Load()+answered[503].Load())
		assert.Greater(t, f.figures().Rejected["full"], uint64(floods*clients/2))
		f.requireRest(floods * clients)
	})
}

// E01 on HTTP/2: there the server notices that a client gave up also while a body is
// unread, and each stream leaves the queue at once. A thousand of them on one
// connection, as in a rapid-reset attack, leave nothing behind, and the connection
// serves on.
func TestStreamsThatAreResetInTheQueue(t *testing.T) {
	const streams = 1000
	inEachWay(t, func(t *testing.T, way int) {
		gate := newGate()
		mux := http.NewServeMux()
		mux.Handle("/held", gate)
		mux.Handle("/", ok)
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		f := limited(t, way, 1, streams, mux, func(s *http.Server) {
			s.Protocols = protocols
			s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2 * streams}
		})
		conns := 0
		client := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			conns++
			return f.pipe(), nil
		}}
		defer client.CloseIdleConnections()
		ask := func(ctx context.Context, path string, body io.Reader) error {
			r, err := http.NewRequestWithContext(ctx, "POST", "http://here"+path, body)
			if err != nil {
				return err
			}
			resp, err := client.RoundTrip(r)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		}

		held := make(chan error, 1)
		go func() { held <- ask(t.Context(), "/held", nil) }()
		<-gate.entered
		synctest.Wait() // until the client knows how many streams it may open
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				never, owed := io.Pipe()
				defer owed.Close()
				assert.ErrorIs(t, ask(ctx, "/", never), context.Canceled)
			})
		}
		synctest.Wait()
		require.Equal(t, streams, f.figures().Bulkhead.Queued)
		cancel()
		wg.Wait()
		synctest.Wait()
		assert.Zero(t, f.figures().Bulkhead.Queued)
		assert.EqualValues(t, streams, f.figures().Left)
		close(gate.open)
		assert.NoError(t, <-held)
		assert.NoError(t, ask(t.Context(), "/", nil))
		assert.Equal(t, 1, conns)
		f.requireRest(streams + 2)
	})
}

// On real sockets, a client can also reset its connection, or close only the half
// that it sends on. Both end a request that waits and one that is served; to a
// breaker that is nothing.
func TestClientThatClosesItsHalf(t *testing.T) {
	how := map[string]func(*net.TCPConn) error{
		"closes":      (*net.TCPConn).Close,
		"half-closes": (*net.TCPConn).CloseWrite,
		"resets": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	}
	for name, leave := range how {
		t.Run(name, func(t *testing.T) {
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, "+
						strings.Replace(way.limits, "bulkhead: {maxConcurrent: 2}", "bulkhead: {maxConcurrent: 1, maxWait: 1h}", 1)+"}]}")
					inside := make(chan struct{})
					s := serve(t, middleware.New(g, way.opts...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						inside <- struct{}{}
						<-r.Context().Done()
					})))
					// Each is let in when the one before it is noticed to have gone.
					for range 10 {
						served, queued := s.dial(t), s.dial(t)
						served.send("GET / HTTP/1.1", "Host: here")
						<-inside
						queued.send("GET / HTTP/1.1", "Host: here")
						for compartment(t, g, "all", "").Bulkhead.Queued == 0 {
							runtime.Gosched()
						}
						left := compartment(t, g, "all", "").Left
						require.NoError(t, leave(queued.Conn.(*net.TCPConn)))
						for compartment(t, g, "all", "").Left == left {
							runtime.Gosched()
						}
						require.NoError(t, leave(served.Conn.(*net.TCPConn)))
						requireRest(t, g)
					}
					c := compartment(t, g, "all", "")
					assert.EqualValues(t, 10, c.Granted)
					assert.EqualValues(t, 10, c.Left)
					if c.Breaker != nil {
						assert.Zero(t, c.Breaker.Calls)
					}
				})
			}
		})
	}
}

// heap returns how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // finalizers and pools let go in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
