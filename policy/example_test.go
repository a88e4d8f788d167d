package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

const file = `
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: reports
    side: server
    match:
      - path: /reports/{id}
        method: [GET]
    bulkhead: {maxConcurrent: 20, maxWait: 1s}
  - name: payments
    side: client
    match: [{host: payments.internal}]
    bulkhead: {maxConcurrent: 50}
    breaker: {slowCall: 800ms}
`

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "watertight.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	policies, err := policy.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range policies.Rules() {
		fmt.Println(p.Name, p.Side)
	}
	// Output:
	// health both
	// reports server
	// payments client
}

// A governance file of ServiceComb is read too. What ServiceComb would pass over is an
// error, or a warning with Lenient.
func ExampleLenient() {
	file := []byte(`servicecomb:
  matchGroup:
    reports: |
      matches:
        - apiPath:
            prefix: /reports/
  bulkhead:
    reports: |
      maxConcurrentCalls: 20
      maxWait: 500
`)
	_, err := policy.Parse("application.yaml", file)
	fmt.Println("strictly:", err)

	policies, err := policy.Parse("application.yaml", file, policy.Lenient())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range policies.Warnings() {
		fmt.Println("leniently:", w)
	}
	for _, p := range policies.Rules() {
		fmt.Println(p.Side, p.Name, p.Bulkhead.MaxConcurrent, p.Bulkhead.MaxWait)
	}
	// Output:
	// strictly: application.yaml:10:7: bulkhead "reports": unknown key "maxWait"; did you mean "maxWaitDuration"?
	// leniently: application.yaml:10:7: bulkhead "reports": unknown key "maxWait"; did you mean "maxWaitDuration"?
	// server reports 20 0s
}

// Some policies of a ServiceComb file are only for some services.
func ExampleService() {
	file := []byte(`servicecomb:
  matchGroup:
    reports: |
      matches: [{apiPath: {prefix: /reports/}}]
  bulkhead:
    reports: |
      maxConcurrentCalls: 20
      services: shop-api:1.2.0,billing
`)
	for _, version := range []string{"1.2.0", "1.3.0"} {
		policies, err := policy.Parse("application.yaml", file, policy.Service("shop-api", version))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(version, len(policies.Rules()))
	}
	// Output:
	// 1.2.0 1
	// 1.3.0 0
}

// All problems of a file are reported at once, each with its place.
func ExampleParse() {
	_, err := policy.Parse("watertight.yaml", []byte(`version: 1
policies:
  - name: reports
    bulkhead: {maxConcurent: 20, maxWait: 100}
  - name: payments
    breaker: {failureRate: 150}
`))
	fmt.Println(err)

	var problems policy.Errors
	if errors.As(err, &problems) {
		fmt.Println(len(problems), "problems, the first in line", problems[0].Line)
	}
	// Output:
	// watertight.yaml:4:16: policy "reports": unknown key "maxConcurent"; did you mean "maxConcurrent"?
	// watertight.yaml:4:43: policy "reports": bulkhead.maxWait is 100, which has no unit; write 100ms or 100s
	// watertight.yaml:6:28: policy "payments": breaker.failureRate is 150; it must be a percentage: more than 0, at most 100
	// 3 problems, the first in line 4
}

func ExampleNew() {
	policies, err := policy.New(policy.Config{
		Policies: []policy.Policy{{
			Name:     "uploads",
			Side:     policy.Server,
			Match:    []policy.Match{{Path: "/files/{name...}", Method: []string{"PUT", "POST"}}},
			Per:      policy.PerPolicy,
			Bulkhead: &policy.Bulkhead{MaxConcurrent: 8, MaxQueue: 16, MaxWait: 2 * time.Second},
			Reject: policy.Reject{
				Status:     map[policy.Reason]int{policy.ReasonFull: http.StatusTooManyRequests},
				RetryAfter: new(5 * time.Second),
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	uploads := policies.Rules()[0]
	fmt.Println(uploads.RejectStatus(policy.ReasonFull), uploads.RejectStatus(policy.ReasonWaitTimeout), uploads.RetryAfter)
	// Output:
	// 429 408 5s
}

func ExampleSet_Match() {
	policies, err := policy.Parse("watertight.yaml", []byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	d := policies.Match(&policy.Request{Side: policy.Client, Method: "POST", Scheme: "https", Host: "payments.internal", EscapedPath: "/v1/charge"})
	fmt.Println(d.Bulkhead.Name, d.Breaker.Name)

	d = policies.Match(&policy.Request{Side: policy.Server, Host: "example.com", EscapedPath: "/reports/7"})
	fmt.Println(d.Bulkhead.Name, d.BulkheadPattern, d.Breaker)

	d = policies.Match(&policy.Request{Side: policy.Server, Host: "example.com", EscapedPath: "/healthz"})
	fmt.Println(d.Bulkhead, d.Exempt.Name)
	// Output:
	// payments payments
	// reports /reports/{id} <nil>
	// <nil> health
}

func ExampleSet_Warnings() {
	policies, err := policy.Parse("watertight.yaml", []byte(`version: 1
policies:
  - name: everything
    bulkhead: {maxConcurrent: 100, maxQueue: 10}
  - name: uploads
    match: [{path: "/files/{name...}"}]
    bulkhead: {maxConcurrent: 8}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range policies.Warnings() {
		fmt.Println(w)
	}
	// Output:
	// watertight.yaml:4:46: policy "everything": bulkhead.maxQueue has no effect without maxWait, since nobody waits; say how long
	// watertight.yaml:5:11: policy "uploads": it is never used: from policy "everything" on nothing is left for it to decide; move it up
}

func ExampleAppendHostKey() {
	key := func(side policy.Side, scheme, host string) string {
		return string(policy.AppendHostKey(nil, side, scheme, host))
	}
	fmt.Println(key(policy.Client, "https", "Payments.internal"))
	fmt.Println(key(policy.Client, "http", "[::1]:8080"))
	fmt.Println(key(policy.Server, "https", "Shop.example.com:443"))
	// Output:
	// https://payments.internal:443
	// http://[::1]:8080
	// shop.example.com
}

func ExampleBreakerSettings_IsFailure() {
	policies, err := policy.Parse("watertight.yaml", []byte(`
version: 1
policies:
  - name: api
    breaker: {failureStatus: [429, 500-503]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	breaker := policies.Rules()[0].Breaker
	fmt.Println(breaker.IsFailure(429), breaker.IsFailure(502), breaker.IsFailure(504))
	// Output:
	// true true false
}

func ExampleWatch() {
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "watertight.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	w, err := policy.Watch(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("policies at the start:", len(w.Set().Rules()))

	// Somebody saves the file with a mistake in it.
	if err := os.WriteFile(path, []byte("version: 1\npolicys: []\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.Run(ctx, func(set *policy.Set, err error) {
		fmt.Println("changed:", strings.ReplaceAll(err.Error(), dir, ""))
		cancel()
	})
	fmt.Println("policies in force:", len(w.Set().Rules()))
	// Output:
	// policies at the start: 3
	// changed: /watertight.yaml:2:1: unknown key "policys"; did you mean "policies"?
	// policies in force: 3
}

// What is wrong, and what is allowed but hardly meant, of one file at once.
func ExampleCheck() {
	problems, warnings := policy.Check("watertight.yaml", []byte(`version: 1
policies:
  - name: reports
    bulkhead: {maxConcurent: 20}
  - name: hosts
    bulkhead: {maxConcurrent: 50, maxWait: 31s}
`))
	for _, p := range problems {
		fmt.Println(p.Line, p.Column, p.Msg)
	}
	fmt.Println(len(warnings), "warning, in line", warnings[0].Line)
	// Output:
	// 4 16 policy "reports": unknown key "maxConcurent"; did you mean "maxConcurrent"?
	// 1 warning, in line 6
}
