package transport_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/transport"
)

const costly = `  - {name: limited, match: [{host: limited}], bulkhead: {maxConcurrent: 100, maxWait: 1s}}
  - {name: both, match: [{host: both}], bulkhead: {maxConcurrent: 100, maxWait: 1s}, breaker: {slowCall: 1s}}
  - {name: full, match: [{host: full}], bulkhead: {maxConcurrent: 1}}
  - {name: down, match: [{host: down}], breaker: {minCalls: 1, openFor: 1h}}`

// still is a base that allocates nothing: it has one response, and hands it out
// with the same body each time.
type still struct {
	resp http.Response
	body io.ReadCloser
}

func (s *still) RoundTrip(r *http.Request) (*http.Response, error) {
	s.resp.Body = s.body
	return &s.resp, nil
}

// ended is a body that is at its end.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.EOF }
func (ended) Close() error             { return nil }

// costs are the paths whose price is known. Those that are refused need no base.
var costs = []struct {
	name   string
	host   string
	body   io.ReadCloser
	opts   []transport.Option
	ctx    context.Context // nil: one that may end
	allocs float64         // at most
}{
	{name: "unlimited, no body", host: "free", body: http.NoBody},
	{name: "bulkhead, no body", host: "limited", body: http.NoBody},
	{name: "bulkhead and breaker, no body", host: "both", body: http.NoBody},
	{name: "bulkhead and breaker, released at headers", host: "both", body: ended{}, opts: []transport.Option{transport.ReleaseAtHeaders()}},
	{name: "unlimited, body", host: "free", body: ended{}, allocs: 3},
	{name: "bulkhead and breaker, body", host: "both", body: ended{}, allocs: 3},
	{name: "bulkhead and breaker, body, endless context", host: "both", body: ended{}, ctx: context.Background(), allocs: 1},
	{name: "refused, full", host: "full", allocs: 1},
	{name: "refused, open", host: "down", allocs: 1},
}

// costlyTransport returns one whose host "full" is full and whose host "down" has
// an open breaker, and whose other calls are answered with that body.
func costlyTransport(t testing.TB, body io.ReadCloser, opts ...transport.Option) http.RoundTripper {
	t.Helper()
	g := guard(t, costly)
	_, err := transport.New(base(failing), g).RoundTrip(get(t, "http://down/"))
	require.Error(t, err)
	held := open(t, transport.New(base(streaming), g), get(t, "http://full/"))
	t.Cleanup(func() { _ = held.Body.Close() }) // which also keeps it from being dropped
	return transport.New(&still{resp: http.Response{StatusCode: 200, ContentLength: -1}, body: body}, g, opts...)
}

// spend makes one call and reads its response to the end.
func spend(rt http.RoundTripper, r *http.Request, buf []byte) {
	resp, err := rt.RoundTrip(r)
	if err == nil {
		_, _ = resp.Body.Read(buf)
		_ = resp.Body.Close()
	}
}

// A call without an open body, and without hooks, is admitted without an
// allocation. A refusal allocates its error. An open body allocates itself and the
// watch of its context; that of the garbage collector it takes over from another.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	for _, cost := range costs {
		t.Run(cost.name, func(t *testing.T) {
			rt := costlyTransport(t, cost.body, cost.opts...)
			r := get(t, "http://"+cost.host+"/a/b").WithContext(cmp.Or(cost.ctx, t.Context()))
			buf := make([]byte, 1)
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { spend(rt, r, buf) }), cost.allocs)
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, cost := range costs {
		b.Run(cost.name, func(b *testing.B) {
			rt := costlyTransport(b, cost.body, cost.opts...)
			r := get(b, "http://"+cost.host+"/a/b").WithContext(cmp.Or(cost.ctx, b.Context()))
			buf := make([]byte, 1)
			b.ReportAllocs()
			for b.Loop() {
				spend(rt, r, buf)
			}
		})
	}
	b.Run("the base alone", func(b *testing.B) {
		rt := &still{resp: http.Response{StatusCode: 200, ContentLength: -1}, body: ended{}}
		r := get(b, "http://free/a/b")
		buf := make([]byte, 1)
		b.ReportAllocs()
		for b.Loop() {
			spend(rt, r, buf)
		}
	})
}

// What the longest path costs with hooks that derive contexts, as tracing does.
func BenchmarkRoundTripWithHooks(b *testing.B) {
	g := guard(b, costly, derive(), watertight.WithHooks(watertight.Hooks{
		Release: func(context.Context, watertight.ReleaseEvent) {},
	}))
	rt := transport.New(&still{resp: http.Response{StatusCode: 200, ContentLength: -1}, body: ended{}}, g)
	r := get(b, "http://both/a/b")
	buf := make([]byte, 1)
	b.ReportAllocs()
	for b.Loop() {
		spend(rt, r, buf)
	}
}
