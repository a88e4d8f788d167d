package middleware_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// E18: Retry-After is a whole number of seconds, rounded up, or absent.
func TestRetryAfterOfThePolicy(t *testing.T) {
	for _, test := range []struct {
		retryAfter *time.Duration
		want       []string
	}{
		{nil, []string{"1"}},
		{new(time.Duration(0)), nil},
		{new(time.Millisecond), []string{"1"}},
		{new(999 * time.Millisecond), []string{"1"}},
		{new(time.Second), []string{"1"}},
		{new(1001 * time.Millisecond), []string{"2"}},
		{new(100 * time.Hour), []string{"360000"}},
	} {
		set, err := policy.New(policy.Config{Policies: []policy.Policy{{
			Name:     "all",
			Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
			Reject:   policy.Reject{RetryAfter: test.retryAfter},
		}}})
		require.NoError(t, err)
		var refused *httptest.ResponseRecorder
		var h http.Handler
		h = middleware.New(watertight.New(set))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			refused = get(h, "/")
		}))
		require.Equal(t, 200, get(h, "/").Code)
		assert.Equal(t, test.want, refused.Header()["Retry-After"])
	}

	_, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "all",
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
		Reject:   policy.Reject{RetryAfter: new(-time.Second)},
	}}})
	require.Error(t, err)
}

// E18, for refusals that come from elsewhere.
func TestRetryAfterOfARejectedError(t *testing.T) {
	for retryAfter, want := range map[time.Duration][]string{
		math.MinInt64:   nil,
		-time.Second:    nil,
		0:               nil,
		1:               {"1"},
		time.Second:     {"1"},
		time.Second + 1: {"2"},
		math.MaxInt64:   {"9223372037"},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Retry-After", "7")
		middleware.WriteRejection(w, httptest.NewRequest("GET", "/", nil), &watertight.RejectedError{Reason: policy.ReasonFull, RetryAfter: retryAfter})
		assert.Equal(t, want, w.Header()["Retry-After"], "%v", retryAfter)
	}
}

// E21: the whole document, for each reason.
func TestProblemDocument(t *testing.T) {
	for why, status := range map[policy.Reason]int{
		policy.ReasonFull: 503, policy.ReasonWaitTimeout: 408, policy.ReasonOpen: 503, policy.ReasonDraining: 503, policy.ReasonCanceled: 503, policy.Reason(200): 503,
	} {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			t.Run(fmt.Sprint(why, " ", method), func(t *testing.T) {
				w := httptest.NewRecorder()
				middleware.WriteRejection(w, httptest.NewRequest(method, "/", nil), &watertight.RejectedError{Reason: why, RetryAfter: time.Second})
				assert.Equal(t, status, w.Code)
				assert.Equal(t, []string{"application/problem+json"}, w.Header()["Content-Type"])
				assert.Equal(t, []string{"no-store"}, w.Header()["Cache-Control"])
				assert.Equal(t, []string{"1"}, w.Header()["Retry-After"])
				assert.NotContains(t, w.Header(), "Connection", "without a body the connection stays")

				length, err := strconv.Atoi(w.Header().Get("Content-Length"))
				require.NoError(t, err)
				if method == "HEAD" {
					assert.Zero(t, w.Body.Len())
					assert.Positive(t, length)
					return
				}
				assert.Equal(t, w.Body.Len(), length)
				var problem map[string]any
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
				assert.EqualValues(t, status, problem["status"])
				assert.Equal(t, why.String(), problem["reason"])
				assert.Equal(t, "https://github.com/watertight-go/watertight/blob/main/docs/rejections.md#"+why.String(), problem["type"])
				assert.NotEmpty(t, problem["title"])
				assert.Contains(t, problem["detail"], "The request was not processed.")
				assert.Len(t, problem, 5)
			})
		}
	}
}

// Refusals share nothing that a middleware further out could write into.
func TestRefusalsShareNoHeader(t *testing.T) {
	refuse := func() http.Header {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
		middleware.WriteRejection(w, r, &watertight.RejectedError{Reason: policy.ReasonFull, RetryAfter: time.Second})
		return w.Header()
	}
	first, untouched := refuse(), refuse()
	require.Len(t, first, 5)
	for name := range first {
		first.Add(name, "added")
		first[name][0] = "changed"
	}
	for _, values := range first {
		assert.Equal(t, []string{"changed", "added"}, values, "each value has a slice of its own")
	}
	assert.Equal(t, untouched, refuse())
}

// Each problem type points at a heading that exists.
func TestProblemTypesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/rejections.md")
	require.NoError(t, err)
	for _, why := range []policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining, policy.ReasonCanceled} {
		assert.Contains(t, string(doc), "\n## "+why.String()+"\n")
	}
}

// The status on the wire and in the document is the policy's.
func TestStatusOfThePolicy(t *testing.T) {
	g := guard(t, `{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}, reject: {status: {full: 429}}}]}`)
	var refused *httptest.ResponseRecorder
	var h http.Handler
	h = middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { refused = get(h, "/") }))
	get(h, "/")
	assert.Equal(t, 429, refused.Code)
	assert.Contains(t, refused.Body.String(), `"status":429`)
}

// E21: what a middleware further out has set stays, unless it is about a body that
// is not sent.
func TestHeadersSetEarlier(t *testing.T) {
	const strangers = "Accept-Ranges Content-Digest Content-Disposition Content-Encoding Content-Language Content-Location " +
		"Content-Md5 Content-Range Digest Etag Last-Modified Repr-Digest Trailer Transfer-Encoding"
	g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}")
	gate := newGate()
	limited := middleware.New(g)(gate)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range strings.Fields(strangers) {
			h.Set(name, "stale")
		}
		h.Set("Content-Type", "text/html")
		h.Set("Content-Length", "99999")
		h.Set("Cache-Control", "max-age=3600")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Vary", "Origin")
		h.Add("Set-Cookie", "a=1")
		h.Add("Set-Cookie", "b=2")
		h.Set("X-Request-Id", "42")
		limited.ServeHTTP(w, r)
	}))
	held := gate.hold(limited, "/")
	resp := s.get(t, "/")
	close(gate.open)
	<-held

	assert.Equal(t, 503, resp.StatusCode)
	assert.EqualValues(t, resp.Body.(nopCloser).Len(), resp.ContentLength)
	assert.Equal(t, "full", reason(t, resp.Body))
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	assert.Equal(t, http.Header{
		"Content-Type":                {"application/problem+json"},
		"Cache-Control":               {"no-store"},
		"Retry-After":                 {"1"},
		"Access-Control-Allow-Origin": {"*"},
		"Vary":                        {"Origin"},
		"Set-Cookie":                  {"a=1", "b=2"},
		"X-Request-Id":                {"42"},
	}, resp.Header)
	assert.Empty(t, resp.TransferEncoding)
	assert.Empty(t, s.log.String())
}

// E21: nothing of the request comes back, not even where it is the compartment's
// key.
func TestNothingOfTheRequestIsEchoed(t *testing.T) {
	const mark = "h0stile"
	for _, policies := range []string{
		"{name: all, side: server, per: host, bulkhead: {maxConcurrent: 1}}",
		"{name: all, side: server, per: route, bulkhead: {maxConcurrent: 1}}",
		"{name: all, side: server, per: policy, breaker: {minCalls: 1}}",
	} {
		g := guard(t, "{version: 1, policies: ["+policies+"]}")
		request := func() *http.Request {
			r := httptest.NewRequest("GET", "/", nil)
			r.Method = "X" + mark
			r.Host = mark + `"><script>`
			r.URL.Path = "/" + mark + "/\r\nSet-Cookie: x=1/\u2028"
			r.URL.RawQuery = mark
			r.RequestURI = mark
			r.RemoteAddr = mark
			r.Header = http.Header{"Accept": {mark}, "Origin": {mark}, "X-Request-Id": {mark}, mark: {mark}}
			return r
		}
		var refused *httptest.ResponseRecorder
		var h http.Handler
		depth := 0
		route := middleware.WithRoute(func(r *http.Request) string { return r.URL.Path }) // the worst of routers
		h = middleware.New(g, route)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			if depth++; depth == 1 {
				refused = do(h, request())
			}
		}))
		do(h, request())
		if strings.Contains(policies, "breaker") {
			refused = do(h, request())
		}
		require.Equal(t, 503, refused.Code)
		var wire bytes.Buffer
		require.NoError(t, refused.Result().Write(&wire))
		assert.NotContains(t, wire.String(), mark)
		assert.NotContains(t, wire.String(), "script")
		assert.NotContains(t, wire.String(), "Cookie")
	}
}

// E02: a refusal arrives at once, whatever the client owes of its body, and closes
// the connection only if the client owes one.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		head   []string
		body   string
		closes bool
	}{
		{"GET", "GET", nil, "", false},
		{"HEAD", "HEAD", nil, "", false},
		{"DELETE without a body", "DELETE", nil, "", false},
		{"POST of nothing", "POST", []string{"Content-Length: 0"}, "", false},
		{"upgrade", "GET", []string{"Connection: Upgrade", "Upgrade: websocket"}, "", false},
		{"body unsent", "POST", []string{"Content-Length: 1000"}, "", true},
		{"body half sent", "POST", []string{"Content-Length: 1000"}, "half", true},
		{"body sent", "POST", []string{"Content-Length: 5"}, "hello", true},
		{"large body unsent", "PUT", []string{"Content-Length: 300000"}, "", true},
		{"chunked, no chunk", "POST", []string{"Transfer-Encoding: chunked"}, "", true},
		{"100-continue", "POST", []string{"Content-Length: 1000", "Expect: 100-continue"}, "", true},
		{"GET with a body unsent", "GET", []string{"Content-Length: 1000"}, "", true},
	} {
		for why, bulkhead := range map[string]string{
			"full":         "{maxConcurrent: 1}",
			"wait_timeout": "{maxConcurrent: 1, maxWait: 1ms}",
		} {
			t.Run(test.name+", "+why, func(t *testing.T) {
				g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: "+bulkhead+"}]}")
				gate := newGate()
				limited := middleware.New(g)(gate)
				s := serve(t, limited)
				held := gate.hold(limited, "/")
				defer func() {
					close(gate.open)
					<-held
				}()

				// Closed before the server, whose goroutine goes on waiting for what
				// the client owes.
				client := s.dial(t)
				client.send(append([]string{test.method + " / HTTP/1.1", "Host: here"}, test.head...)...)
				_, err := io.WriteString(client, test.body)
				require.NoError(t, err)
				resp := client.receive(test.method)
				assert.GreaterOrEqual(t, resp.StatusCode, 400)
				assert.Equal(t, test.closes, resp.Close)
				if test.method != "HEAD" {
					assert.Equal(t, why, reason(t, resp.Body))
				}
				if test.closes {
					return
				}
				assert.Empty(t, resp.Header.Values("Connection"))
				client.send("GET / HTTP/1.1", "Host: here")
				assert.Equal(t, why, reason(t, client.receive("GET").Body), "the connection was kept")
			})
		}
	}
}

// Middleware further out may have put something round a body that is empty. That
// is no reason to give up the connection.
func TestWrappedEmptyBodyKeepsTheConnection(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), http.NoBody, 1<<20)
	w := httptest.NewRecorder()
	middleware.WriteRejection(w, r, &watertight.RejectedError{})
	assert.NotContains(t, w.Header(), "Connection")
}

// The header is for HTTP/1 alone: elsewhere it would end the connection under the
// other streams.
func TestConnectionCloseIsForHTTP1(t *testing.T) {
	for major, want := range map[int][]string{1: {"close"}, 2: nil, 3: nil} {
		r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
		r.ProtoMajor, r.ProtoMinor = major, 0
		w := httptest.NewRecorder()
		middleware.WriteRejection(w, r, &watertight.RejectedError{})
		assert.Equal(t, want, w.Header()["Connection"], "HTTP/%d", major)
	}
}

// E19: a 408 comes without the handler having run, as one answer; Go's client does
// not send it again.
func TestWaitTimeoutRunsNothing(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: softer, side: server, match: [{path: /softer}], bulkhead: {maxConcurrent: 1, maxWait: 1ms}, reject: {status: {wait_timeout: 503}}}
  - {name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1ms}}
`)
	gate := newGate()
	var hits, answers atomic.Int64
	limited := middleware.New(g)(gate)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		limited.ServeHTTP(&headerCounter{w, &answers}, r)
	}))
	held := gate.hold(limited, "/")
	softer := gate.hold(limited, "/softer")
	for _, test := range []struct {
		path   string
		status int
	}{{"/", 408}, {"/softer", 503}} {
		for _, method := range []string{"GET", "PUT", "POST"} {
			hits.Store(0)
			answers.Store(0)
			r, err := http.NewRequest(method, s.URL+test.path, nil)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			assert.Equal(t, test.status, resp.StatusCode)
			assert.Equal(t, "wait_timeout", reason(t, readAll(t, resp).Body))
			assert.EqualValues(t, 1, hits.Load())
			assert.EqualValues(t, 1, answers.Load())
		}
	}
	assert.Empty(t, gate.entered, "the handler ran for none of them")
	close(gate.open)
	<-held
	<-softer

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)some clients.*again on their own.*408`, string(doc), "the risk is documented")
}

// headerCounter counts answers.
type headerCounter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *headerCounter) WriteHeader(status int) {
	c.n.Add(1)
	c.ResponseWriter.WriteHeader(status)
}

// A gateway answers for its upstream's compartment.
func TestWriteRejectionForAGateway(t *testing.T) {
	err := error(fmt.Errorf("round trip: %w", &watertight.RejectedError{Policy: "payments", Key: "http://secret.internal:80", Reason: policy.ReasonOpen, RetryAfter: 1500 * time.Millisecond}))
	var rejected *watertight.RejectedError
	require.True(t, errors.As(err, &rejected))
	w := httptest.NewRecorder()
	middleware.WriteRejection(w, httptest.NewRequest("GET", "/", nil), rejected)
	assert.Equal(t, "2", w.Header().Get("Retry-After"))
	assert.NotContains(t, w.Body.String(), "secret")
	assert.NotContains(t, w.Body.String(), "payments")
	requireRefused(t, w, 503, "open")
}
