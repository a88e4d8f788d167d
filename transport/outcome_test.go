package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/transport"
)

// after is a base that takes so long for its answer, or less if the request's
// context ends before; then its error wraps nothing, as that of some bases.
func after(d time.Duration, then base) base {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return then(r)
		case <-r.Context().Done():
			return nil, errors.New("gave up: " + r.Context().Err().Error())
		}
	}
}

// failing is a base that fails for reasons of its own.
func failing(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("i/o timeout")}
}

// E41: a caller that cancels says nothing about the host. The window stays as it
// was; a caller that cancels while it reads the body has had its answer.
func TestCancelsAreNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {failureRate: 50, minCalls: 10}}`)
		slow := transport.New(after(time.Minute, always(200)), g)
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := slow.RoundTrip(get(t, "http://up/").WithContext(ctx))
			require.EqualError(t, err, "gave up: context canceled")
			require.NotErrorIs(t, err, context.Canceled, "so only the context tells")
		}
		assert.Zero(t, only(t, g).Breaker.Calls)

		hung := transport.New(base(func(r *http.Request) (*http.Response, error) {
			pr, pw := io.Pipe()
			context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
			return answer(r, 200, pr), nil
		}), g)
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			resp := open(t, hung, get(t, "http://up/").WithContext(ctx))
			time.AfterFunc(time.Millisecond, cancel)
			_, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, context.Canceled)
			synctest.Wait()
		}
		b := only(t, g).Breaker
		assert.Equal(t, "closed", b.State)
		assert.Equal(t, 50, b.Calls, "the answers")
		assert.Zero(t, b.FailureRate)
		assert.Equal(t, 1, capacity(t, g))
	})
}

// E41, the other way round: an error that only sounds like a time-out of the
// caller's is the host's.
func TestBasesOwnTimeoutsAreFailures(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {failureRate: 50, minCalls: 10}}`)
	for _, err := range []error{
		&net.OpError{Op: "read", Net: "tcp", Err: errors.New("i/o timeout")},
		context.DeadlineExceeded,
		context.Canceled,
	} {
		rt := transport.New(base(func(*http.Request) (*http.Response, error) { return nil, err }), g)
		for range 3 {
			_, got := rt.RoundTrip(get(t, "http://up/"))
			require.Equal(t, err, got)
		}
	}
	assert.Equal(t, "closed", only(t, g).Breaker.State, "nine failures")
	_, err := transport.New(base(failing), g).RoundTrip(get(t, "http://up/"))
	require.Error(t, err)
	assert.Equal(t, "open", only(t, g).Breaker.State, "ten")
}

// E41: the ways in which a caller's time runs out, with the client of net/http
// underneath. All are failures, since the host had all of that time; the time-out
// of the transport is one in any case.
func TestDeadlines(t *testing.T) {
	for _, test := range []struct {
		name   string
		client func(*http.Transport, *watertight.Guard) *http.Client
		ctx    func(context.Context) (context.Context, context.CancelFunc)
	}{
		{
			"deadline of the context",
			func(tr *http.Transport, g *watertight.Guard) *http.Client {
				return &http.Client{Transport: transport.New(tr, g)}
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 100*time.Millisecond)
			},
		},
		{
			"Client.Timeout",
			func(tr *http.Transport, g *watertight.Guard) *http.Client {
				return &http.Client{Transport: transport.New(tr, g), Timeout: 100 * time.Millisecond}
			},
			context.WithCancel,
		},
		{
			"Transport.ResponseHeaderTimeout",
			func(tr *http.Transport, g *watertight.Guard) *http.Client {
				tr.ResponseHeaderTimeout = 100 * time.Millisecond
				return &http.Client{Transport: transport.New(tr, g)}
			},
			context.WithCancel,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 5}}`)
				client := test.client(served(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), g)
				for range 5 {
					ctx, cancel := test.ctx(t.Context())
					start := time.Now()
					_, err := client.Do(get(t, "http://up/").WithContext(ctx))
					var timeout net.Error
					require.ErrorAs(t, err, &timeout)
					assert.True(t, timeout.Timeout())
					assert.Equal(t, 100*time.Millisecond, time.Since(start))
					cancel()
				}
				_, err := client.Do(get(t, "http://up/"))
				require.ErrorIs(t, err, breaker.ErrOpen)
				assert.Zero(t, inFlight(t, g))
			})
		})
	}
}

// E41: time that the call spent in our own queue is not the host's to answer for,
// however the end of the caller's time reaches the base.
func TestDeadlineThatTheQueueAteUp(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration // of the client
		ctx     time.Duration // of the context
	}{
		{"deadline of the context", 0, 100 * time.Millisecond},
		{"Client.Timeout", 100 * time.Millisecond, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The client tells the base by a timer of its own, at the same instant
			// as the context; which comes first is a matter of luck.
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1m}, breaker: {minCalls: 1}}`)
					rt := transport.New(served(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), g)
					first, cancelFirst := context.WithCancel(t.Context())
					time.AfterFunc(60*time.Millisecond, cancelFirst)
					go func() { _, _ = rt.RoundTrip(get(t, "http://up/").WithContext(first)) }()
					synctest.Wait()

					ctx, cancel := context.WithTimeout(t.Context(), test.ctx)
					defer cancel()
					client := &http.Client{Transport: rt, Timeout: test.timeout}
					_, err := client.Do(get(t, "http://up/").WithContext(ctx))
					require.Error(t, err)
					require.Zero(t, only(t, g).Breaker.Calls)
				})
			}
		})
	}
}

// tripped returns a Guard with one probe, whose breaker for http://up/ has just
// opened for a second.
func tripped(t *testing.T, yaml string, opts ...watertight.Option) *watertight.Guard {
	t.Helper()
	g := guard(t, yaml, opts...)
	_, err := transport.New(base(failing), g).RoundTrip(get(t, "http://up/"))
	require.Error(t, err)
	require.Equal(t, "open", only(t, g).Breaker.State)
	return g
}

// E42: a probe that says nothing is handed back, a hundred times over, and the
// next one may decide.
func TestProbesComeBack(t *testing.T) {
	const yaml = `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`
	for _, test := range []struct {
		name string
		call func(*testing.T, *watertight.Guard)
	}{
		{"the caller cancels before headers", func(t *testing.T, g *watertight.Guard) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := transport.New(after(time.Minute, always(200)), g).RoundTrip(get(t, "http://up/").WithContext(ctx))
			require.Error(t, err)
		}},
		{"the caller is gone when it arrives", func(t *testing.T, g *watertight.Guard) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := transport.New(always(200), g).RoundTrip(get(t, "http://up/").WithContext(ctx))
			require.Equal(t, context.Canceled, err)
		}},
		{"the caller cancels and the base panics", func(t *testing.T, g *watertight.Guard) {
			ctx, cancel := context.WithCancel(t.Context())
			rt := transport.New(base(func(*http.Request) (*http.Response, error) {
				cancel()
				panic("base")
			}), g)
			assert.PanicsWithValue(t, "base", func() { _, _ = rt.RoundTrip(get(t, "http://up/").WithContext(ctx)) })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := tripped(t, yaml)
				time.Sleep(time.Second)
				for range 100 {
					test.call(t, g)
				}
				b := only(t, g).Breaker
				assert.NotEqual(t, "closed", b.State)
				open(t, transport.New(always(200), g), get(t, "http://up/"))
				assert.Equal(t, "closed", only(t, g).Breaker.State)
			})
		})
	}
}

// E42: a probe has decided when its headers are in, whatever becomes of its body.
func TestProbeWithAnOpenBodyHasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := tripped(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		time.Sleep(time.Second)
		resp := open(t, transport.New(base(streaming), g), get(t, "http://up/"))
		c := only(t, g)
		assert.Equal(t, "closed", c.Breaker.State)
		assert.Equal(t, 1, c.Bulkhead.InFlight)
		require.NoError(t, resp.Body.Close())
	})
}

// E43: a probe that finds the bulkhead full is handed back, and counts for
// nothing; and an open breaker refuses at once although there is a queue.
func TestProbeThatTheBulkheadRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 10ms}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		var hits atomic.Int64
		old := open(t, transport.New(base(func(r *http.Request) (*http.Response, error) {
			return answer(r, 500, &chunks{end: io.EOF}), nil
		}), g), get(t, "http://up/")) // trips the breaker, and its body keeps the permit
		rt := transport.New(counted(&hits, always(200)), g)
		start := time.Now()
		_, err := rt.RoundTrip(get(t, "http://up/"))
		require.ErrorIs(t, err, breaker.ErrOpen)
		assert.Zero(t, time.Since(start), "nobody queues for what is known to be down")

		time.Sleep(time.Second)
		for range 100 {
			_, err := rt.RoundTrip(get(t, "http://up/"))
			require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		}
		b := only(t, g).Breaker
		assert.Equal(t, "half_open", b.State)
		assert.Zero(t, b.Calls)
		assert.Zero(t, hits.Load())

		require.NoError(t, old.Body.Close())
		open(t, rt, get(t, "http://up/"))
		assert.Equal(t, "closed", only(t, g).Breaker.State)
	})
}

// E43: those who queued while the breaker opened do not get through to the base.
func TestWaitersMeetTheOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1m}, breaker: {minCalls: 1, openFor: 1m}}`)
		var hits atomic.Int64
		rt := transport.New(counted(&hits, said), g)
		inside := hang(t, rt)
		errs := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := rt.RoundTrip(get(t, "http://up/"))
				errs <- err
			}()
		}
		synctest.Wait()
		inside <- errors.New("connection refused")
		for range 10 {
			require.ErrorIs(t, <-errs, breaker.ErrOpen)
		}
		assert.EqualValues(t, 1, hits.Load())
		c := only(t, g)
		assert.EqualValues(t, 10, c.Rejected["open"])
		assert.EqualValues(t, 1, c.Granted)
		assert.Zero(t, c.Bulkhead.InFlight)
	})
}

// E44: of a crowd that finds the open period over, exactly the probes get in,
// nobody waits, and one decision is made.
func TestExactlyTheProbesGetIn(t *testing.T) {
	for _, test := range []struct {
		name   string
		second error
		want   string
	}{
		{"both good", nil, "closed"},
		{"one bad", errors.New("connection refused"), "open"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var states []string
				g := guard(t, `  - {name: p, breaker: {minCalls: 2, openFor: 1s, halfOpen: {calls: 2}}}`,
					watertight.WithHooks(watertight.Hooks{Transition: func(_ context.Context, e watertight.TransitionEvent) {
						mu.Lock()
						defer mu.Unlock()
						states = append(states, e.From.String()+" to "+e.To.String())
					}}))
				for range 2 {
					_, err := transport.New(base(failing), g).RoundTrip(get(t, "http://up/"))
					require.Error(t, err)
				}
				time.Sleep(time.Second)

				var hits atomic.Int64
				gate := make(chan error)
				rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
					hits.Add(1)
					if err := <-gate; err != nil {
						return nil, err
					}
					return answer(r, 200, nil), nil
				}), g)
				start := make(chan struct{})
				var refused atomic.Int64
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						<-start
						if _, err := rt.RoundTrip(get(t, "http://up/")); errors.Is(err, breaker.ErrOpen) {
							refused.Add(1)
						}
					})
				}
				close(start)
				synctest.Wait()
				assert.EqualValues(t, 2, hits.Load())
				assert.EqualValues(t, 98, refused.Load())
				gate <- nil
				gate <- test.second
				wg.Wait()
				assert.Equal(t, test.want, only(t, g).Breaker.State)
				assert.Equal(t, []string{"closed to open", "open to half_open", "half_open to " + test.want}, states)
			})
		})
	}
}

// E47: a result of an earlier period decides nothing, early or late, good or bad.
func TestLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 10}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		rt := transport.New(base(said), g)
		lateGood, lateBad := hang(t, rt), hang(t, rt)
		fail(t, rt)
		time.Sleep(time.Second)
		probe := hang(t, rt)
		require.Equal(t, "half_open", only(t, g).Breaker.State)

		lateGood <- nil
		synctest.Wait()
		assert.Equal(t, "half_open", only(t, g).Breaker.State, "a good one does not close")
		probe <- errors.New("connection refused")
		synctest.Wait()
		assert.Equal(t, "open", only(t, g).Breaker.State)

		time.Sleep(time.Second)
		open(t, rt, get(t, "http://up/"))
		require.Equal(t, "closed", only(t, g).Breaker.State)
		lateBad <- errors.New("connection refused")
		synctest.Wait()
		b := only(t, g).Breaker
		assert.Equal(t, "closed", b.State, "a bad one does not open")
		assert.Zero(t, b.Calls)
		assert.Zero(t, inFlight(t, g))
	})
}

// E48: what is older than the window is forgotten, also if nothing happens in
// between, and half-open leaves nothing behind.
func TestWindowForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `  - {name: p, breaker: {failureRate: 50, minCalls: 10, window: {time: 10s}, openFor: 1s, halfOpen: {calls: 1}}}`)
		bad, good := transport.New(base(failing), g), transport.New(always(200), g)
		for range 9 {
			_, err := bad.RoundTrip(get(t, "http://up/"))
			require.Error(t, err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		_, err := bad.RoundTrip(get(t, "http://up/"))
		require.Error(t, err)
		b := only(t, g).Breaker
		assert.Equal(t, "closed", b.State)
		assert.Equal(t, 1, b.Calls)

		time.Sleep(1000 * 10 * time.Second)
		assert.Zero(t, only(t, g).Breaker.Calls)
		for range 5 {
			open(t, good, get(t, "http://up/"))
		}
		time.Sleep(time.Second)
		for range 5 {
			_, err := bad.RoundTrip(get(t, "http://up/"))
			require.Error(t, err)
		}
		assert.Equal(t, "open", only(t, g).Breaker.State, "half of ten")
		time.Sleep(time.Second)
		open(t, good, get(t, "http://up/"))
		b = only(t, g).Breaker
		assert.Equal(t, "closed", b.State)
		assert.Zero(t, b.Calls, "the probe is not in the new window")
	})
}

// E50: what slow measures. The rule is slowCall: 100ms.
func TestSlow(t *testing.T) {
	const yaml = `  - {name: p, bulkhead: {maxConcurrent: 1, maxWait: 1m}, breaker: {slowCall: 100ms, slowCallRate: 100, failureRate: 100, minCalls: 1, window: {calls: 1}}}`
	for _, test := range []struct {
		name         string
		base         base
		use          func(*http.Response)
		queued       time.Duration
		slow, failed float64
	}{
		{name: "a: the queue", base: after(10*time.Millisecond, always(200)), queued: 300 * time.Millisecond},
		{name: "b: a late success", base: after(150*time.Millisecond, always(200)), slow: 100},
		{name: "on the limit", base: after(100*time.Millisecond, always(200))},
		{name: "c: a slow reader", base: after(10*time.Millisecond, streaming), use: func(resp *http.Response) {
			time.Sleep(2 * time.Second)
			_, _ = io.ReadAll(resp.Body)
		}},
		{name: "d: a late error", base: after(150*time.Millisecond, failing), slow: 100, failed: 100},
		{name: "a late 500", base: after(150*time.Millisecond, always(500)), slow: 100, failed: 100},
		{name: "e: a stream", base: after(10*time.Millisecond, streaming), use: func(resp *http.Response) {
			for range 3 {
				time.Sleep(time.Minute)
				_, _ = resp.Body.Read(make([]byte, 1))
			}
			_ = resp.Body.Close()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, yaml)
				if test.queued > 0 {
					resp := open(t, transport.New(base(streaming), g), get(t, "http://up/"))
					time.AfterFunc(test.queued, func() { _ = resp.Body.Close() })
				}
				resp, err := transport.New(test.base, g).RoundTrip(get(t, "http://up/"))
				if err == nil && test.use != nil {
					test.use(resp)
				}
				b := only(t, g).Breaker
				assert.Equal(t, 1, b.Calls)
				assert.Equal(t, test.slow, b.SlowCallRate, "slow")
				assert.Equal(t, test.failed, b.FailureRate, "failed")
				assert.Zero(t, inFlight(t, g))
			})
		})
	}
}

// E50f: a slow probe is no better than a failed one.
func TestSlowProbeReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := tripped(t, `  - {name: p, breaker: {slowCall: 100ms, minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		time.Sleep(time.Second)
		open(t, transport.New(after(101*time.Millisecond, always(200)), g), get(t, "http://up/"))
		assert.Equal(t, "open", only(t, g).Breaker.State)
	})
}

// E54: a panic of the base, and a Goexit, go on to whom they are meant for; the
// permit and the probe come back, and the call counts once, as a failure.
func TestBaseThatDoesNotReturn(t *testing.T) {
	value := errors.New("boom")
	for _, test := range []struct {
		name string
		base base
		want any
	}{
		{"panic", func(*http.Request) (*http.Response, error) { panic(value) }, value},
		{"abort", func(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
		{"Goexit", func(*http.Request) (*http.Response, error) {
			runtime.Goexit()
			return nil, nil
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 2, window: {calls: 2}, openFor: 1s, halfOpen: {calls: 1}}}`)
				rt := transport.New(test.base, g)
				call := func() {
					done := make(chan any)
					go func() {
						defer func() { done <- recover() }()
						_, _ = rt.RoundTrip(get(t, "http://up/"))
						t.Error("RoundTrip returned")
					}()
					assert.Equal(t, test.want, <-done)
				}
				call()
				assert.Equal(t, 1, only(t, g).Breaker.Calls)
				assert.Equal(t, 1, capacity(t, g))
				call()
				require.Equal(t, "open", only(t, g).Breaker.State, "two of two failed")
				time.Sleep(time.Second)
				call() // as the probe
				require.Equal(t, "open", only(t, g).Breaker.State)
				time.Sleep(time.Second)
				open(t, transport.New(always(200), g), get(t, "http://up/"))
				assert.Equal(t, "closed", only(t, g).Breaker.State)
			})
		})
	}
}
