package middleware_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

const tripping = `
version: 1
policies:
  - name: all
    side: server
    per: policy
    bulkhead: {maxConcurrent: 2, maxWait: 1s}
    breaker: {minCalls: 5, window: {calls: 5}, slowCall: 1s, slowCallRate: 100, openFor: 10s, halfOpen: {calls: 1}}
`

func breakerOf(t testing.TB, g *watertight.Guard) *watertight.BreakerSnapshot {
	t.Helper()
	return compartment(t, g, "all", "").Breaker
}

// A breaker round a handler that answers 500 opens, refuses without running it,
// tells for how long, and closes after good probes.
func TestServerErrorsTripTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripping)
		status, ran := 500, 0
		h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ran++
			w.WriteHeader(status)
		}))
		for range 5 {
			require.Equal(t, 500, get(h, "/").Code)
		}
		assert.Equal(t, "open", breakerOf(t, g).State)
		time.Sleep(500 * time.Millisecond)
		w := get(h, "/")
		assert.Equal(t, "10", w.Header().Get("Retry-After"), "9.5 s, rounded up")
		requireRefused(t, w, 503, "open")
		assert.Equal(t, 5, ran)

		time.Sleep(9500 * time.Millisecond)
		require.Equal(t, 500, get(h, "/").Code, "a probe, which fails")
		requireRefused(t, get(h, "/"), 503, "open")
		time.Sleep(10 * time.Second)
		status = 404
		require.Equal(t, 404, get(h, "/").Code, "a probe, which does not")
		assert.Equal(t, "closed", breakerOf(t, g).State)
		assert.Equal(t, 404, get(h, "/").Code)
	})
}

func TestSlowHandlersTripTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripping)
		takes := time.Second // exactly slowCall is not slow
		h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }))
		for range 5 {
			require.Equal(t, 200, get(h, "/").Code)
		}
		assert.EqualValues(t, 0, breakerOf(t, g).SlowCallRate)
		takes++
		for range 4 {
			get(h, "/")
		}
		assert.Equal(t, "closed", breakerOf(t, g).State)
		get(h, "/")
		assert.Equal(t, "open", breakerOf(t, g).State)
		began := time.Now()
		requireRefused(t, get(h, "/"), 503, "open")
		assert.Zero(t, time.Since(began), "an open breaker makes nobody wait")
	})
}

// E50: the time in the queue is not the handler's.
func TestTheQueueDoesNotMakeACallSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripping)
		h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(600 * time.Millisecond) }))
		for range 4 {
			go get(h, "/")
		}
		time.Sleep(time.Minute)
		b := breakerOf(t, g)
		assert.Equal(t, 4, b.Calls)
		get(h, "/")
		b = breakerOf(t, g)
		assert.Equal(t, 5, b.Calls)
		assert.EqualValues(t, 0, b.SlowCallRate)
	})
}

// Handlers that hang open the breaker before any of them has returned, as soon as
// they have all permits; those who queue behind them are refused as well.
func TestHandlersThatHangTripTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripping)
		gate := newGate()
		h := middleware.New(g)(gate)
		first, second := gate.hold(h, "/"), gate.hold(h, "/")
		time.Sleep(time.Second + time.Second/8)
		requireRefused(t, get(h, "/"), 503, "open")
		close(gate.open)
		assert.Equal(t, 200, (<-first).Code)
		assert.Equal(t, 200, (<-second).Code)
	})
}

// Our own refusals are no outcome; nor is a caller who leaves in time.
func TestWhatIsNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, tripping)
		gate := newGate()
		h := middleware.New(g)(gate)
		gate.hold(h, "/")
		gate.hold(h, "/")
		refused := make(chan *httptest.ResponseRecorder)
		for range 20 { // at once: the two in the gate must not become overdue
			go func() { refused <- get(h, "/") }()
		}
		for range 20 {
			requireRefused(t, <-refused, 408, "wait_timeout")
		}
		close(gate.open)
		synctest.Wait()
		calls := breakerOf(t, g).Calls

		for _, status := range []int{200, 500} {
			ctx, cancel := context.WithCancel(t.Context())
			leaving := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				cancel()
				w.WriteHeader(status)
			}))
			for range 20 {
				do(leaving, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				ctx, cancel = context.WithCancel(t.Context())
			}
			cancel()
		}
		assert.Equal(t, calls, breakerOf(t, g).Calls)
		assert.Equal(t, "closed", breakerOf(t, g).State)
	})
}

// E42, E43: a probe that comes to nothing makes room for the next, a hundred
// times over, and a good one then closes the breaker.
func TestProbesAreHandedBack(t *testing.T) {
	const busyOnly = `
version: 1
policies:
  - {name: all, side: server, match: [{path: /work}], breaker: {minCalls: 1, window: {calls: 1}, openFor: 10s, halfOpen: {calls: 1}}}
  - {name: limit, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1s}}
`
	for _, test := range []struct {
		name   string
		busy   bool          // the bulkhead has no permit
		leaves time.Duration // when the client does
		work   func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		{"client leaves the handler", false, time.Second, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ""},
		{"client leaves, handler aborts", false, time.Second, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}, ""},
		{"client leaves the queue", true, time.Second / 2, nil, "canceled"},
		{"client was gone before", false, 0, nil, "canceled"},
		{"bulkhead refuses", true, time.Minute, nil, "wait_timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, busyOnly)
				work := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
				busy := newGate()
				mux := http.NewServeMux()
				mux.HandleFunc("/work", func(w http.ResponseWriter, r *http.Request) { work(w, r) })
				mux.Handle("/busy", busy)
				h := middleware.New(g)(mux)
				get(h, "/work")
				require.Equal(t, "open", compartment(t, g, "all", "/work").Breaker.State)
				time.Sleep(10 * time.Second)
				if test.busy {
					busy.hold(h, "/busy")
				}

				work = test.work
				for range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(test.leaves, cancel)
					synctest.Wait()
					func() {
						defer func() { recover() }()
						w := do(h, httptest.NewRequestWithContext(ctx, "GET", "/work", nil))
						if test.want != "" {
							require.Equal(t, test.want, reason(t, w.Body))
						}
					}()
					cancel()
				}
				require.NotEqual(t, "closed", compartment(t, g, "all", "/work").Breaker.State)
				close(busy.open)
				synctest.Wait()

				ran := false
				work = func(http.ResponseWriter, *http.Request) { ran = true }
				require.Equal(t, 200, get(h, "/work").Code)
				require.True(t, ran)
				require.Equal(t, "closed", compartment(t, g, "all", "/work").Breaker.State)
			})
		})
	}
}

// A probe whose handler panics or leaves by runtime.Goexit has failed; the breaker
// does not wait for it for ever.
func TestProbeThatPanics(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, tripping)
				work := func() { panic("no") }
				h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { work() }))
				call := func() {
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { recover() }()
						get(h, "/")
					}()
					<-done
				}
				for range 5 {
					call()
				}
				require.Equal(t, "open", breakerOf(t, g).State)
				time.Sleep(10 * time.Second)
				work = end
				call()
				require.Equal(t, "open", breakerOf(t, g).State)
				time.Sleep(10 * time.Second)
				work = func() {}
				call()
				require.Equal(t, "closed", breakerOf(t, g).State)
			})
		})
	}
}

// A session that follows a hijack holds its permit, but settles when it begins:
// it is neither slow nor does it keep a half-open breaker waiting.
func TestUpgradeSettlesAtOnce(t *testing.T) {
	for name, hijack := range map[string]func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"ResponseController": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
		"hidden": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
		"101 first": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			return w.(http.Hijacker).Hijack()
		},
		"200 first": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { // as to CONNECT
			w.WriteHeader(http.StatusOK)
			return w.(http.Hijacker).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - name: all
    side: server
    per: policy
    bulkhead: {maxConcurrent: 2, maxWait: 1s}
    breaker: {minCalls: 1, window: {calls: 5}, slowCall: 1s, slowCallRate: 100, openFor: 10s, halfOpen: {calls: 1, probeTimeout: 10s}}
`)
				fails := true
				limited := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if fails {
						w.WriteHeader(500)
						return
					}
					conn, rw, err := hijack(w)
					if err != nil {
						panic(err)
					}
					defer conn.Close()
					if !strings.HasSuffix(name, " first") {
						io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
					}
					line, _ := rw.ReadString('\n')
					io.WriteString(conn, line)
				}))
				dial := servePipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if name == "hidden" {
						w = hiding{w}
					}
					limited.ServeHTTP(w, r)
				}))
				get(limited, "/")
				require.Equal(t, "open", breakerOf(t, g).State)
				time.Sleep(10 * time.Second)
				fails = false

				session := func() *rawConn {
					c := dial()
					if name == "200 first" {
						c.send("CONNECT here:1 HTTP/1.1", "Host: here:1")
						resp, err := http.ReadResponse(c.r, &http.Request{Method: "CONNECT"})
						require.NoError(t, err)
						require.Equal(t, 200, resp.StatusCode)
						return c
					}
					c.send("GET / HTTP/1.1", "Host: here", "Connection: Upgrade", "Upgrade: echo")
					require.Equal(t, 101, c.receive("GET").StatusCode)
					return c
				}
				first := session() // the probe
				synctest.Wait()
				require.Equal(t, "closed", breakerOf(t, g).State)
				second := session()
				synctest.Wait()
				assert.EqualValues(t, 2, compartment(t, g, "all", "").InFlight, "the permits are held")
				assert.Equal(t, 1, breakerOf(t, g).Calls, "and settled")

				time.Sleep(time.Hour)
				for _, c := range []*rawConn{first, second} {
					c.send("hello")
					line, err := c.r.ReadString('\n')
					require.NoError(t, err)
					assert.Equal(t, "hello\r\n", line)
					c.Close()
				}
				synctest.Wait()
				assert.Zero(t, compartment(t, g, "all", "").InFlight)
				b := breakerOf(t, g)
				assert.Equal(t, "closed", b.State)
				assert.Equal(t, 1, b.Calls)
				assert.EqualValues(t, 0, b.SlowCallRate)
			})
		})
	}
}

// A hijack that did not succeed changes nothing: the answer that follows counts.
func TestFailedHijackIsNoUpgrade(t *testing.T) {
	g := guard(t, withBreaker)
	h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		assert.Equal(t, errStub, err)
		w.WriteHeader(500)
	}))
	h.ServeHTTP(stubs(new(calls))[2], httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, "open", breakerOf(t, g).State)
}

// A deadline that somebody further out set is a failure if the handler had at
// least half of the time.
func TestDeadlineOfTheCaller(t *testing.T) {
	for name, test := range map[string]struct {
		queued time.Duration
		calls  int
	}{
		"half the time": {time.Second, 1},
		"less":          {time.Second + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `
version: 1
policies:
  - {name: all, side: server, match: [{path: /work}], breaker: {minCalls: 1, window: {calls: 2}}}
  - {name: limit, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}
`)
				mux := http.NewServeMux()
				mux.HandleFunc("/work", func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					w.WriteHeader(504)
				})
				mux.HandleFunc("/busy", func(http.ResponseWriter, *http.Request) { time.Sleep(test.queued) })
				h := middleware.New(g)(mux)
				go get(h, "/busy")
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				assert.Equal(t, 504, do(h, httptest.NewRequestWithContext(ctx, "GET", "/work", nil)).Code)
				assert.Equal(t, test.calls, compartment(t, g, "all", "/work").Breaker.Calls)
			})
		})
	}
}
