package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	failsafecircuit "github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// Whatever is guarded lets so many in at once, and has room for as many more.
const limit = 100

const (
	withBulkhead = "bulkhead: {maxConcurrent: 100, maxQueue: 100, maxWait: 1h}"
	withBreaker  = "breaker: {slowCall: 1s, openFor: 1h}" // both rates over 100 calls
)

// guard returns one that has a policy with these keys, for all requests but
// those of another host, as one of several policies.
func guard(keys string, opts ...watertight.Option) *watertight.Guard {
	set, err := policy.Parse("bench.yaml", []byte(`
version: 1
defaults: {maxCompartments: 1000000}
policies:
  - {name: health, match: [{path: /healthz}], exempt: true}
  - {name: uploads, match: [{path: "/uploads/{file...}", method: [POST, PUT]}], bulkhead: {maxConcurrent: 10}}
  - {name: all, `+keys+`}
`))
	if err != nil {
		panic(err)
	}
	// What the set warns of, such as a max wait that is never reached, is meant here.
	return watertight.New(set, append(opts, watertight.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// failsafeBulkhead and failsafeBreaker are the policies of failsafe-go that come
// nearest to those of guard.
func failsafeBulkhead[R any]() bulkhead.Bulkhead[R] {
	return bulkhead.NewBuilder[R](limit).WithMaxWaitTime(time.Hour).Build()
}

func failsafeBreaker[R any]() failsafecircuit.CircuitBreaker[R] {
	return failsafecircuit.NewBuilder[R]().WithFailureThresholdRatio(tripRate, 100).WithDelay(openFor).Build()
}

// cancellable is the context of a request from a server.
func cancellable() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
