package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
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

const strict = `  - {name: p, bulkhead: {maxConcurrent: 5}, breaker: {slowCall: 100ms, minCalls: 1, failureRate: 100, slowCallRate: 100}}`

// A classifier is asked once for each call, with exactly one of response and error,
// and what it says is filed.
func TestClassifier(t *testing.T) {
	errGone := errors.New("gone away")
	fails := base(func(*http.Request) (*http.Response, error) { return nil, errGone })
	for _, test := range []struct {
		name string
		base base
		says breaker.Outcome
		want string
	}{
		{"404, a failure", always(404), breaker.Failure, "failed"},
		{"500, a success", always(500), breaker.Success, "ok"},
		{"500, ignored", always(500), breaker.Ignored, "neutral"},
		{"500, as the policy says", always(500), 0, "failed"},
		{"200, as the policy says", always(200), 0, "ok"},
		{"500, nonsense", always(500), 200, "failed"},
		{"stream, a failure", streaming, breaker.Failure, "failed"},
		{"session, a failure", switched(&session{Reader: text("")}), breaker.Failure, "failed"},
		{"late 500, a success", after(101*time.Millisecond, always(500)), breaker.Success, "slow"},
		{"late 200, a failure", after(101*time.Millisecond, always(200)), breaker.Failure, "both"},
		{"error, a success", fails, breaker.Success, "ok"},
		{"error, ignored", fails, breaker.Ignored, "neutral"},
		{"error, as the policy says", fails, 0, "failed"},
		{"both, as the policy says", func(r *http.Request) (*http.Response, error) { return answer(r, 200, nil), errGone }, 0, "failed"},
	} {
		for name, hooks := range map[string][]watertight.Option{"": nil, ", with hooks": {derive()}} {
			t.Run(test.name+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := guard(t, strict, hooks...)
					r := get(t, "http://up/")
					asked := 0
					rt := transport.New(test.base, g, transport.WithClassifier(func(resp *http.Response, err error) breaker.Outcome {
						asked++
						assert.NotEqual(t, resp == nil, err == nil, "exactly one is set")
						if resp != nil {
							assert.Same(t, r, resp.Request, "the caller's own")
						} else {
							assert.Equal(t, errGone, err)
						}
						return test.says
					}))
					resp, err := rt.RoundTrip(r)
					if err == nil {
						require.NoError(t, resp.Body.Close())
					}
					assert.Equal(t, 1, asked)
					assert.Equal(t, test.want, filed(t, g))
					assert.Zero(t, inFlight(t, g))
				})
			})
		}
	}
}

// What no breaker watches is not classified, nor is what was refused, or what a base
// that breaks the rules has not answered.
func TestClassifierIsNotAsked(t *testing.T) {
	never := transport.WithClassifier(func(*http.Response, error) breaker.Outcome {
		t.Error("asked")
		return 0
	})
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	resp := open(t, transport.New(base(streaming), g, never), get(t, "http://up/"))
	_, err := transport.New(base(failing), g, never).RoundTrip(get(t, "http://up/"))
	require.Error(t, err, "full")
	require.NoError(t, resp.Body.Close())
	_, err = transport.New(base(failing), g, never).RoundTrip(get(t, "http://up/"))
	require.Error(t, err)

	g = tripped(t, strict)
	_, err = transport.New(always(200), g, never).RoundTrip(get(t, "http://up/"))
	require.ErrorIs(t, err, breaker.ErrOpen)

	g = guard(t, strict)
	resp, err = transport.New(base(func(*http.Request) (*http.Response, error) { return nil, nil }), g, never).RoundTrip(get(t, "http://up/"))
	assert.Nil(t, resp)
	assert.NoError(t, err)
	assert.Equal(t, "failed", filed(t, g), "which is a failure all the same")
}

// E41: who takes every error for a failure does not take the caller's cancel for one.
func TestClassifiedCancelsAreNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, strict)
		rt := transport.New(after(time.Minute, always(200)), g, transport.WithClassifier(func(_ *http.Response, err error) breaker.Outcome {
			assert.Error(t, err)
			return breaker.Failure
		}))
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
			require.Error(t, err)
		}
		assert.Equal(t, "neutral", filed(t, g))
		assert.Equal(t, "closed", only(t, g).Breaker.State)
	})
}

// E42: probes that the classifier ignores are handed back, and the next one decides.
func TestIgnoredProbesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := tripped(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		time.Sleep(time.Second)
		tooEarly := transport.WithClassifier(func(resp *http.Response, _ error) breaker.Outcome {
			if resp != nil && resp.StatusCode == http.StatusTooEarly {
				return breaker.Ignored
			}
			return 0
		})
		for range 100 {
			open(t, transport.New(always(http.StatusTooEarly), g, tooEarly), get(t, "http://up/"))
		}
		require.Equal(t, "half_open", only(t, g).Breaker.State)
		open(t, transport.New(always(200), g, tooEarly), get(t, "http://up/"))
		assert.Equal(t, "closed", only(t, g).Breaker.State)
	})
}

// With settle: body the classifier is asked at the headers; what becomes of the body
// may only make it worse.
func TestClassifierAndSettleBody(t *testing.T) {
	for _, test := range []struct {
		name string
		says breaker.Outcome
		end  error
		want string
	}{
		{"a success, read to its end", breaker.Success, io.EOF, "ok"},
		{"a failure, read to its end", breaker.Failure, io.EOF, "failed"},
		{"a success that breaks off", breaker.Success, io.ErrUnexpectedEOF, "failed"},
		{"ignored, breaks off", breaker.Ignored, io.ErrUnexpectedEOF, "neutral"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, atBody)
			asked := 0
			rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
				return answer(r, 503, &chunks{left: 1, end: test.end}), nil
			}), g, transport.WithClassifier(func(*http.Response, error) breaker.Outcome {
				asked++
				return test.says
			}))
			resp := open(t, rt, get(t, "http://up/"))
			assert.Equal(t, 1, asked)
			assert.Equal(t, "neutral", filed(t, g), "nothing is known yet")
			_, _ = io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, asked)
			assert.Equal(t, test.want, filed(t, g))
		})
	}
}

// A classifier that panics, or ends its goroutine, breaks the call that it was asked
// about and nothing else: the body is closed, the permit and the probe are back, and
// the host is not blamed.
func TestClassifierThatDoesNotReturn(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("classifier") },
		"Goexit": runtime.Goexit,
	} {
		for _, fails := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := tripped(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
					time.Sleep(time.Second)
					body := &chunks{left: 1, end: io.EOF}
					rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
						if fails {
							return failing(r)
						}
						return answer(r, 200, body), nil
					}), g, transport.WithClassifier(func(*http.Response, error) breaker.Outcome {
						leave()
						return 0
					}))
					var returned atomic.Bool
					done := make(chan any)
					go func() {
						defer func() { done <- recover() }()
						_, _ = rt.RoundTrip(get(t, "http://up/"))
						returned.Store(true)
					}()
					v := <-done
					assert.Equal(t, name == "panic", v == "classifier")
					assert.False(t, returned.Load())
					_, closes := body.counts()
					assert.Equal(t, !fails, closes == 1)
					assert.Equal(t, "half_open", only(t, g).Breaker.State, "no outcome")
					open(t, transport.New(always(200), g), get(t, "http://up/"))
					assert.Equal(t, "closed", only(t, g).Breaker.State, "the probe and the permit were back")
				})
			})
		}
	}
}

// Of several options the last one counts, and nil changes nothing.
func TestLastOptionWinsAndNilChangesNothing(t *testing.T) {
	g := guard(t, strict)
	say := func(o breaker.Outcome) transport.Option {
		return transport.WithClassifier(func(*http.Response, error) breaker.Outcome { return o })
	}
	key := func(k string) transport.Option { return transport.WithKey(func(*http.Request) string { return k }) }
	standby := func(code int) transport.Option {
		return transport.WithFallback(func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
			return always(code).RoundTrip(r)
		})
	}
	rt := transport.New(always(200), g, transport.WithClassifier(nil), transport.WithKey(nil), transport.WithFallback(nil),
		say(breaker.Success), key("first"), standby(201), say(breaker.Failure), key("last"), standby(202),
		transport.WithClassifier(nil), transport.WithKey(nil), transport.WithFallback(nil))
	open(t, rt, get(t, "http://up/"))
	assert.Equal(t, "last", only(t, g).Key)
	assert.Equal(t, "open", only(t, g).Breaker.State)
	resp, err := rt.RoundTrip(get(t, "http://up/"))
	require.NoError(t, err)
	assert.Equal(t, 202, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}

// A base that is registered with an http.Transport for a scheme, and leaves a call to
// that one, says nothing about the host.
func TestABaseThatSkipsIsNoOutcome(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, window: {calls: 1}}}`)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	skips := base(func(*http.Request) (*http.Response, error) { return nil, http.ErrSkipAltProtocol })
	outer := new(http.Transport)
	defer outer.CloseIdleConnections()
	outer.RegisterProtocol("http", transport.New(skips, g))
	for range 2 {
		resp, err := outer.RoundTrip(get(t, server.URL))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	assert.Equal(t, "closed", only(t, g).Breaker.State)
	assert.Zero(t, only(t, g).Breaker.Calls)
	assert.Zero(t, only(t, g).InFlight)
}
