package watertightresty_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-resty/resty/v2"

	watertightresty "github.com/watertight-go/watertight/adapters/resty"
)

// stub answers without a network.
type stub struct{}

func (stub) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: 4, Request: r,
		Body: io.NopCloser(strings.NewReader("body")),
	}, nil
}

func BenchmarkRequest(b *testing.B) {
	const roomy = "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 100}, breaker: {}}]}"
	for _, bench := range []struct {
		name string
		c    *resty.Client
	}{
		{"resty alone", resty.New().SetTransport(stub{}).SetRetryCount(3)},
		{"guarded", watertightresty.Configure(resty.New().SetTransport(stub{}).SetRetryCount(3), guard(b, roomy))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bench.c.R().Get("http://up/"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRefusal(b *testing.B) {
	c := watertightresty.Configure(resty.New().SetTransport(stub{}).SetLogger(&log{}).SetRetryCount(3), guard(b, onePermit))
	held, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
	if err != nil {
		b.Fatal(err)
	}
	defer held.RawBody().Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.R().Get("http://up/"); err == nil {
			b.Fatal("not refused")
		}
	}
}
