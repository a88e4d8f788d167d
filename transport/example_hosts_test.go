package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const hostsPolicy = `
version: 1
policies:
  - name: upstreams
    side: client
    bulkhead: {maxConcurrent: 20, maxWait: 100ms}
    breaker: {failureRate: 50, minCalls: 3, openFor: 30s}
`

// A shop shows prices and reviews, which come from two services. The one for
// reviews is down. After three failures its breaker opens: nobody waits for it any
// more, and the prices, whose compartment is another, do not notice.
func Example_hosts() {
	prices := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "9.99")
	}))
	defer prices.Close()
	reviews := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer reviews.Close()

	policies, err := policy.Parse("watertight.yaml", []byte(hostsPolicy))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies))}
	defer client.CloseIdleConnections()

	for range 5 {
		fmt.Println(fetch(client, prices.URL), "|", fetch(client, reviews.URL))
	}
	// Output:
	// 9.99 | 502 Bad Gateway
	// 9.99 | 502 Bad Gateway
	// 9.99 | 502 Bad Gateway
	// 9.99 | no reviews now
	// 9.99 | no reviews now
}

// fetch returns what is at url, or what to show in its place.
func fetch(client *http.Client, url string) string {
	resp, err := client.Get(url)
	switch {
	case errors.Is(err, breaker.ErrOpen):
		return "no reviews now"
	case err != nil:
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
