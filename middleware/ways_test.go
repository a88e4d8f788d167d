package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// ways are the ways that a request can take through the middleware: untouched; with
// a writer of its own, since a breaker waits for the status; with that and as a copy.
var ways = []struct {
	name   string
	limits string
	opts   []middleware.Option
}{
	{"permits", "bulkhead: {maxConcurrent: 2}", nil},
	{"breaker", "bulkhead: {maxConcurrent: 2}, breaker: {minCalls: 1000000, window: {calls: 1000000}}", nil},
	{"breaker and copy", "bulkhead: {maxConcurrent: 2}, breaker: {minCalls: 1000000, window: {calls: 1000000}}", []middleware.Option{middleware.Reentrant()}},
}

// eachWay runs a test in each way. What wrap returns lets two requests in at a time.
func eachWay(t *testing.T, test func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, "+way.limits+"}]}")
			test(t, g, middleware.New(g, way.opts...))
		})
	}
}

// protocols are how to start a server that speaks one, and make its client speak
// it, too.
var protocols = map[string]func(testing.TB, http.Handler) *server{
	"HTTP/1": serve,
	"HTTP/2": serveHTTP2,
	"h2c":    serveH2C,
}

func serveH2C(t testing.TB, h http.Handler) *server {
	return start(t, h, func(s *httptest.Server) {
		p := new(http.Protocols)
		p.SetUnencryptedHTTP2(true)
		s.Config.Protocols = p
		s.Start()
		s.Client().Transport.(*http.Transport).Protocols = p
	})
}

func eachProtocol(t *testing.T, test func(t *testing.T, start func(testing.TB, http.Handler) *server)) {
	for name, start := range protocols {
		t.Run(name, func(t *testing.T) { test(t, start) })
	}
}
