package main

import (
	"context"
	"errors"
	"time"

	failsafe "github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"

	"github.com/watertight-go/watertight/breaker"
)

// A circuit is a breaker that trips at half of at least 20 calls failed. The
// loops are inside the methods, so that the calls of the thing measured are
// direct.
type circuit interface {
	// succeed has so many calls let in, and tells that each was a success.
	succeed(ctx context.Context, ops int)
	// thirds is the same with each third a failure.
	thirds(ctx context.Context, ops int)
	// refused has so many calls refused. The circuit must be open.
	refused(ctx context.Context, ops int)
	// fail has one call let in, if possible, and tells that it failed.
	fail(ctx context.Context) (letIn bool)
}

const (
	tripRate  = 50 // percent
	tripCalls = 20
	openFor   = time.Hour
)

// circuits make one, closed.
var circuits = []struct {
	name string
	open func() circuit
}{
	{"watertight, both rates over 100 calls", func() circuit { return atInstant{newBreaker(overCalls), time.Now()} }},
	{"watertight, both rates over 10 s", func() circuit { return atInstant{newBreaker(overTime), time.Now()} }},
	{"failsafe-go over 100 calls (no slow-call rate)", openFailsafeCount},
	{"failsafe-go over 10 s (no slow-call rate; clock)", openFailsafeTime},
	{"gobreaker (fixed 10 s; no slow-call rate; clock)", func() circuit { return openGobreaker(0) }},
	{"gobreaker over 10 s (no slow-call rate; clock)", func() circuit { return openGobreaker(time.Second) }},
	{goZeroName, openGoZero},
}

const goZeroName = "go-zero over 10 s (no slow-call rate; clock)"

var (
	overCalls = breaker.Window{Calls: 100}
	overTime  = breaker.Window{Time: 10 * time.Second}
)

// newBreaker returns a breaker with both rates and the overdue rule, as
// compartments have it.
func newBreaker(w breaker.Window) *breaker.Breaker {
	return breaker.New(breaker.Config{
		FailureRate: tripRate,
		MinCalls:    tripCalls,
		SlowCall:    time.Second,
		Window:      w,
		OpenFor:     []time.Duration{openFor},
	})
}

// atInstant is a breaker whose callers have read the clock already.
type atInstant struct {
	*breaker.Breaker
	now time.Time
}

func (c atInstant) succeed(ctx context.Context, ops int) {
	for range ops {
		call, err := c.AllowAt(ctx, c.now)
		must(err == nil)
		call.DoneAt(ctx, breaker.Success, c.now)
	}
}

func (c atInstant) thirds(ctx context.Context, ops int) {
	for i := range ops {
		call, err := c.AllowAt(ctx, c.now)
		must(err == nil)
		outcome := breaker.Success
		if i%3 == 2 {
			outcome = breaker.Failure
		}
		call.DoneAt(ctx, outcome, c.now)
	}
}

func (c atInstant) refused(ctx context.Context, ops int) {
	for range ops {
		_, err := c.AllowAt(ctx, c.now)
		must(err == breaker.ErrOpen)
	}
}

func (c atInstant) fail(ctx context.Context) bool {
	call, err := c.AllowAt(ctx, c.now)
	call.DoneAt(ctx, breaker.Failure, c.now)
	return err == nil
}

// withClock is a breaker that reads the clock itself.
type withClock struct{ *breaker.Breaker }

func (c withClock) succeed(ctx context.Context, ops int) {
	for range ops {
		call, err := c.Allow(ctx)
		must(err == nil)
		call.Done(ctx, breaker.Success)
	}
}

func (c withClock) refused(ctx context.Context, ops int) {
	for range ops {
		_, err := c.Allow(ctx)
		must(err == breaker.ErrOpen)
	}
}

type failsafeCircuit struct{ failsafe.CircuitBreaker[any] }

func openFailsafeCount() circuit {
	return failsafeCircuit{failsafe.NewBuilder[any]().WithFailureThresholdRatio(tripRate, 100).WithDelay(openFor).Build()}
}

func openFailsafeTime() circuit {
	return failsafeCircuit{failsafe.NewBuilder[any]().
		WithFailureRateThreshold(tripRate/100., tripCalls, overTime.Time).WithDelay(openFor).Build()}
}

func (c failsafeCircuit) succeed(_ context.Context, ops int) {
	for range ops {
		must(c.TryAcquirePermit())
		c.RecordSuccess()
	}
}

func (c failsafeCircuit) thirds(_ context.Context, ops int) {
	for i := range ops {
		must(c.TryAcquirePermit())
		if i%3 == 2 {
			c.RecordFailure()
		} else {
			c.RecordSuccess()
		}
	}
}

func (c failsafeCircuit) refused(_ context.Context, ops int) {
	for range ops {
		must(!c.TryAcquirePermit())
	}
}

func (c failsafeCircuit) fail(context.Context) bool {
	if !c.TryAcquirePermit() {
		return false
	}
	c.RecordFailure()
	return true
}

// gobreakerCircuit runs functions, which costs it less than its two-step form,
// whose second step is a closure.
type gobreakerCircuit struct {
	*gobreaker.CircuitBreaker[struct{}]
}

func openGobreaker(bucket time.Duration) circuit {
	return gobreakerCircuit{gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     overTime.Time,
		BucketPeriod: bucket,
		Timeout:      openFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= tripCalls && 100*c.TotalFailures >= tripRate*c.Requests
		},
	})}
}

var errFailed = errors.New("failed")

func succeeds() (struct{}, error) { return struct{}{}, nil }
func fails() (struct{}, error)    { return struct{}{}, errFailed }

func (c gobreakerCircuit) succeed(_ context.Context, ops int) {
	for range ops {
		_, err := c.Execute(succeeds)
		must(err == nil)
	}
}

func (c gobreakerCircuit) thirds(_ context.Context, ops int) {
	for i := range ops {
		run, want := succeeds, error(nil)
		if i%3 == 2 {
			run, want = fails, errFailed
		}
		_, err := c.Execute(run)
		must(err == want)
	}
}

func (c gobreakerCircuit) refused(_ context.Context, ops int) {
	for range ops {
		_, err := c.Execute(succeeds)
		must(err == gobreaker.ErrOpenState)
	}
}

func (c gobreakerCircuit) fail(context.Context) bool {
	_, err := c.Execute(fails)
	return err == errFailed
}

type goZero struct{ gozero.Breaker }

func openGoZero() circuit { return goZero{gozero.NewBreaker()} }

func (c goZero) succeed(_ context.Context, ops int) {
	for range ops {
		call, err := c.Allow()
		must(err == nil)
		call.Accept()
	}
}

func (c goZero) thirds(_ context.Context, ops int) {
	for i := range ops {
		call, err := c.Allow()
		if err != nil {
			continue // it refuses at random, in proportion
		}
		if i%3 == 2 {
			call.Reject("")
		} else {
			call.Accept()
		}
	}
}

func (c goZero) refused(context.Context, int) { panic("it is never open") }

func (c goZero) fail(context.Context) bool {
	call, err := c.Allow()
	if err != nil {
		return false
	}
	call.Reject("")
	return true
}
