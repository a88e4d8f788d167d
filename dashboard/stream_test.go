package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
)

// An event is one of a stream; the name of a comment is ":".
type event struct {
	name string
	data string
	at   time.Time
}

func (e event) member(t *testing.T, name string) json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(e.data), &all), e.data)
	return all[name]
}

func (e event) seq(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, json.Unmarshal(e.member(t, "seq"), &n))
	return n
}

// readEvents sends what it reads from r, until that ends.
func readEvents(r io.Reader, to chan<- event) {
	defer close(to)
	lines := bufio.NewReader(r)
	var e event
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			e.at = time.Now()
			to <- e
			e = event{}
		case strings.HasPrefix(line, ":"):
			e.name = ":"
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
		default:
			panic(fmt.Sprintf("not an event: %.80q", line))
		}
	}
}

// A stream is an open one, in a bubble: whoever writes to it waits until it is read.
type stream struct {
	events chan event
	cancel context.CancelFunc
	ended  chan struct{}
}

// A pipeWriter is a ResponseWriter of such a stream.
type pipeWriter struct {
	header http.Header
	status int
	conn   net.Conn
}

func (w *pipeWriter) Header() http.Header                { return w.header }
func (w *pipeWriter) WriteHeader(status int)             { w.status = status }
func (w *pipeWriter) Write(p []byte) (int, error)        { return w.conn.Write(p) }
func (w *pipeWriter) FlushError() error                  { return nil }
func (w *pipeWriter) SetWriteDeadline(d time.Time) error { return w.conn.SetWriteDeadline(d) }
func (w *pipeWriter) SetReadDeadline(d time.Time) error  { return w.conn.SetReadDeadline(d) }

// open watches h. room is for so many events to come before the writer waits.
func open(t *testing.T, h http.Handler, room int) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	here, there := net.Pipe()
	s := &stream{make(chan event, room), cancel, make(chan struct{})}
	go readEvents(here, s.events)
	go func() {
		defer close(s.ended)
		defer there.Close()
		w := &pipeWriter{header: make(http.Header), conn: there}
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
	}()
	t.Cleanup(func() { cancel() })
	return s
}

func (s *stream) next(t *testing.T) event {
	t.Helper()
	e, ok := <-s.events
	require.True(t, ok, "the stream has ended")
	return e
}

func (s *stream) close() {
	s.cancel()
	for range s.events {
	}
	<-s.ended
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		call(g, "acme")
		call(g, "globex")
		h := dashboard.Handler(g)
		began := time.Now()
		s := open(t, h, 0)
		defer s.close()

		first := s.next(t)
		assert.Equal(t, "snapshot", first.name)
		assert.Equal(t, began, first.at, "at once")
		assert.Contains(t, first.data, `"key":"acme"`)
		assert.Contains(t, first.data, `"key":"globex"`)

		for i := range 3 {
			e := s.next(t)
			assert.Equal(t, "delta", e.name)
			assert.Equal(t, time.Duration(i+1)*time.Second, e.at.Sub(began), "once a second")
			assert.Equal(t, first.seq(t)+i+1, e.seq(t))
			assert.Nil(t, e.member(t, "compartments"), "nothing has changed")
			assert.Less(t, len(e.data), 200)
		}

		call(g, "globex")
		e := s.next(t)
		assert.Contains(t, e.data, `"key":"globex"`)
		assert.NotContains(t, e.data, `"key":"acme"`, "only what has changed")
		assert.Nil(t, e.member(t, "order"))

		call(g, "initech")
		e = s.next(t)
		assert.JSONEq(t, `["server/tenants/header/acme", "server/tenants/header/globex", "server/tenants/header/initech"]`, string(e.member(t, "order")))

		g.ReloadFailed(errors.New("line 3 is wrong"))
		e = s.next(t)
		assert.Contains(t, string(e.member(t, "policies")), "line 3 is wrong")
	})
}

func TestStreamTellsOfTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		s := open(t, dashboard.Handler(g), 0)
		defer s.close()
		s.next(t)
		for range 2 {
			_ = g.Do(t.Context(), "payments", func(context.Context) error { return errors.New("down") })
		}
		e := s.next(t)
		assert.Contains(t, string(e.member(t, "transitions")), `"cause":"failure_rate"`)
		assert.Contains(t, string(e.member(t, "compartments")), `"state":"open"`)
		assert.Nil(t, s.next(t).member(t, "transitions"), "once")
	})
}

func TestManyWatchersShareOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := dashboard.Handler(guard(t))
		var all []*stream
		for range 10 {
			s := open(t, h, 100)
			defer s.close()
			all = append(all, s)
			time.Sleep(100 * time.Millisecond) // each out of step with the others
		}
		time.Sleep(20 * time.Second)
		for _, s := range all {
			var last event
			n := len(s.events)
			for range n {
				last = s.next(t)
			}
			assert.LessOrEqual(t, last.seq(t), 22, "a look a second, whoever watches")
			assert.InDelta(t, 21, n, 2)
		}
	})
}

func TestStreamEnds(t *testing.T) {
	t.Run("with its request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, dashboard.Handler(guard(t)), 10)
			s.next(t)
			s.cancel()
			synctest.Wait()
			select {
			case <-s.ended:
			default:
				t.Error("it goes on")
			}
		})
	})
	t.Run("when the Guard is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t)
			s := open(t, dashboard.Handler(g), 10)
			s.next(t)
			g.Close()
			last := s.next(t)
			assert.Equal(t, "true", string(last.member(t, "closed")))
			assert.Equal(t, "closed", s.next(t).name)
			<-s.ended
		})
	})
	t.Run("at once when it was closed before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t)
			g.Close()
			s := open(t, dashboard.Handler(g), 10)
			assert.Equal(t, "snapshot", s.next(t).name)
			assert.Equal(t, "closed", s.next(t).name)
			<-s.ended
		})
	})
	t.Run("when nobody reads for ten seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			began := time.Now()
			w := &pipeWriter{header: make(http.Header), conn: there}
			dashboard.Handler(guard(t)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
			assert.Equal(t, 10*time.Second, time.Since(began))
		})
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := open(t, dashboard.Handler(guard(t), dashboard.WithInterval(40*time.Second)), 0)
		defer s.close()
		s.next(t)
		for _, want := range []struct {
			name  string
			after time.Duration
		}{{":", 15}, {":", 30}, {"delta", 40}, {":", 55}} {
			e := s.next(t)
			assert.Equal(t, want.name, e.name)
			assert.Equal(t, want.after*time.Second, e.at.Sub(began))
		}
	})
}

// Who does not read for a while gets one step to the newest then, not one for each second.
func TestASlowWatcherSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		h := dashboard.Handler(g)
		fast, slow := open(t, h, 100), open(t, h, 0)
		defer fast.close()
		defer slow.close()
		slow.next(t)
		base := slow.next(t)
		for range 8 { // the next events wait to be read all that time
			call(g, "acme")
			time.Sleep(time.Second)
		}
		slow.next(t) // two were on their way already, one of them written in part
		late := slow.next(t)
		assert.Equal(t, base.seq(t)+2, late.seq(t))
		skipped := slow.next(t)
		assert.GreaterOrEqual(t, skipped.seq(t), late.seq(t)+5)
		assert.JSONEq(t, string(late.member(t, "seq")), string(skipped.member(t, "base")))
		var rows []watertight.CompartmentSnapshot
		require.NoError(t, json.Unmarshal(skipped.member(t, "compartments"), &rows))
		require.Len(t, rows, 1)
		assert.EqualValues(t, 8, rows[0].Granted)
		time.Sleep(2 * time.Second)
		require.Greater(t, len(fast.events), 8, "and nobody waited for it")
		shown := fast.next(t)
		for range len(fast.events) {
			e := fast.next(t)
			require.JSONEq(t, string(shown.member(t, "seq")), string(e.member(t, "base")), "nor was anybody sent another's step")
			shown = e
		}
	})
}

func TestWatchersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := dashboard.Handler(guard(t), dashboard.WithMaxWatchers(2))
		one, two := open(t, h, 10), open(t, h, 10)
		defer two.close()
		one.next(t)
		two.next(t)

		resp := get(h, http.MethodGet, "/events")
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, "5", resp.Header.Get("Retry-After"))
		assert.Contains(t, body(t, resp), "WithMaxWatchers")
		assert.Equal(t, http.StatusOK, get(h, http.MethodGet, "/snapshot.json").StatusCode, "which is no stream")

		one.close()
		three := open(t, h, 10)
		assert.Equal(t, "snapshot", three.next(t).name)
		three.close()
	})
}

// Whoever comes after the last has gone gets a look of now, not one that was left.
func TestNothingIsKeptWhenNobodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		h := dashboard.Handler(g)
		s := open(t, h, 10)
		s.next(t)
		s.close()
		call(g, "acme")
		s = open(t, h, 10)
		defer s.close()
		assert.Contains(t, s.next(t).data, `"key":"acme"`)
	})
}

func TestHeadOfEvents(t *testing.T) {
	resp := get(dashboard.Handler(guard(t)), http.MethodHead, "/events")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	assert.Equal(t, "no", resp.Header.Get("X-Accel-Buffering"))
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	assert.Empty(t, body(t, resp))
}

func TestEventsNeedAFlusher(t *testing.T) {
	rec := httptest.NewRecorder()
	plain := struct{ http.ResponseWriter }{rec}
	dashboard.Handler(guard(t)).ServeHTTP(plain, httptest.NewRequest(http.MethodGet, "/events", nil))
	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.Contains(t, rec.Body.String(), "flush")
}

// A server's time-outs are for answers that end.
func TestStreamOutlivesTheServersTimeouts(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				protocols.SetHTTP1(version == "HTTP/1.1")
				protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
				srv := &http.Server{
					Handler:      dashboard.Handler(guard(t)),
					Protocols:    &protocols,
					ReadTimeout:  2 * time.Second,
					WriteTimeout: 2 * time.Second,
					IdleTimeout:  2 * time.Second,
				}
				ln := newPipeListener()
				served := make(chan error, 1)
				go func() { served <- srv.Serve(ln) }()
				tr := &http.Transport{Protocols: &protocols, DialContext: ln.dial}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://admin/events", nil)
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, version, resp.Proto)
				assert.Equal(t, http.StatusOK, resp.StatusCode)

				events := make(chan event, 100)
				go readEvents(resp.Body, events)
				time.Sleep(30*time.Second + time.Millisecond)
				assert.Len(t, events, 31)

				resp.Body.Close()
				tr.CloseIdleConnections()
				require.NoError(t, srv.Close())
				assert.ErrorIs(t, <-served, http.ErrServerClosed)
				for range events {
				}
			})
		})
	}
}

// A pipeListener hands out connections that are no sockets, so that time in a bubble
// goes on while they are idle.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, os.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
