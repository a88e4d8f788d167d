package main

import (
	"context"
	"io"
	"net/http"

	"github.com/failsafe-go/failsafe-go/failsafehttp"

	"github.com/watertight-go/watertight/transport"
)

// clients are the transports with a bulkhead and a breaker.
var clients = []struct {
	name string
	make func(base http.RoundTripper) http.RoundTripper
}{
	{"watertight, per host", func(base http.RoundTripper) http.RoundTripper {
		return transport.New(base, guard(withBulkhead+", "+withBreaker))
	}},
	{"failsafehttp (permit until headers; no slow-call rate)", func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafeBulkhead[*http.Response](), failsafeBreaker[*http.Response]())
	}},
}

func clientRows() []row {
	rows := []row{
		clientRow("client over a stub transport, no body", stub{http.NoBody}, cancellable),
		clientRow("client over a stub transport, an open body, a context without end", stub{ended{}}, endless),
		clientRow("client over a stub transport, an open body, a context with an end", stub{ended{}}, cancellable),
	}
	rows[1].goals = []goal{extra(350), allocs(2)}
	rows[2].goals = []goal{extra(900), allocs(5)}
	return rows
}

func endless() (context.Context, context.CancelFunc) { return context.Background(), func() {} }

func clientRow(name string, base stub, newContext func() (context.Context, context.CancelFunc)) row {
	run := func(make func(http.RoundTripper) http.RoundTripper) turn {
		return func(m *meter, ops int) {
			ctx, cancel := newContext()
			defer cancel()
			exchange(m, ops, make(base.transport()), request(ctx, "/reports/17"))
		}
	}
	r := row{name: name, plus: true, raw: rival{"the stub alone", run(func(base http.RoundTripper) http.RoundTripper { return base })}}
	for _, c := range clients {
		r.rivals = append(r.rivals, rival{c.name, run(c.make)})
	}
	return r
}

// exchange makes calls and reads their responses to the end.
func exchange(m *meter, ops int, rt http.RoundTripper, r *http.Request) {
	alone(m, ops, func(_ context.Context, ops int) {
		var buf [1]byte
		for range ops {
			resp, err := rt.RoundTrip(r)
			must(err == nil)
			_, err = resp.Body.Read(buf[:])
			must(err == io.EOF)
			must(resp.Body.Close() == nil)
		}
	})
}

// A stub is a transport that allocates nothing: it has one response, and hands it
// out with the same body each time.
type stub struct{ body io.ReadCloser }

func (s stub) transport() http.RoundTripper {
	resp := &http.Response{StatusCode: http.StatusOK, ContentLength: -1}
	return roundTripper(func(*http.Request) (*http.Response, error) {
		resp.Body = s.body
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ended is a body that is at its end.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.EOF }
func (ended) Close() error             { return nil }
