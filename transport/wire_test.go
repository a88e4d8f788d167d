package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/transport"
)

// A wire is a protocol, and how a server and its client come to speak it.
type wire struct {
	name  string
	major int
	start func(*httptest.Server) *http.Transport
}

// wires are the protocols that calls are made over, each with a real server.
var wires = []wire{
	{"HTTP/1", 1, func(s *httptest.Server) *http.Transport {
		s.Start()
		return s.Client().Transport.(*http.Transport)
	}},
	{"HTTP/2", 2, func(s *httptest.Server) *http.Transport {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s.Client().Transport.(*http.Transport)
	}},
	{"h2c", 2, func(s *httptest.Server) *http.Transport {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		tr := s.Client().Transport.(*http.Transport)
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
		return tr
	}},
}

// overEachWire runs a test over each protocol. rt is the plain client of a server
// at url that answers with h.
func overEachWire(t *testing.T, h http.HandlerFunc, test func(t *testing.T, rt *http.Transport, url string)) {
	overWires(t, wires, h, test)
}

// overWires is overEachWire for some.
func overWires(t *testing.T, some []wire, h http.HandlerFunc, test func(t *testing.T, rt *http.Transport, url string)) {
	for _, w := range some {
		t.Run(w.name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(h)
			rt := w.start(srv)
			defer srv.Close()
			defer rt.CloseIdleConnections()
			resp := open(t, rt, get(t, srv.URL+"/hello"))
			require.Equal(t, w.major, resp.ProtoMajor)
			require.NoError(t, resp.Body.Close())
			test(t, rt, srv.URL)
		})
	}
}

// eavesdrop is a base that keeps the last body of another one.
type eavesdrop struct {
	http.RoundTripper
	body io.ReadCloser
}

func (e *eavesdrop) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(r)
	if err == nil {
		e.body = resp.Body
	}
	return resp, err
}

// E34: responses that are empty by protocol hold nothing, although nobody closes
// them, and what the client of net/http says of their body still stands.
func TestEmptyResponsesOverTheWire(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "10")
		case "/empty":
			w.Header().Set("Content-Length", "0")
		default:
			status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
			w.WriteHeader(max(status, 200))
		}
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		ear := &eavesdrop{RoundTripper: rt}
		tr := transport.New(ear, g)
		for range 3 {
			for _, test := range []struct {
				method, path string
				status       int
			}{
				{"HEAD", "/head", 200},
				{"GET", "/204", 204},
				{"GET", "/304", 304},
				{"GET", "/empty", 200},
				{"GET", "/200", 200}, // no body was written
			} {
				r := get(t, url+test.path)
				r.Method = test.method
				resp := open(t, tr, r)
				assert.Equal(t, test.status, resp.StatusCode)
				assert.Zero(t, inFlight(t, g), "%s %s", test.method, test.path)
				assert.Equal(t, ear.body, resp.Body, "%s %s", test.method, test.path)
				if resp.ProtoMajor == 1 {
					assert.Equal(t, http.NoBody, resp.Body)
				}
			}
		}
	})
}

// A permit is held while a body streams, 10 MiB of it, and free at its EOF.
func TestLargeBody(t *testing.T) {
	const size = 10 << 20
	overEachWire(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, size))
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		client := &http.Client{Transport: transport.New(rt, g)}
		resp, err := client.Do(get(t, url))
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, resp.Body, size-1)
		require.NoError(t, err)
		assert.Equal(t, 1, inFlight(t, g))
		_, err = client.Do(get(t, url))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Zero(t, inFlight(t, g))
		require.NoError(t, resp.Body.Close())
		assert.Zero(t, inFlight(t, g))
	})
}

// Trailers arrive on the response that the caller holds, once the body has ended.
func TestTrailers(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/announced" {
			w.Header().Set("Trailer", "X-Sum")
		} else {
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
		}
		_, _ = io.WriteString(w, "body")
		if r.URL.Path == "/announced" {
			w.Header().Set("X-Sum", "42")
		}
		w.Header().Set(http.TrailerPrefix+"X-Late", "news")
	}, func(t *testing.T, rt *http.Transport, url string) {
		client := &http.Client{Transport: transport.New(rt, guard(t, limited, derive()))}
		for path, before := range map[string]http.Header{"/announced": {"X-Sum": nil}, "/not": nil} {
			resp, err := client.Do(get(t, url+path))
			require.NoError(t, err)
			assert.Equal(t, before, resp.Trailer)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "42", resp.Trailer.Get("X-Sum"))
			assert.Equal(t, "news", resp.Trailer.Get("X-Late"))
			require.NoError(t, resp.Body.Close())
		}
	})
}

// A body that breaks off tells the reader, and gives its permit back.
func TestBodyThatBreaksOff(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hello" {
			return
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only this")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, `  - {name: p, per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
		for range 3 {
			resp := open(t, transport.New(rt, g), get(t, url))
			got, err := io.ReadAll(resp.Body)
			assert.Error(t, err)
			assert.Equal(t, "only this", string(got))
			assert.Equal(t, 1, capacity(t, g))
		}
		assert.Equal(t, 3, only(t, g).Breaker.Calls)
	})
}

// A host that stops in the middle of a body holds its permit as long as the
// caller has patience.
func TestBodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		rt := transport.New(served(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "so far")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp := open(t, rt, get(t, "http://up/").WithContext(ctx))
		time.AfterFunc(59*time.Second, func() { assert.Equal(t, 1, inFlight(t, g)) })
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "so far", string(got))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, capacity(t, g))
		require.NoError(t, resp.Body.Close())
	})
}

// Each hop of a redirect is a call of its own, with the permit of its own host;
// the client has closed one before it makes the next, so one permit is enough.
func TestRedirects(t *testing.T) {
	var other *httptest.Server
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/first":
			http.Redirect(w, r, "/second", http.StatusFound)
		case "/second":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	}, func(t *testing.T, rt *http.Transport, url string) {
		other = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "there")
		}))
		other.Config.Protocols = new(http.Protocols)
		other.Config.Protocols.SetHTTP1(true)
		other.Config.Protocols.SetUnencryptedHTTP2(true)
		other.Start()
		defer other.Close()

		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`, derive())
		client := &http.Client{Transport: transport.New(rt, g)}
		resp, err := client.Do(get(t, url+"/first"))
		require.NoError(t, err)
		assert.Equal(t, other.URL, resp.Request.URL.String())
		var granted []uint64
		inside := 0
		for _, c := range g.Snapshot().Compartments {
			granted = append(granted, c.Granted)
			inside += c.Bulkhead.InFlight
		}
		assert.ElementsMatch(t, []uint64{2, 1}, granted)
		assert.Equal(t, 1, inside, "the last response is open")

		// A hop that is refused ends the journey, and leaves nothing behind.
		_, err = client.Do(get(t, url+"/first"))
		require.ErrorIs(t, err, bulkhead.ErrFull)
		var rejected *watertight.RejectedError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, other.URL, rejected.Key)
		require.NoError(t, resp.Body.Close())
		for _, c := range g.Snapshot().Compartments {
			assert.Zero(t, c.Bulkhead.InFlight, c.Key)
		}
	})
}

// Uploads reach the server whole, and may be sent again by whoever has GetBody.
func TestUploads(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			http.Redirect(w, r, "/", http.StatusPermanentRedirect)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err, r.ContentLength)
	}, func(t *testing.T, rt *http.Transport, url string) {
		client := &http.Client{Transport: transport.New(rt, guard(t, limited, derive()))}
		for _, path := range []string{"/", "/again"} {
			resp, err := client.Do(post(t, url+path, bytes.NewReader(make([]byte, 1<<20))))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "1048576 <nil> 1048576", string(got))
			require.NoError(t, resp.Body.Close())
		}
	})
}

// E56: the hooks of httptrace run once for each call on the wire, and not at all
// for a refused one. The time in the queue comes before all of them.
func TestHTTPTrace(t *testing.T) {
	for name, hooks := range map[string][]watertight.Option{"without hooks": nil, "with hooks": {derive()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				seen := map[string][]time.Duration{}
				see := func(hook string) {
					mu.Lock()
					defer mu.Unlock()
					seen[hook] = append(seen[hook], time.Since(start))
				}
				traced := func() *http.Request {
					r := get(t, "http://up/")
					return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
						GetConn:              func(string) { see("GetConn") },
						GotConn:              func(httptrace.GotConnInfo) { see("GotConn") },
						WroteHeaders:         func() { see("WroteHeaders") },
						Got1xxResponse:       func(int, textproto.MIMEHeader) error { see("Got1xxResponse"); return nil },
						GotFirstResponseByte: func() { see("GotFirstResponseByte") },
					}))
				}
				g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}}`, hooks...)
				rt := transport.New(served(t, func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusEarlyHints)
					_, _ = io.WriteString(w, "body")
				}), g)
				held := open(t, rt, get(t, "http://up/"))
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, err := rt.RoundTrip(traced())
					if assert.NoError(t, err) {
						assert.NoError(t, resp.Body.Close())
					}
				}()
				synctest.Wait()
				_, err := rt.RoundTrip(traced())
				require.ErrorIs(t, err, bulkhead.ErrFull)
				time.Sleep(3 * time.Second)
				assert.Empty(t, seen, "of a refused call, and of one that waits")
				require.NoError(t, held.Body.Close())
				<-done
				once := []time.Duration{3 * time.Second}
				assert.Equal(t, map[string][]time.Duration{
					"GetConn": once, "GotConn": once, "WroteHeaders": once, "Got1xxResponse": once, "GotFirstResponseByte": once,
				}, seen)
			})
		})
	}
}

// E56: a dial may outlive the call that asked for it. Its hooks still run, while
// the caller goes on with a request that is its own again.
func TestHTTPTraceOfACancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {}}`, derive())
		tr := served(t, func(http.ResponseWriter, *http.Request) {})
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			time.Sleep(time.Second)
			return dial(context.WithoutCancel(ctx), network, addr)
		}
		var got, first atomic.Int64
		r := get(t, "http://up/")
		ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GetConn:              func(string) { got.Add(1) },
			GotFirstResponseByte: func() { first.Add(1) },
		}), 100*time.Millisecond)
		defer cancel()
		r = r.WithContext(ctx)
		_, err := transport.New(tr, g).RoundTrip(r)
		require.True(t, errors.Is(err, context.DeadlineExceeded))
		r.Header.Set("X-Mine", "again")
		assert.Zero(t, inFlight(t, g))
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 1, got.Load())
		assert.Zero(t, first.Load())
	})
}
