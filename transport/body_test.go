package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/transport"
)

// E33: the permit is held until the body ends, however it ends, and is given
// back once. A second response stays open all along: giving back twice would
// take its permit.
func TestPermitEndsWithTheBody(t *testing.T) {
	errBroken := errors.New("connection reset")
	type ending func(t *testing.T, body io.ReadCloser, inner *chunks, cancel func())
	var (
		closes ending = func(t *testing.T, body io.ReadCloser, _ *chunks, _ func()) { assert.NoError(t, body.Close()) }
		reads  ending = func(t *testing.T, body io.ReadCloser, _ *chunks, _ func()) {
			_, err := io.ReadAll(body)
			assert.NoError(t, err)
		}
		breaks ending = func(t *testing.T, body io.ReadCloser, inner *chunks, _ func()) {
			inner.mu.Lock()
			inner.end = errBroken
			inner.mu.Unlock()
			got, err := io.ReadAll(body)
			assert.Equal(t, "xxx", string(got))
			assert.Equal(t, errBroken, err, "untouched")
		}
		leaves ending = func(t *testing.T, _ io.ReadCloser, _ *chunks, cancel func()) {
			cancel()
			synctest.Wait()
		}
	)
	for _, test := range []struct {
		name string
		end  ending
	}{
		{"a: Close, nothing read", closes},
		{"b: EOF, then Close", func(t *testing.T, body io.ReadCloser, inner *chunks, cancel func()) {
			reads(t, body, inner, cancel)
			closes(t, body, inner, cancel)
		}},
		{"c: EOF, never Close", reads},
		{"d: Close thrice", func(t *testing.T, body io.ReadCloser, inner *chunks, cancel func()) {
			closes(t, body, inner, cancel)
			closes(t, body, inner, cancel)
			closes(t, body, inner, cancel)
		}},
		{"e: read error", breaks},
		{"f: context ends, body abandoned", leaves},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 2}}`)
				inner := &chunks{left: 3, end: io.EOF}
				other := &chunks{left: 3, end: io.EOF}
				bodies := []io.ReadCloser{other, inner}
				rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
					body := bodies[0]
					bodies = bodies[1:]
					return answer(r, 200, body), nil
				}), g)
				stays := open(t, rt, get(t, "http://up/"))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp := open(t, rt, get(t, "http://up/").WithContext(ctx))
				assert.Equal(t, 2, inFlight(t, g), "held when RoundTrip returns")
				_, err := rt.RoundTrip(get(t, "http://up/"))
				require.ErrorIs(t, err, bulkhead.ErrFull)

				test.end(t, resp.Body, inner, cancel)
				require.Equal(t, 1, inFlight(t, g), "free")

				_, _ = io.ReadAll(resp.Body)
				assert.NoError(t, resp.Body.Close())
				assert.NoError(t, resp.Body.Close())
				cancel()
				synctest.Wait()
				require.Equal(t, 1, inFlight(t, g), "given back once")

				_, err = resp.Body.Read(make([]byte, 1))
				assert.Equal(t, errClosed, err, "a read after Close is the inner body's affair")
				assert.NoError(t, stays.Body.Close())
				assert.Equal(t, 2, capacity(t, g))
				assert.Zero(t, only(t, g).Leaked)
			})
		})
	}
}

// E33: Close may be called by anyone at any time, also while a Read waits.
func TestCloseFromManyGoroutinesWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 2}}`)
		pr, _ := io.Pipe()
		bodies := []io.ReadCloser{&chunks{}, pr}
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
			body := bodies[0]
			bodies = bodies[1:]
			return answer(r, 200, body), nil
		}), g)
		stays := open(t, rt, get(t, "http://up/"))
		body := open(t, rt, get(t, "http://up/")).Body
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := body.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.ErrClosedPipe)
		})
		synctest.Wait()
		assert.Equal(t, 2, inFlight(t, g), "a Read that waits holds the permit")
		for range 3 {
			wg.Go(func() { assert.NoError(t, body.Close()) })
		}
		wg.Wait()
		assert.Equal(t, 1, inFlight(t, g))
		assert.NoError(t, stays.Body.Close())
		assert.Equal(t, 2, capacity(t, g))
	})
}

// E33: what the inner Close says is passed on, an error as well as a panic; the
// permit comes back all the same.
func TestInnerCloseThatFails(t *testing.T) {
	errClose := errors.New("close failed")
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		return answer(r, 200, &chunks{closeErr: errClose}), nil
	}), g)
	assert.Equal(t, errClose, open(t, rt, get(t, "http://up/")).Body.Close())
	assert.Equal(t, 1, capacity(t, g))

	rt = transport.New(base(func(r *http.Request) (*http.Response, error) {
		return answer(r, 200, panickingBody{}), nil
	}), g)
	body := open(t, rt, get(t, "http://up/")).Body
	assert.PanicsWithValue(t, "close", func() { _ = body.Close() })
	assert.Equal(t, 1, capacity(t, g))
}

type panickingBody struct{ io.Reader }

func (panickingBody) Close() error { panic("close") }

// Whoever has closed a body may rely on what that means: the permit is back, and
// told of, also if it was not Close that gave it back but, on another goroutine
// and not done yet, the end of the context. Otherwise the next call of the same
// goroutine could be refused because of this one.
func TestAfterCloseThePermitIsBack(t *testing.T) {
	inHook, gate := make(chan struct{}), make(chan struct{})
	var told atomic.Bool
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`, watertight.WithHooks(watertight.Hooks{
		Release: func(context.Context, watertight.ReleaseEvent) {
			close(inHook)
			<-gate
			told.Store(true)
		},
	}))
	ctx, cancel := context.WithCancel(t.Context())
	resp := open(t, transport.New(base(streaming), g), get(t, "http://up/").WithContext(ctx))
	cancel()
	<-inHook
	toldAtClose := make(chan bool)
	closing := make(chan struct{})
	go func() {
		close(closing)
		assert.NoError(t, resp.Body.Close())
		toldAtClose <- told.Load()
	}()
	<-closing
	for range 1000 {
		runtime.Gosched() // time enough for a Close that does not wait
	}
	close(gate)
	assert.True(t, <-toldAtClose)
}

// A context that ends while the response is handed out, or had ended before, is
// noticed all the same.
func TestContextEndsBeforeTheBodyIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
		ctx, cancel := context.WithCancel(t.Context())
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
			cancel()
			return streaming(r)
		}), g)
		resp, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
		require.NoError(t, err, "the base has the say")
		synctest.Wait()
		assert.Equal(t, 1, capacity(t, g))
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, 1, capacity(t, g))
		assert.Equal(t, 1, only(t, g).Breaker.Calls, "an answer is an answer")
	})
}

// E34, without a wire: what is empty by protocol needs no Close, and is handed
// on as it is, whatever its type.
func TestEmptyByProtocol(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		resp   func() *http.Response
		held   bool
	}{
		{"nil body", "GET", func() *http.Response { return &http.Response{StatusCode: 200, ContentLength: -1} }, false},
		{"NoBody", "GET", func() *http.Response {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: http.NoBody}
		}, false},
		{"HEAD with a length", "HEAD", func() *http.Response {
			return &http.Response{StatusCode: 200, ContentLength: 10, Body: text("")}
		}, false},
		{"204", "GET", func() *http.Response { return &http.Response{StatusCode: 204, ContentLength: -1, Body: text("")} }, false},
		{"304", "GET", func() *http.Response { return &http.Response{StatusCode: 304, ContentLength: 10, Body: text("")} }, false},
		{"length 0", "GET", func() *http.Response { return &http.Response{StatusCode: 200, Body: text("")} }, false},
		{"101 without a body", "GET", func() *http.Response { return &http.Response{StatusCode: 101} }, false},
		{"101 with NoBody", "GET", func() *http.Response { return &http.Response{StatusCode: 101, Body: http.NoBody} }, false},

		{"length unknown", "GET", func() *http.Response {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: text("")}
		}, true},
		{"length 1", "GET", func() *http.Response {
			return &http.Response{StatusCode: 200, ContentLength: 1, Body: text("x")}
		}, true},
		{"205", "GET", func() *http.Response { return &http.Response{StatusCode: 205, ContentLength: -1, Body: text("")} }, true},
		{"CONNECT", "CONNECT", func() *http.Response { return &http.Response{StatusCode: 200, Body: text("x")} }, true},
		{"101 without a length", "GET", func() *http.Response { return &http.Response{StatusCode: 101, Body: text("")} }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			made := test.resp()
			inner := made.Body
			rt := transport.New(base(func(*http.Request) (*http.Response, error) { return made, nil }), g)
			r := get(t, "http://up/")
			r.Method = test.method
			resp := open(t, rt, r)
			assert.Same(t, made, resp)
			if !test.held {
				assert.Equal(t, 1, capacity(t, g))
				assert.Equal(t, inner, resp.Body, "not wrapped")
				return
			}
			assert.Zero(t, capacity(t, g))
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, capacity(t, g))
		})
	}
}

func TestReleaseAtHeaders(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
	var inner io.ReadCloser
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, 1, inFlight(t, g), "held until the headers are in")
		inner = &chunks{left: 3, end: io.EOF}
		return answer(r, 200, inner), nil
	}), g, transport.ReleaseAtHeaders())
	for range 3 {
		resp := open(t, rt, get(t, "http://up/"))
		assert.Same(t, inner, resp.Body, "not wrapped")
		assert.Equal(t, 1, capacity(t, g))
	}
	assert.Equal(t, 3, only(t, g).Breaker.Calls, "the outcome is filed as ever")

	rt = transport.New(base(func(r *http.Request) (*http.Response, error) {
		return answer(r, 101, &session{}), nil
	}), g, transport.ReleaseAtHeaders())
	assert.IsType(t, &session{}, open(t, rt, get(t, "http://up/")).Body)
	assert.Equal(t, 1, capacity(t, g))
}

// Calls that only a breaker watches, or nothing at all, are held in the same
// way: draining waits for their bodies.
func TestDrainWaitsForBodies(t *testing.T) {
	for _, yaml := range []string{
		`  - {name: p, breaker: {}}`,
		`  - {name: p, match: [{host: elsewhere}], breaker: {}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, yaml)
			rt := transport.New(base(streaming), g)
			resp := open(t, rt, get(t, "http://up/"))
			assert.EqualValues(t, 1, only(t, g).InFlight)
			done := make(chan error, 1)
			go func() { done <- g.Drain(t.Context()) }()
			synctest.Wait()
			require.Empty(t, done)
			_, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, <-done)
			assert.Zero(t, only(t, g).InFlight)
		})
	}
}

// E59, for a caller without resty: one who retries and never closes what came
// before starves itself, but neither for ever nor for good.
func TestCallerWhoNeverCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 200ms}}`)
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
			return answer(r, 503, &chunks{left: 3, end: io.EOF}), nil
		}), g)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		kept := open(t, rt, get(t, "http://up/").WithContext(ctx))
		for range 3 {
			_, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
			require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
			assert.Equal(t, 1, inFlight(t, g), "the gauge shows what is not closed")
		}
		cancel()
		synctest.Wait()
		assert.Equal(t, 1, capacity(t, g))
		assert.NoError(t, kept.Body.Close())
	})
}

// E64: whatever becomes of the body, its Release is told once, after its Grant,
// and says whether the body was leaked.
func TestReleaseHookRunsOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		base base
		end  func(*http.Response, func())
	}{
		{"read and closed", streaming, func(resp *http.Response, cancel func()) {
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			cancel()
		}},
		{"closed thrice", streaming, func(resp *http.Response, cancel func()) {
			_ = resp.Body.Close()
			_ = resp.Body.Close()
			_ = resp.Body.Close()
			cancel()
		}},
		{"abandoned, then cancelled, then closed", streaming, func(resp *http.Response, cancel func()) {
			cancel()
			_ = resp.Body.Close()
		}},
		{"no body", always(204), func(resp *http.Response, cancel func()) {
			_ = resp.Body.Close()
			cancel()
		}},
		{"error", func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, func(_ *http.Response, cancel func()) {
			cancel()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var story []string
				tell := func(s string) {
					mu.Lock()
					defer mu.Unlock()
					story = append(story, s)
				}
				g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`, watertight.WithHooks(watertight.Hooks{
					Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
						tell("grant")
						return context.WithValue(ctx, hookKey("grant"), true)
					},
					Release: func(ctx context.Context, e watertight.ReleaseEvent) {
						assert.Equal(t, true, ctx.Value(hookKey("grant")))
						assert.False(t, e.Leaked)
						tell("release")
					},
				}))
				ctx, cancel := context.WithCancel(t.Context())
				resp, _ := transport.New(test.base, g).RoundTrip(get(t, "http://up/").WithContext(ctx))
				test.end(resp, cancel)
				synctest.Wait()
				assert.Equal(t, []string{"grant", "release"}, story)
			})
		})
	}
}

// E50c, E47: what happens to the body has no say with the breaker any more, be it
// slow, broken or of a period that is over; the permit comes back.
func TestBodyHasNoSayWithTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 2}, breaker: {minCalls: 2, openFor: 1m}}`)
		bodies := []*chunks{{left: 1, end: io.ErrUnexpectedEOF}, {left: 1, end: io.ErrUnexpectedEOF}}
		calls := 0
		rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
			calls++
			return answer(r, 200, bodies[calls-1]), nil
		}), g)
		first, second := open(t, rt, get(t, "http://up/")), open(t, rt, get(t, "http://up/"))
		for _, resp := range []*http.Response{first, second} {
			_, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		b := only(t, g).Breaker
		assert.Equal(t, "closed", b.State)
		assert.Equal(t, 2, b.Calls)
		assert.Zero(t, b.FailureRate)
		assert.Equal(t, 2, capacity(t, g))
	})
}

// A permit is out for exactly the responses that are open, whatever is done to
// the bodies and in which order.
func TestPermitsFollowBodies(t *testing.T) {
	const limit = 4
	type response struct {
		body   io.ReadCloser
		inner  *chunks
		cancel context.CancelFunc
		status int
		open   bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 4}, breaker: {failureRate: 100}}`)
			var next response
			tr := transport.New(base(func(r *http.Request) (*http.Response, error) {
				if next.status == 101 {
					return answer(r, 101, &session{Reader: next.inner}), nil
				}
				return answer(r, next.status, next.inner), nil
			}), g)
			var all []*response
			end := func() {
				for _, r := range all {
					_ = r.body.Close()
					r.cancel()
				}
			}
			defer end() // when rapid gives up on a sequence, too
			opened := func() int {
				n := 0
				for _, r := range all {
					if r.open {
						n++
					}
				}
				return n
			}
			pick := func(rt *rapid.T) *response {
				if len(all) == 0 {
					rt.Skip("no response yet")
				}
				return all[rapid.IntRange(0, len(all)-1).Draw(rt, "response")]
			}
			rt.Repeat(map[string]func(*rapid.T){
				"send": func(rt *rapid.T) {
					next = response{status: rapid.SampledFrom([]int{200, 503, 204, 101}).Draw(rt, "status")}
					next.inner = &chunks{
						left: rapid.IntRange(0, 3).Draw(rt, "chunks"),
						end:  rapid.SampledFrom([]error{io.EOF, io.ErrUnexpectedEOF}).Draw(rt, "end"),
					}
					ctx, cancel := context.WithCancel(context.Background())
					before := opened()
					resp, err := tr.RoundTrip(get(t, "http://up/").WithContext(ctx))
					if before == limit {
						cancel()
						require.ErrorIs(rt, err, bulkhead.ErrFull)
						return
					}
					if errors.Is(err, breaker.ErrOpen) {
						cancel()
						return
					}
					require.NoError(rt, err)
					r := next
					r.body, r.cancel, r.open = resp.Body, cancel, r.status != 204
					all = append(all, &r)
				},
				"read": func(rt *rapid.T) {
					r := pick(rt)
					_, err := r.body.Read(make([]byte, 8))
					if err != nil && (r.status != 101 || err != io.EOF) {
						r.open = false
					}
				},
				"close": func(rt *rapid.T) {
					r := pick(rt)
					require.NoError(rt, r.body.Close())
					r.open = false
				},
				"cancel": func(rt *rapid.T) {
					r := pick(rt)
					r.cancel()
					r.open = false
				},
				"": func(rt *rapid.T) {
					synctest.Wait()
					require.Equal(rt, opened(), inFlightOrNone(g))
				},
			})
			end()
			require.Zero(rt, inFlightOrNone(g))
		})
	})
}

// inFlightOrNone is inFlight for a Guard that may have met no call yet.
func inFlightOrNone(g *watertight.Guard) int {
	n := 0
	for _, c := range g.Snapshot().Compartments {
		n += int(c.InFlight)
	}
	return n
}

// session is a body that goes both ways.
type session struct {
	io.Reader
	sent   strings.Builder
	closes int
}

func (s *session) Write(p []byte) (int, error) { return s.sent.Write(p) }

func (s *session) Close() error {
	s.closes++
	return nil
}
