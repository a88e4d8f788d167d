package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/transport"
)

const onePermit = `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, failureRate: 100}}`

// Both directions stream at once, for as long as both like, as one call.
func TestStreamingBothWays(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		ctl := http.NewResponseController(w)
		if r.ProtoMajor == 1 {
			assert.NoError(t, ctl.EnableFullDuplex())
		}
		if r.Method != http.MethodPost {
			return
		}
		assert.NoError(t, ctl.Flush())
		for in := bufio.NewScanner(r.Body); in.Scan(); {
			_, _ = fmt.Fprintln(w, "echo", in.Text())
			assert.NoError(t, ctl.Flush())
		}
		_, _ = fmt.Fprintln(w, "over")
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, onePermit, derive())
		pr, pw := io.Pipe()
		resp, err := (&http.Client{Transport: transport.New(rt, g)}).Do(post(t, url, pr))
		require.NoError(t, err)
		out := bufio.NewScanner(resp.Body)
		for i := range 100 {
			_, err := fmt.Fprintln(pw, "line", i)
			require.NoError(t, err)
			require.True(t, out.Scan())
			require.Equal(t, fmt.Sprint("echo line ", i), out.Text())
			require.Equal(t, 1, inFlight(t, g))
		}
		require.NoError(t, pw.Close())
		require.True(t, out.Scan())
		assert.Equal(t, "over", out.Text())
		require.False(t, out.Scan())
		require.NoError(t, out.Err())
		assert.Zero(t, inFlight(t, g), "at EOF")
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 1, only(t, g).Breaker.Calls)
	})
}

// Trailers of the request reach the server.
func TestRequestTrailers(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Got", r.Trailer.Get("X-Sum"))
	}, func(t *testing.T, rt *http.Transport, url string) {
		r := post(t, url, io.MultiReader(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Sum": {"42"}}
		resp := open(t, transport.New(rt, guard(t, onePermit, derive())), r)
		assert.Equal(t, "42", resp.Header.Get("X-Got"))
		require.NoError(t, resp.Body.Close())
	})
}

// Informational answers reach the caller's trace, and are no answer for the breaker.
func TestInformationalAnswers(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		for _, link := range []string{"</a.css>", "</b.css>"} {
			w.Header().Set("Link", link)
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusBadGateway)
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, onePermit, derive())
		var hints []string
		r := get(t, url)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = append(hints, fmt.Sprint(code, " ", h.Get("Link")))
				return nil
			},
		}))
		resp := open(t, transport.New(rt, g), r)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []string{"103 </a.css>", "103 </b.css>"}, hints)
		assert.Equal(t, "open", only(t, g).Breaker.State, "by the 502")
	})
}

// Who expects 100-continue sends the body when the server asks for it, and not
// otherwise; a refused call is not even asked about. E31: then nothing was read.
func TestExpectContinue(t *testing.T) {
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}, func(t *testing.T, rt *http.Transport, url string) {
		rt.ExpectContinueTimeout = time.Minute
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`, derive())
		tr := transport.New(rt, g)
		expecting := func(path string) (*http.Request, *chunks) {
			body := &chunks{left: 1000, end: io.EOF}
			r := post(t, url+path, body)
			r.Header.Set("Expect", "100-continue")
			return r, body
		}
		r, _ := expecting("/")
		resp := open(t, tr, r)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "1000 <nil>", string(got))
		require.NoError(t, resp.Body.Close())

		r, body := expecting("/no")
		resp = open(t, tr, r)
		assert.Equal(t, http.StatusExpectationFailed, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		reads, _ := body.counts()
		assert.Zero(t, reads)

		held := open(t, transport.New(base(streaming), g), get(t, url))
		r, body = expecting("/")
		_, err = tr.RoundTrip(r)
		require.ErrorIs(t, err, bulkhead.ErrFull)
		reads, closes := body.counts()
		assert.Zero(t, reads)
		assert.Equal(t, 1, closes)
		require.NoError(t, held.Body.Close())
	})
}

// Events arrive one at a time, for as long as the caller listens; then the permit is
// back.
func TestServerSentEvents(t *testing.T) {
	next := make(chan int)
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hello" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case n := <-next:
				_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, onePermit, derive())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp := open(t, transport.New(rt, g), get(t, url).WithContext(ctx))
		events := bufio.NewReader(resp.Body)
		for i := range 20 {
			next <- i
			line, err := events.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			_, err = events.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, 1, inFlight(t, g))
		}
		cancel()
		_, err := events.ReadByte()
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, inFlight(t, g))
		require.NoError(t, resp.Body.Close())
		b := only(t, g).Breaker
		assert.Equal(t, 1, b.Calls)
		assert.Zero(t, b.FailureRate)
	})
}

// 10 MiB go up whole. A server that answers before they have, and closes, ends the call
// all the same.
func TestLargeUploads(t *testing.T) {
	const size = 10 << 20
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, `  - {name: p, per: policy, bulkhead: {maxConcurrent: 1}}`, derive())
		client := &http.Client{Transport: transport.New(rt, g)}
		for name, body := range map[string]io.Reader{
			"length known":   bytes.NewReader(make([]byte, size)),
			"length unknown": io.LimitReader(zeros{}, size),
		} {
			resp, err := client.Do(post(t, url, body))
			require.NoError(t, err, name)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err, name)
			assert.Equal(t, "10485760 <nil>", string(got), name)
			require.NoError(t, resp.Body.Close())
			assert.Zero(t, inFlight(t, g), name)
		}
		resp, err := client.Do(post(t, url+"/early", bytes.NewReader(make([]byte, size))))
		if err == nil { // else the connection broke under the upload before the answer was read
			assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
		assert.Zero(t, inFlight(t, g))
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// What net/http sends again by itself, since the kept connection turned out to be dead,
// is one call with one permit and one outcome. On HTTP/2 it may or may not send again,
// depending on whether its reader or its writer finds the connection dead.
func TestDeadConnectionsAreReplaced(t *testing.T) {
	overWires(t, wires[:1], func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}, func(t *testing.T, rt *http.Transport, url string) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {failureRate: 1, minCalls: 1}}`, derive())
		var mu sync.Mutex
		var fresh, reused int
		dead := &dying{RoundTripper: rt}
		client := &http.Client{Transport: transport.New(dead, g)}
		for range 10 {
			r := post(t, url, strings.NewReader("again"))
			r.Header.Set("Idempotency-Key", "1") // so that net/http may
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				GotConn: func(i httptrace.GotConnInfo) {
					mu.Lock()
					defer mu.Unlock()
					if !i.Reused {
						fresh++
						return
					}
					// Broken, and not known to be, when the request is written.
					reused++
					_ = i.Conn.Close()
				},
			}))
			resp, err := client.Do(r)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "5", string(got))
			require.NoError(t, resp.Body.Close())
		}
		mu.Lock()
		defer mu.Unlock()
		assert.NotZero(t, reused)
		assert.NotZero(t, fresh)
		c := only(t, g)
		assert.EqualValues(t, 10, c.Granted)
		assert.Equal(t, 1, c.Bulkhead.Peak)
		assert.Equal(t, 10, c.Breaker.Calls)
		assert.Zero(t, c.Breaker.FailureRate)
		assert.Equal(t, 10, dead.calls)
	})
}

// dying counts the calls that reach it.
type dying struct {
	http.RoundTripper
	calls int
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	d.calls++
	return d.RoundTripper.RoundTrip(r)
}

// CONNECT: what comes after the answer is held until it ends, whatever its length is
// said to be.
func TestConnectHoldsUntilItsEnd(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	pr, pw := io.Pipe()
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		resp := answer(r, 200, pr)
		resp.ContentLength = 0
		return resp, nil
	}), g)
	r := get(t, "http://up/")
	r.Method = http.MethodConnect
	resp := open(t, rt, r)
	assert.Equal(t, 1, inFlight(t, g))
	require.NoError(t, pw.CloseWithError(errors.New("tunnel down")))
	_, err := io.ReadAll(resp.Body)
	require.EqualError(t, err, "tunnel down")
	assert.Zero(t, inFlight(t, g))
}
