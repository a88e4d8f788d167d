package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// One call at a time to each host. A call is over when its body is.
func ExampleNew() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "the report")
	}))
	defer upstream.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "upstreams",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport.New(nil, watertight.New(policies))}
	defer client.CloseIdleConnections()

	first, err := client.Get(upstream.URL)
	if err != nil {
		panic(err)
	}
	_, err = client.Get(upstream.URL)
	fmt.Println("full:", errors.Is(err, bulkhead.ErrFull))

	var rejected *watertight.RejectedError
	if errors.As(err, &rejected) {
		fmt.Println("refused by", rejected.Policy, "try again in", rejected.RetryAfter)
	}

	report, _ := io.ReadAll(first.Body)
	_ = first.Body.Close()
	fmt.Printf("%s\n", report)

	second, err := client.Get(upstream.URL)
	if err != nil {
		panic(err)
	}
	defer second.Body.Close()
	fmt.Println(second.Status)
	// Output:
	// full: true
	// refused by upstreams try again in 1s
	// the report
	// 200 OK
}

// The limit bounds the calls that wait for an answer, not the downloads.
func ExampleReleaseAtHeaders() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a long film")
	}))
	defer upstream.Close()

	policies, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "upstreams",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{
		Transport: transport.New(nil, watertight.New(policies), transport.ReleaseAtHeaders()),
	}
	defer client.CloseIdleConnections()

	for range 3 {
		film, err := client.Get(upstream.URL)
		if err != nil {
			panic(err)
		}
		defer film.Body.Close() // all three stay open till the end
		fmt.Println(film.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
}
