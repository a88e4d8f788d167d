package middleware_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// heads are requests of the kinds that routers and servers have stumbled over.
var heads = []string{
	"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
	"GET /a/7 HTTP/1.1\r\nHost: example.com\r\n\r\n",
	"POST /b//x/../%2F HTTP/1.1\r\nHost: example.com:80\r\nContent-Length: 4\r\n\r\nbody",
	"PUT /tree HTTP/1.0\r\n\r\n",
	"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
	"CONNECT /a/7 HTTP/1.1\r\nHost: here\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: here\r\n\r\n",
	"GET * HTTP/1.1\r\nHost: here\r\n\r\n",
	"GET http://example.com/host?q=1;2 HTTP/1.1\r\nHost: other\r\nX-Plan: free\r\n\r\n",
	"HEAD /c/%zz/d HTTP/1.1\r\nHost: (overflow)\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"BREW /\x00\xff HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
}

// FuzzServeMuxRoute: whatever is asked for, the compartment is that of the pattern
// whose handler serves it, and what ServeMux answers with an error by itself has none.
func FuzzServeMuxRoute(f *testing.F) {
	for _, head := range heads {
		f.Add([]byte(head))
	}
	patterns := []string{"GET /a/{id}", "DELETE /a/{id}", "/tree/", "POST /b/{rest...}", "example.com/host", "/c/{x}/d", "/{$}"}
	f.Fuzz(func(t *testing.T, head []byte) {
		serveByPattern(t, patterns, head)
		serveByPattern(t, append(slices.Clone(patterns), "/"), head)
	})
}

func serveByPattern(t *testing.T, patterns []string, head []byte) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return
	}
	served := ""
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.HandleFunc(p, func(_ http.ResponseWriter, r *http.Request) { served = p })
	}
	g := guard(t, perRoute)
	w := do(middleware.New(g)(mux), r)
	got := keys(g, "all")
	switch {
	case served != "":
		require.Equal(t, []string{served}, got)
		require.Equal(t, served, r.Pattern)
	case w.Code >= 400:
		require.Empty(t, got)
		require.EqualValues(t, 1, compartment(t, g, "(unmatched)", "").Granted)
	default: // a redirect of ServeMux's own
		require.Contains(t, []int{301, 307}, w.Code)
		for _, key := range got {
			require.Contains(t, patterns, key)
		}
	}
}

// FuzzRefusalSaysNothingOfTheRequest: of two requests that are refused for the same
// reason, the answers are the same to the byte, but for what HTTP wants to differ: a
// HEAD gets no body, and a request with a body ends its connection. So nothing that
// a caller sends can come back.
func FuzzRefusalSaysNothingOfTheRequest(f *testing.F) {
	for _, head := range heads {
		f.Add([]byte(head))
	}
	f.Add([]byte("0 /0000000%00 HTTP/0.0\nContent-Length:1\n\n"))
	f.Add([]byte("HEAD * HTTP/0.0\n\n"))
	full := func(per string) *watertight.Guard {
		g := guard(f, `{version: 1, defaults: {maxCompartments: 1}, policies: [{name: all, side: server, per: `+per+`, bulkhead: {maxConcurrent: 1}}]}`)
		for _, only := range []string{"the only place", "overflow"} { // so that every key is as full as those two
			call, err := g.Admit(f.Context(), &policy.Request{Side: policy.Server, Host: only, RouteKnown: true, Route: only})
			if per == "policy" && err != nil {
				break
			}
			require.NoError(f, err)
			f.Cleanup(call.Release)
		}
		return g
	}
	// A router that reports what it likes, even what the caller wrote.
	route := middleware.WithRoute(func(r *http.Request) string { return "/" + r.Method + r.URL.Path + r.Host })
	handlers := map[string]http.Handler{
		"policy": middleware.New(full("policy"), route)(ok),
		"route":  middleware.New(full("route"), route)(ok),
		"host":   middleware.New(full("host"), route)(ok),
	}
	answer := func(h http.Handler, r *http.Request) string {
		var wire bytes.Buffer
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		res := w.Result()
		res.Request = r // whose method says whether there is a body
		if err := res.Write(&wire); err != nil {
			panic(err)
		}
		return wire.String()
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil || r.Host == "the only place" {
			return
		}
		plain := httptest.NewRequest("GET", "/plain", nil)
		if r.Method == "HEAD" {
			plain.Method = "HEAD"
		}
		plain.ContentLength = min(r.ContentLength, 1)
		plain.ProtoMajor = r.ProtoMajor // Connection is for HTTP/1 alone
		for per, h := range handlers {
			want, got := answer(h, plain), answer(h, r)
			require.True(t, strings.HasPrefix(want, "HTTP/1.1 503 "), want)
			require.Equal(t, want, got, "per: %s", per)
		}
	})
}

// TestHeadsAreRequests keeps the seeds from being none.
func TestHeadsAreRequests(t *testing.T) {
	readable := slices.DeleteFunc(slices.Clone(heads), func(head string) bool {
		_, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		return err != nil
	})
	require.GreaterOrEqual(t, len(readable), len(heads)-2)
}
