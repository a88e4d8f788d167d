package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A shop's search answers 200 and says in a header that it could search only a part.
// For the breaker that is a failure; a 404 for an unknown article never was one.
func ExampleWithClassifier() {
	search := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Partial", "true")
	}))
	defer search.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "upstreams",
		Side:    policy.Client,
		Breaker: &policy.Breaker{MinCalls: 3, OpenFor: time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	partial := func(resp *http.Response, err error) breaker.Outcome {
		if err == nil && resp.Header.Get("X-Partial") != "" {
			return breaker.Failure
		}
		return 0 // as the policy says
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies), transport.WithClassifier(partial))}
	defer client.CloseIdleConnections()

	for range 4 {
		resp, err := client.Get(search.URL)
		if errors.Is(err, breaker.ErrOpen) {
			fmt.Println("not sent: the breaker is open")
			continue
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.Status)
		resp.Body.Close()
	}
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// not sent: the breaker is open
}

// One host name stands for many shards, which have little to do with each other. Each
// is a compartment of its own.
func ExampleWithKey() {
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "item")
	}))
	defer store.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "store",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		panic(err)
	}
	shard := func(r *http.Request) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		return "shard " + name
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies), transport.WithKey(shard))}
	defer client.CloseIdleConnections()

	for _, path := range []string{"/a/1", "/a/2", "/b/1"} {
		resp, err := client.Get(store.URL + path)
		var refused *watertight.RejectedError
		if errors.As(err, &refused) {
			fmt.Println(path, "refused:", refused.Key, "is full")
			continue
		}
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close() // stays open till the end
		fmt.Println(path, resp.Status)
	}
	// Output:
	// /a/1 200 OK
	// /a/2 refused: shard a is full
	// /b/1 200 OK
}

// While the breaker of a host is open, its last good answer has to do.
func ExampleWithFallback() {
	down := false
	rates := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "1 EUR = 1.08 USD")
	}))
	defer rates.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "rates",
		Side:    policy.Client,
		Breaker: &policy.Breaker{MinCalls: 2, OpenFor: time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	var last []byte // of a cache that knows more than one page
	cached := func(r *http.Request, refused *watertight.RejectedError) (*http.Response, error) {
		if last == nil {
			return nil, nil // it stays refused
		}
		return &http.Response{
			StatusCode:    http.StatusOK,
			Header:        http.Header{"X-From": {"cache"}},
			ContentLength: int64(len(last)),
			Body:          io.NopCloser(bytes.NewReader(last)),
		}, nil
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies), transport.WithFallback(cached))}
	defer client.CloseIdleConnections()

	for range 3 {
		resp, err := client.Get(rates.URL)
		if err != nil {
			panic(err)
		}
		page, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %s, from cache: %t\n", resp.StatusCode, bytes.TrimSpace(page), resp.Header.Get("X-From") == "cache")
		if resp.StatusCode == http.StatusOK {
			last = page
		}
		down = true
	}
	// Output:
	// 200 1 EUR = 1.08 USD, from cache: false
	// 503 out of order, from cache: false
	// 200 1 EUR = 1.08 USD, from cache: true
}

// By its context a request may pass the limits: a look at the upstream's health is of
// use above all while nothing else is let out.
func ExampleTransport_withoutLimits() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer upstream.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "upstreams",
		Side:    policy.Client,
		Breaker: &policy.Breaker{MinCalls: 1, OpenFor: time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies))}
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context, path string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL+path, nil)
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(r)
		if errors.Is(err, breaker.ErrOpen) {
			fmt.Println(path, "not sent: the breaker is open")
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(path, resp.Status)
		resp.Body.Close()
	}

	ctx := context.Background()
	ask(ctx, "/orders")
	ask(ctx, "/orders")
	ask(watertight.WithoutLimits(ctx, policy.Client), "/healthz")
	// Output:
	// /orders 502 Bad Gateway
	// /orders not sent: the breaker is open
	// /healthz 200 OK
}
