package watertightresty_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func ExampleConfigure() {
	// A server whose own dependency is down.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer s.Close()

	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "hosts",
		Side:    policy.Client,
		Breaker: &policy.Breaker{MinCalls: 4, OpenFor: time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(set)

	client := resty.New().
		SetLogger(silent{}).
		SetRetryCount(3).
		SetRetryWaitTime(time.Millisecond).
		AddRetryCondition(func(resp *resty.Response, err error) bool { return err != nil || resp.IsError() })
	watertightresty.Configure(client, wt) // last

	for range 2 {
		request := client.R()
		resp, err := request.Get(s.URL)
		switch {
		case errors.Is(err, breaker.ErrOpen):
			fmt.Println("not sent, breaker open, attempts:", request.Attempt)
		case err == nil:
			fmt.Println(resp.StatusCode(), "attempts:", request.Attempt)
		}
	}
	// Output:
	// 502 attempts: 4
	// not sent, breaker open, attempts: 1
}

// The options of the transport beneath: here a response that streams does not
// keep the only permit of its host.
func ExampleWithTransport() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a long film")
	}))
	defer s.Close()
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "hosts",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	if err != nil {
		panic(err)
	}
	client := resty.New()
	watertightresty.Configure(client, watertight.New(set), watertightresty.WithTransport(transport.ReleaseAtHeaders()))

	for range 2 {
		film, err := client.R().SetDoNotParseResponse(true).Get(s.URL)
		if err != nil {
			panic(err)
		}
		defer film.RawBody().Close() // both stay open till the end
		fmt.Println(film.Status())
	}
	// Output:
	// 200 OK
	// 200 OK
}

// A refused attempt may be answered in another way: here by what was known last.
func ExampleWithTransport_fallback() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "out of order")
	}))
	defer s.Close()
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:    "hosts",
		Side:    policy.Client,
		Breaker: &policy.Breaker{MinCalls: 1, OpenFor: time.Minute},
	}}})
	if err != nil {
		panic(err)
	}
	client := resty.New()
	watertightresty.Configure(client, watertight.New(set), watertightresty.WithTransport(
		transport.WithFallback(func(*http.Request, *watertight.RejectedError) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("yesterday's news"))}, nil
		})))

	for range 2 {
		resp, err := client.R().Get(s.URL)
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.StatusCode(), resp)
	}
	// Output:
	// 502 out of order
	// 200 yesterday's news
}

func ExampleRetryWaitTimeouts() {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "hosts",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Millisecond},
	}}})
	if err != nil {
		panic(err)
	}
	client := resty.New().SetRetryCount(2).SetRetryWaitTime(time.Millisecond).SetLogger(silent{})
	watertightresty.Configure(client, watertight.New(set), watertightresty.RetryWaitTimeouts())

	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The only permit is out while this handler runs.
		request := client.R()
		_, err := request.Get("http://" + r.Host)
		fmt.Println(errors.Is(err, bulkhead.ErrWaitTimeout), "attempts:", request.Attempt)
	}))
	defer s.Close()
	if _, err := client.R().Get(s.URL); err != nil {
		panic(err)
	}
	// Output:
	// true attempts: 3
}

// silent keeps resty's log out of the examples.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
