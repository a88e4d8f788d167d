package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/transport"
)

const atBody = `  - {name: p, bulkhead: {maxConcurrent: 5}, breaker: {slowCall: 100ms, minCalls: 1, failureRate: 100, slowCallRate: 100, settle: body}}`

// filed tells what the breaker made of its only call.
func filed(t *testing.T, g *watertight.Guard) string {
	b := only(t, g).Breaker
	switch {
	case b.Calls == 0:
		return "neutral"
	case b.FailureRate == 100 && b.SlowCallRate == 100:
		return "both"
	case b.FailureRate == 100:
		return "failed"
	case b.SlowCallRate == 100:
		return "slow"
	}
	return "ok"
}

// settle: body has the outcome known when the body ends, by how it ends.
func TestSettleAtTheEndOfTheBody(t *testing.T) {
	const ms = time.Millisecond
	errBroken := errors.New("connection reset")
	type end func(t *testing.T, body io.ReadCloser, cancel func())
	var (
		reads end = func(t *testing.T, body io.ReadCloser, _ func()) {
			_, err := io.ReadAll(body)
			assert.NoError(t, err)
		}
		breaks end = func(t *testing.T, body io.ReadCloser, _ func()) {
			_, err := io.ReadAll(body)
			assert.Error(t, err)
		}
		closes end = func(t *testing.T, body io.ReadCloser, _ func()) { assert.NoError(t, body.Close()) }
		leaves end = func(_ *testing.T, _ io.ReadCloser, cancel func()) {
			cancel()
			synctest.Wait()
		}
		leavesAndCloses end = func(t *testing.T, body io.ReadCloser, cancel func()) {
			cancel()
			assert.NoError(t, body.Close())
		}
		leavesAndReads end = func(t *testing.T, body io.ReadCloser, cancel func()) {
			cancel()
			_, err := io.ReadAll(body)
			assert.Error(t, err)
		}
		waits end = func(_ *testing.T, _ io.ReadCloser, _ func()) { synctest.Wait() }
	)
	for _, test := range []struct {
		name    string
		status  int
		after   time.Duration // headers to end
		timeout time.Duration
		broken  error
		end     end
		want    string
	}{
		{"read to its end", 200, 10 * ms, time.Hour, nil, reads, "ok"},
		{"read to its end, slowly", 200, 101 * ms, time.Hour, nil, reads, "slow"},
		{"read to its end, 500", 500, 10 * ms, time.Hour, nil, reads, "failed"},
		{"breaks off", 200, 10 * ms, time.Hour, errBroken, breaks, "failed"},
		{"breaks off in the middle of what its length promised", 200, 10 * ms, time.Hour, io.ErrUnexpectedEOF, breaks, "failed"},
		{"breaks off, late", 200, 101 * ms, time.Hour, errBroken, breaks, "both"},
		{"closed before its end", 200, 10 * ms, time.Hour, nil, closes, "ok"},
		{"closed before its end, 503", 503, 10 * ms, time.Hour, nil, closes, "failed"},
		{"closed before its end, late", 200, 101 * ms, time.Hour, nil, closes, "slow"},
		{"the caller cancels early", 500, 10 * ms, time.Hour, nil, leaves, "neutral"},
		{"the caller cancels late", 500, 100 * ms, time.Hour, nil, leaves, "slow"},
		{"the caller cancels early and closes", 200, 10 * ms, time.Hour, nil, leavesAndCloses, "neutral"},
		{"the caller cancels late and closes", 200, 100 * ms, time.Hour, nil, leavesAndCloses, "slow"},
		{"the caller cancels early, and the body fails for that", 200, 10 * ms, time.Hour, context.Canceled, leavesAndReads, "neutral"},
		{"the caller's deadline", 200, 50 * ms, 50 * ms, nil, waits, "failed"},
		{"the caller's deadline, and the body fails for that", 200, 50 * ms, 50 * ms, context.DeadlineExceeded, breaks, "failed"},
		{"the caller's deadline, late", 200, 150 * ms, 150 * ms, nil, waits, "both"},
		{"the whole body came by the deadline", 200, 50*ms - 1, 50 * ms, nil, reads, "ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, atBody)
				inner := &chunks{left: 3, end: io.EOF}
				if test.broken != nil {
					inner.end = test.broken
				}
				rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
					return answer(r, test.status, inner), nil
				}), g)
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				resp := open(t, rt, get(t, "http://up/").WithContext(ctx))
				assert.Equal(t, "neutral", filed(t, g), "nothing is known yet")
				time.Sleep(test.after)
				test.end(t, resp.Body, cancel)
				assert.Equal(t, test.want, filed(t, g))
				assert.Zero(t, inFlight(t, g))

				// What comes later changes nothing.
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				cancel()
				synctest.Wait()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// What has no body to wait for, or no end that says anything, settles with its
// headers.
func TestSettleBodyWithoutABody(t *testing.T) {
	for _, test := range []struct {
		name string
		base base
		opts []transport.Option
		want string
	}{
		{"no body", always(200), nil, "ok"},
		{"no body, 500", always(500), nil, "failed"},
		{"204", func(r *http.Request) (*http.Response, error) { return answer(r, 204, &chunks{end: io.EOF}), nil }, nil, "ok"},
		{"101", func(r *http.Request) (*http.Response, error) { return answer(r, 101, &session{Reader: text("x")}), nil }, nil, "ok"},
		{"released at headers", streaming, []transport.Option{transport.ReleaseAtHeaders()}, "ok"},
		{"no answer", failing, nil, "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, atBody)
			resp, err := transport.New(test.base, g, test.opts...).RoundTrip(get(t, "http://up/"))
			assert.Equal(t, test.want, filed(t, g))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, test.want, filed(t, g))
		})
	}
}

// A response that streams for longer than slowCall was answered: it is not overdue.
// One that has no headers is, however many stream beside it.
func TestAStreamIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, atBody)
		rt := transport.New(base(streaming), g)
		resp := open(t, rt, get(t, "http://up/"))
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			require.Equal(t, "closed", only(t, g).Breaker.State)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, _ = transport.New(after(time.Hour, always(200)), g).RoundTrip(get(t, "http://up/").WithContext(ctx))
		}()
		time.Sleep(115 * time.Millisecond)
		_, err := rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, breaker.ErrOpen)
		require.NoError(t, resp.Body.Close())
	})
}

// A body that is dropped is no outcome: nobody knows what became of it.
func TestADroppedBodyIsNoOutcome(t *testing.T) {
	g, _ := logged(t, atBody)
	open(t, transport.New(base(streaming), g), get(t, "http://up/").WithContext(context.Background()))
	collect(t, func() bool { return only(t, g).Leaked == 1 })
	collect(t, func() bool { return inFlight(t, g) == 0 })
	assert.Equal(t, "neutral", filed(t, g))
}

// The probe of a half-open breaker decides when its body has ended.
func TestAProbeDecidesAtTheEndOfItsBody(t *testing.T) {
	for _, test := range []struct {
		end  error
		want string
	}{{io.EOF, "closed"}, {io.ErrUnexpectedEOF, "open"}} {
		synctest.Test(t, func(t *testing.T) {
			g := tripped(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}, settle: body}}`)
			time.Sleep(time.Second)
			resp := open(t, transport.New(base(func(r *http.Request) (*http.Response, error) {
				return answer(r, 200, &chunks{left: 1, end: test.end}), nil
			}), g), get(t, "http://up/"))
			assert.Equal(t, "half_open", only(t, g).Breaker.State)
			_, _ = io.ReadAll(resp.Body)
			assert.Equal(t, test.want, only(t, g).Breaker.State)
		})
	}
}

// E33: a Read that fails because of a Close on another goroutine has not found a
// broken body.
func TestACloseThatBreaksAReadIsAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, atBody)
		pr, _ := io.Pipe() // its Close fails the Read at once
		inner := &slowClose{ReadCloser: pr}
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) { return answer(r, 200, inner), nil }), g)
		body := open(t, rt, get(t, "http://up/")).Body
		go func() { _, _ = body.Read(make([]byte, 1)) }()
		synctest.Wait()
		require.NoError(t, body.Close())
		assert.True(t, inner.failed.Load(), "the Read failed before Close returned")
		assert.Equal(t, "ok", filed(t, g))
	})
}

// A slowClose goes on with Close when the Read that it broke is over.
type slowClose struct {
	io.ReadCloser
	failed atomic.Bool
}

func (s *slowClose) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.failed.Store(err != nil)
	return n, err
}

func (s *slowClose) Close() error {
	err := s.ReadCloser.Close()
	time.Sleep(time.Millisecond)
	return err
}

// The same with the client of net/http: a handler that aborts in the middle of its
// body is a failure, over HTTP/1 and HTTP/2.
func TestABodyThatBreaksOffOnTheWire(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			assert.NoError(t, http.NewResponseController(w).Flush())
			if r.URL.Path == "/aborts" {
				panic(http.ErrAbortHandler)
			}
		}))
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		t.Cleanup(srv.Close)
		for path, want := range map[string]string{"/aborts": "failed", "/ends": "ok"} {
			g := guard(t, `  - {name: p, breaker: {minCalls: 1, failureRate: 100, settle: body}}`)
			client := &http.Client{Transport: transport.New(srv.Client().Transport, g)}
			resp, err := client.Get(srv.URL + path)
			require.NoError(t, err)
			assert.Equal(t, http2, resp.ProtoMajor == 2)
			_, err = io.ReadAll(resp.Body)
			assert.Equal(t, want == "failed", err != nil)
			assert.Equal(t, want, filed(t, g), "%s, %s", path, resp.Proto)
			require.NoError(t, resp.Body.Close())
		}
	}
}
