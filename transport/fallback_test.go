package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

type fallback = func(*http.Request, *watertight.RejectedError) (*http.Response, error)

// Whatever the reason, a refused call is the fallback's to answer. A caller that left
// is no refusal. E31: the request's body is closed and was not read.
func TestFallback(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, s.yaml)
				asked := 0
				var r *http.Request
				rt := transport.New(base(said), g, transport.WithFallback(func(got *http.Request, refused *watertight.RejectedError) (*http.Response, error) {
					asked++
					assert.Equal(t, s.reason, refused.Reason)
					assert.ErrorIs(t, refused, s.want)
					want, is := freeze(r), freeze(got)
					assert.NotSame(t, want.body, is.body)
					is.body = want.body
					assert.Equal(t, want, is)
					return &http.Response{StatusCode: 203}, nil
				}))
				ctx := s.set(t, g, rt)
				body := &chunks{left: 1, end: io.EOF}
				r = post(t, "http://up/", body).WithContext(ctx)
				before := freeze(r)
				resp, err := rt.RoundTrip(r)
				assert.Equal(t, before, freeze(r))
				reads, closes := body.counts()
				assert.Zero(t, reads)
				assert.Equal(t, 1, closes)
				c := only(t, g)
				if s.reason == policy.ReasonCanceled {
					assert.Zero(t, asked)
					assert.Nil(t, resp)
					assert.Equal(t, s.want, err)
					assert.EqualValues(t, 1, c.Left)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, 1, asked)
				assert.Equal(t, 203, resp.StatusCode)
				assert.Same(t, r, resp.Request)
				assert.Equal(t, http.NoBody, resp.Body)
				assert.EqualValues(t, 1, c.Rejected[s.reason.String()], "counted as ever")
			})
		})
	}
}

// What a fallback returns, and what the caller gets. E36: never a response beside an
// error.
func TestFallbackReturns(t *testing.T) {
	errStandby := errors.New("the standby is down, too")
	cached := &chunks{left: 1, end: io.EOF}
	other := &http.Request{}
	var stderr bytes.Buffer
	before := log.Writer()
	log.SetOutput(&stderr)
	t.Cleanup(func() { log.SetOutput(before) })
	for _, test := range []struct {
		name string
		f    fallback
		want func(t *testing.T, r *http.Request, resp *http.Response, err error)
	}{
		{"a response", func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
			return answer(r, 200, text("cached")), nil
		}, func(t *testing.T, r *http.Request, resp *http.Response, err error) {
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "cached", string(got))
			assert.Same(t, r, resp.Request)
		}},
		{"a response to another request", func(*http.Request, *watertight.RejectedError) (*http.Response, error) {
			return answer(other, 200, nil), nil
		}, func(t *testing.T, _ *http.Request, resp *http.Response, err error) {
			require.NoError(t, err)
			assert.Same(t, other, resp.Request)
		}},
		{"an error", func(*http.Request, *watertight.RejectedError) (*http.Response, error) {
			return nil, errStandby
		}, func(t *testing.T, _ *http.Request, resp *http.Response, err error) {
			assert.Nil(t, resp)
			assert.Equal(t, errStandby, err)
		}},
		{"nothing", func(*http.Request, *watertight.RejectedError) (*http.Response, error) {
			return nil, nil
		}, func(t *testing.T, _ *http.Request, resp *http.Response, err error) {
			assert.Nil(t, resp)
			require.ErrorIs(t, err, bulkhead.ErrFull)
			var refused *watertight.RejectedError
			require.ErrorAs(t, err, &refused)
		}},
		{"both", func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
			return answer(r, 200, cached), errStandby
		}, func(t *testing.T, _ *http.Request, resp *http.Response, err error) {
			assert.Nil(t, resp)
			assert.Equal(t, errStandby, err)
			_, closes := cached.counts()
			assert.Equal(t, 1, closes)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(base(streaming), g, transport.WithFallback(test.f))
			held := open(t, rt, get(t, "http://up/"))
			r := get(t, "http://up/")
			resp, err := rt.RoundTrip(r)
			test.want(t, r, resp, err)
			resp, err = (&http.Client{Transport: rt}).Do(get(t, "http://up/")) // net/http is content as well
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.NoError(t, held.Body.Close())
			c := only(t, g)
			assert.EqualValues(t, 1, c.Granted, "what the fallback does is no call")
			assert.EqualValues(t, 2, c.Rejected["full"])
			assert.Zero(t, c.InFlight)
		})
	}
	assert.Empty(t, stderr.String())
}

// E31: the body of the request is closed once the fallback has returned, unless
// somebody has begun to read it, whose it is from then on.
func TestFallbackAndTheRequestBody(t *testing.T) {
	for _, test := range []struct {
		name   string
		f      func(*http.Request)
		closes int // when RoundTrip returns
	}{
		{"left alone", func(*http.Request) {}, 1},
		{"closed", func(r *http.Request) { _ = r.Body.Close() }, 1},
		{"read and closed", func(r *http.Request) { _, _ = io.ReadAll(r.Body); _ = r.Body.Close() }, 1},
		{"read from, to be read on", func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(base(streaming), g, transport.WithFallback(func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
				test.f(r)
				return answer(r, 200, nil), nil
			}))
			held := open(t, rt, get(t, "http://up/"))
			body := &chunks{left: 3, end: io.EOF}
			open(t, rt, post(t, "http://up/", body))
			_, closes := body.counts()
			assert.Equal(t, test.closes, closes)
			for _, none := range []io.ReadCloser{nil, http.NoBody} {
				r := post(t, "http://up/", nil)
				r.Body = none
				resp := open(t, transport.New(base(streaming), g, transport.WithFallback(func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
					assert.Equal(t, none, r.Body)
					return answer(r, 200, nil), nil
				})), r)
				assert.Equal(t, 200, resp.StatusCode)
			}
			require.NoError(t, held.Body.Close())
		})
	}
}

// A standby gets the request whole, through a transport of the same Guard, as a call
// of its own with a permit of its own.
func TestFallbackToAStandby(t *testing.T) {
	standby := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer standby.Close()
	defer standby.Client().CloseIdleConnections()
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	second := transport.New(standby.Client().Transport, g)
	first := transport.New(base(streaming), g, transport.WithFallback(func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = strings.TrimPrefix(standby.URL, "http://")
		r.Host = ""
		return second.RoundTrip(r)
	}))
	held := open(t, first, get(t, "http://up/"))
	client := &http.Client{Transport: first}
	resp, err := client.Post("http://up/", "text/plain", strings.NewReader(strings.Repeat("upload ", 1<<17)))
	require.NoError(t, err)
	_, err = client.Post("http://up/", "text/plain", strings.NewReader("one too many"))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	var refused *watertight.RejectedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, standby.URL, refused.Key, "the standby is full as well")
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.EqualValues(t, len("upload ")<<17, n)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, held.Body.Close())
	for _, c := range g.Snapshot().Compartments {
		assert.EqualValues(t, 1, c.Granted, c.Key)
		assert.Zero(t, c.InFlight, c.Key)
	}
}

// A fallback that panics or ends its goroutine leaves nothing behind.
func TestFallbackThatDoesNotReturn(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("fallback") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(base(streaming), g, transport.WithFallback(func(*http.Request, *watertight.RejectedError) (*http.Response, error) {
				leave()
				return nil, nil
			}))
			held := open(t, rt, get(t, "http://up/"))
			body := &chunks{left: 1, end: io.EOF}
			var returned atomic.Bool
			done := make(chan any)
			r := post(t, "http://up/", body)
			go func() {
				defer func() { done <- recover() }()
				_, _ = rt.RoundTrip(r)
				returned.Store(true)
			}()
			assert.Equal(t, name == "panic", <-done == "fallback")
			assert.False(t, returned.Load())
			_, closes := body.counts()
			assert.Equal(t, 1, closes)
			require.NoError(t, held.Body.Close())
			assert.Equal(t, 1, capacity(t, g))
		})
	}
}

// A fallback runs after everything of the refused call was given back, on its
// goroutine: it may take as long as it likes, and call the same host.
func TestFallbackHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := tripped(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}}`)
		var rt *transport.Transport
		rt = transport.New(always(200), g, transport.WithFallback(func(r *http.Request, _ *watertight.RejectedError) (*http.Response, error) {
			assert.Zero(t, inFlight(t, g))
			time.Sleep(time.Second) // until the breaker is half-open
			return rt.RoundTrip(r)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "closed", only(t, g).Breaker.State)
	})
}
