package transport_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const limited = `  - {name: p, bulkhead: {maxConcurrent: 100, maxWait: 1m}, breaker: {}}`

type hookKey string

// derive makes the call run under a context of the hooks' own, as tracing does.
func derive() watertight.Option {
	return watertight.WithHooks(watertight.Hooks{
		Arrive: func(ctx context.Context, _ *policy.Request) context.Context {
			return context.WithValue(ctx, hookKey("arrive"), true)
		},
		Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
			return context.WithValue(ctx, hookKey("grant"), true)
		},
	})
}

// A frozen request is what there is to see of a request, but for its functions.
type frozen struct {
	method, url, host string
	header, trailer   http.Header
	body              io.ReadCloser
	length            int64
	encoding          []string
	close             bool
	ctx               context.Context
	pattern           string
	response          *http.Response
}

func freeze(r *http.Request) frozen {
	return frozen{
		r.Method, r.URL.String(), r.Host, r.Header.Clone(), r.Trailer.Clone(), r.Body, r.ContentLength,
		slices.Clone(r.TransferEncoding), r.Close, r.Context(), r.Pattern, r.Response,
	}
}

// E32: nothing of the caller's request changes, on any path, and the base gets
// what the caller sent: the very same request, or a copy if hooks have added to
// its context.
func TestRequestIsLeftAlone(t *testing.T) {
	bodies := map[string]func() io.Reader{
		"no body": func() io.Reader { return nil },
		"NoBody":  func() io.Reader { return http.NoBody },
		"body":    func() io.Reader { return bytes.NewReader([]byte("hello")) },
	}
	for name, hooks := range map[string][]watertight.Option{"without hooks": nil, "with hooks": {derive()}} {
		for _, body := range slices.Sorted(maps.Keys(bodies)) {
			t.Run(name+", "+body, func(t *testing.T) {
				g := guard(t, limited, hooks...)
				r := post(t, "http://up/a%2Fb?q=1#frag", bodies[body]())
				r.Header.Set("X-One", "1")
				r.Header["x-lower"] = []string{"2", "3"}
				r.Trailer = http.Header{"X-After": nil}
				r.Host = "elsewhere"
				before, getBody := freeze(r), r.GetBody != nil

				var sent *http.Request
				rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
					sent = r
					return answer(r, 200, text("x")), nil
				}), g)
				for range 3 {
					resp := open(t, rt, r)
					assert.Same(t, r, resp.Request, "resp.Request is the caller's own")
					assert.Equal(t, before, freeze(r))

					got := freeze(sent)
					assert.Equal(t, getBody, sent.GetBody != nil)
					if hooks == nil {
						assert.Same(t, r, sent)
					} else {
						assert.NotSame(t, r, sent)
						assert.Equal(t, true, sent.Context().Value(hookKey("arrive")))
						assert.Equal(t, true, sent.Context().Value(hookKey("grant")))
						got.ctx = before.ctx
					}
					assert.Equal(t, before, got, "what the base sees")
					require.NoError(t, resp.Body.Close())
				}
			})
		}
	}
}

// E32: one request sent many times at once is read and never written.
func TestOneRequestManyTimesAtOnce(t *testing.T) {
	for name, hooks := range map[string][]watertight.Option{"without hooks": nil, "with hooks": {derive()}} {
		t.Run(name, func(t *testing.T) {
			rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
				_ = freeze(r)
				return answer(r, 200, text("x")), nil
			}), guard(t, limited, hooks...))
			r := get(t, "http://up/")
			r.Header.Set("X-One", "1")
			before := freeze(r)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					resp, err := rt.RoundTrip(r)
					if assert.NoError(t, err) {
						assert.Same(t, r, resp.Request)
						assert.NoError(t, resp.Body.Close())
					}
				})
			}
			wg.Wait()
			assert.Equal(t, before, freeze(r))
		})
	}
}

// A base that has made a copy of its own keeps its say in resp.Request.
func TestBasesOwnRequestStays(t *testing.T) {
	var copied *http.Request
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		copied = r.Clone(r.Context())
		return answer(copied, 200, nil), nil
	}), guard(t, limited, derive()))
	assert.Same(t, copied, open(t, rt, get(t, "http://up/")).Request)

	rt = transport.New(base(func(*http.Request) (*http.Response, error) {
		return answer(nil, 200, nil), nil
	}), guard(t, limited, derive()))
	assert.Nil(t, open(t, rt, get(t, "http://up/")).Request)
}

// E32: a request without a header map is matched like one with an empty map.
func TestNilHeader(t *testing.T) {
	g := guard(t, `  - {name: free, match: [{headers: {X-Plan: {exact: free}}}], bulkhead: {maxConcurrent: 1}}
  - {name: rest, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
		assert.Nil(t, r.Header)
		return answer(r, 200, nil), nil
	}), g)
	u, err := url.Parse("http://up/")
	require.NoError(t, err)
	open(t, rt, &http.Request{URL: u})
	assert.Equal(t, "rest", only(t, g).Policy)
}

// E53: what stands for a host. Only the URL decides where a call goes, so only
// the URL names the compartment, not the Host header.
func TestHostKey(t *testing.T) {
	for _, test := range []struct{ url, key string }{
		{"http://example.com/", "http://example.com:80"},
		{"http://EXAMPLE.com/", "http://example.com:80"},
		{"HTTP://example.com/", "http://example.com:80"},
		{"http://example.com:80/", "http://example.com:80"},
		{"http://example.com:/", "http://example.com:80"},
		{"http://example.com./", "http://example.com:80"},
		{"http://example.com.:80/", "http://example.com:80"},
		{"https://example.com/", "https://example.com:443"},
		{"https://example.com:443/", "https://example.com:443"},
		{"http://example.com:443/", "http://example.com:443"},
		{"https://example.com:8443/x?y", "https://example.com:8443"},
		{"http://user:secret@example.com/", "http://example.com:80"},
		{"http://[::1]/", "http://[::1]:80"},
		{"http://[::1]:80/", "http://[::1]:80"},
		{"http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080"},
		{"http://127.0.0.1:8080/", "http://127.0.0.1:8080"},
	} {
		t.Run(test.url, func(t *testing.T) {
			g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(always(200), g)
			open(t, rt, get(t, test.url))
			r := get(t, test.url)
			r.Host = "other.example"
			r.Header.Set("Host", "another.example")
			open(t, rt, r)
			assert.Equal(t, []string{test.key}, keys(g))
		})
	}
}

// E53: callers cannot make the table of hosts grow beyond its bound.
func TestHostsAreBounded(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte(`
version: 1
defaults: {maxCompartments: 100}
policies:
  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {}}
`))
	require.NoError(t, err)
	g := watertight.New(set)
	rt := transport.New(always(200), g)
	for i := range 10_000 {
		r := get(t, "http://up/")
		r.URL.Host = "host-" + strconv.Itoa(i)
		open(t, rt, r)
	}
	assert.Len(t, keys(g), 100)
}

// The policies see method, path, host and headers as they go onto the wire.
func TestPoliciesSeeTheCall(t *testing.T) {
	g := guard(t, `  - {name: method, match: [{method: [DELETE]}], bulkhead: {maxConcurrent: 1}}
  - {name: escaped, match: [{path: "/a/{x}/c"}], bulkhead: {maxConcurrent: 1}}
  - {name: host, match: [{host: "*.internal"}], bulkhead: {maxConcurrent: 1}}
  - {name: header, match: [{headers: {X-Plan: {exact: free}}}], bulkhead: {maxConcurrent: 1}}
  - {name: get, match: [{method: [GET]}], bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(always(200), g)
	send := func(method, url string, header http.Header) {
		r := get(t, url)
		r.Method = method
		if header != nil {
			r.Header = header
		}
		open(t, rt, r)
	}
	send("DELETE", "http://x/a/b/c", nil)
	send("PUT", "http://x/a/b%2Fb/c", nil)
	send("PUT", "http://pay.internal/", nil)
	send("PUT", "http://x/", http.Header{"X-Plan": {"free"}})
	send("", "http://x/", nil) // net/http takes an empty method for GET
	send("PUT", "http://x/", nil)
	var got []string
	for _, c := range g.Snapshot().Compartments {
		assert.EqualValues(t, 1, c.Granted, c.Policy)
		got = append(got, c.Policy)
	}
	assert.Equal(t, []string{"method", "escaped", "host", "header", "get", "(unmatched)"}, got)
}
