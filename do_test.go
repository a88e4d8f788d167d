package watertight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

const named = `
version: 1
policies:
  - name: orders-db
    side: client
    match: [{method: [DO]}]
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}
    breaker: {minCalls: 2, window: {calls: 4}, openFor: 5s, slowCall: 2s, halfOpen: {calls: 1}}
    reject: {retryAfter: 3s}
  - {name: reports, side: server, match: [{path: /reports}], bulkhead: {maxConcurrent: 1}}
  - {name: free, side: client, match: [{method: [FREE]}], exempt: true}
  - {name: queue, side: client, match: [{method: [DO]}], per: policy, breaker: {}}
  - {name: hosts, bulkhead: {maxConcurrent: 1}}
`

var errDown = errors.New("connection refused")

// nothing is a function that succeeds.
func nothing(context.Context) error { return nil }

// holding is a function that lasts until it is let go.
func holding(let <-chan struct{}) func(context.Context) error {
	return func(context.Context) error { <-let; return nil }
}

func TestDoReturnsWhatTheFunctionReturns(t *testing.T) {
	g := guard(t, named)
	require.NoError(t, g.Do(t.Context(), "orders-db", nothing))
	wrapped := fmt.Errorf("select: %w", errDown)
	assert.Same(t, wrapped, g.Do(t.Context(), "orders-db", func(context.Context) error { return wrapped }))
	c := compartment(t, g, "orders-db", "")
	assert.Equal(t, "client", c.Side)
	assert.EqualValues(t, 2, c.Granted)
	assert.Zero(t, c.InFlight)
	assert.EqualValues(t, 50, c.Breaker.FailureRate)

	assert.PanicsWithValue(t, "watertight: Do of a nil function", func() { _ = g.Do(t.Context(), "orders-db", nil) })
}

func TestDoOfAnUnknownNameSaysWhichThereAre(t *testing.T) {
	g := guard(t, named)
	fn := func(context.Context) error { t.Error("called"); return nil }
	assert.EqualError(t, g.Do(t.Context(), "orders", fn),
		`watertight: there is no policy "orders"; those for the client side are "orders-db", "free", "queue", "hosts"`)
	assert.EqualError(t, g.Do(t.Context(), "reports", fn),
		`watertight: policy "reports" is for the server side, and Do is a client; it needs side: client or both`)
	assert.EqualError(t, watertight.New(nil).Do(t.Context(), "a", fn),
		`watertight: there is no policy "a"; none is for the client side`)
	assert.Empty(t, g.Snapshot().Compartments)
}

func TestDoIsRefusedLikeAnyCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		let := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, g.Do(t.Context(), "orders-db", holding(let))) })
		synctest.Wait()
		never := func(context.Context) error { t.Error("called"); return nil }
		start := time.Now()
		wg.Go(func() {
			err := g.Do(t.Context(), "orders-db", never)
			require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
			assert.Equal(t, time.Second, time.Since(start))
		})
		synctest.Wait()
		err := g.Do(t.Context(), "orders-db", never)
		var rejected *watertight.RejectedError
		require.ErrorAs(t, err, &rejected)
		assert.EqualError(t, err, "watertight: policy orders-db refused the call, full: bulkhead: full; retry after 3s")
		assert.Equal(t, policy.ReasonFull, rejected.Reason)
		assert.Empty(t, rejected.Key)
		time.Sleep(time.Second)
		synctest.Wait() // the waiter's second ends at the same instant

		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { assert.Equal(t, context.Canceled, g.Do(ctx, "orders-db", never)) })
		synctest.Wait()
		cancel()
		assert.Equal(t, context.Canceled, g.Do(ctx, "orders-db", never), "dead on arrival")
		close(let)
		wg.Wait()
		c := compartment(t, g, "orders-db", "")
		assert.EqualValues(t, 1, c.Granted)
		assert.EqualValues(t, 2, c.Left)
		assert.EqualValues(t, 1, c.Rejected["full"])
		assert.EqualValues(t, 1, c.Rejected["wait_timeout"])
		assert.Zero(t, c.InFlight)
	})
}

// What the breaker hears of each end, as "calls in the window, of them failed".
func TestDoFilesTheOutcome(t *testing.T) {
	inner := &watertight.RejectedError{Policy: "inner", Reason: policy.ReasonFull, Err: bulkhead.ErrFull}
	for _, test := range []struct {
		name    string
		fn      func(ctx context.Context, cancel func()) error
		calls   int
		failure float64
	}{
		{"nil", func(context.Context, func()) error { return nil }, 1, 0},
		{"an error", func(context.Context, func()) error { return errDown }, 1, 100},
		{"an inner deadline", func(context.Context, func()) error { return context.DeadlineExceeded }, 1, 100},
		{"ignored", func(context.Context, func()) error { return watertight.Ignore(errDown) }, 0, 0},
		{"ignored, wrapped", func(context.Context, func()) error { return fmt.Errorf("b: %w", watertight.Ignore(errDown)) }, 0, 0},
		{"ignored nil", func(context.Context, func()) error { return watertight.Ignore(nil) }, 1, 0},
		{"a refusal further in", func(context.Context, func()) error { return fmt.Errorf("b: %w", inner) }, 0, 0},
		{"a bulkhead further in, of nobody's", func(context.Context, func()) error { return bulkhead.ErrFull }, 1, 100},
		{"a panic", func(context.Context, func()) error { panic("of the test") }, 1, 100},
		{"Goexit", func(context.Context, func()) error { runtime.Goexit(); return nil }, 1, 100},
		{"the caller cancels", func(ctx context.Context, cancel func()) error { cancel(); return ctx.Err() }, 0, 0},
		{"the caller cancels, and it panics", func(_ context.Context, cancel func()) error { cancel(); panic("of the test") }, 0, 0},
		{"the caller cancels late", func(ctx context.Context, cancel func()) error {
			time.Sleep(3 * time.Second)
			cancel()
			return ctx.Err()
		}, 1, 0},
		{"the caller's deadline", func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }, 1, 100},
		{"an answer after the caller left", func(_ context.Context, cancel func()) error { cancel(); return nil }, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Two of each, since one is below minCalls.
				g := guard(t, named)
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						_ = g.Do(ctx, "orders-db", func(ctx context.Context) error { return test.fn(ctx, cancel) })
					}()
					<-done
				}
				c := compartment(t, g, "orders-db", "")
				assert.Equal(t, 2*test.calls, c.Breaker.Calls)
				if test.calls > 0 {
					assert.Equal(t, test.failure, c.Breaker.FailureRate)
				}
				assert.Zero(t, c.InFlight, "the permit is back")
			})
		})
	}
}

func TestIgnore(t *testing.T) {
	g := guard(t, named)
	assert.Same(t, errDown, g.Do(t.Context(), "orders-db", func(context.Context) error { return watertight.Ignore(errDown) }))
	wrapped := fmt.Errorf("b: %w", watertight.Ignore(errDown))
	assert.Same(t, wrapped, g.Do(t.Context(), "orders-db", func(context.Context) error { return wrapped }))
	require.ErrorIs(t, wrapped, errDown)
	assert.EqualError(t, wrapped, "b: connection refused")
	assert.NoError(t, watertight.Ignore(nil))
}

func TestDoPassesPanicsOn(t *testing.T) {
	g := guard(t, named)
	assert.PanicsWithValue(t, "of the test", func() {
		_ = g.Do(t.Context(), "orders-db", func(context.Context) error { panic("of the test") })
	})
	assert.Panics(t, func() {
		_ = g.Do(t.Context(), "orders-db", func(context.Context) error { return treacherous{} })
	})
	c := compartment(t, g, "orders-db", "")
	assert.Equal(t, "open", c.Breaker.State, "both were failures")
	assert.Zero(t, c.InFlight)
}

// treacherous is an error that must not be looked into.
type treacherous struct{}

func (treacherous) Error() string { return "treacherous" }
func (treacherous) Unwrap() error { panic("looked into") }

// A probe that was ignored is handed back, and the next one decides.
func TestDoHandsBackAnIgnoredProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		for range 2 {
			_ = g.Do(t.Context(), "orders-db", func(context.Context) error { return errDown })
		}
		err := g.Do(t.Context(), "orders-db", nothing)
		require.ErrorIs(t, err, breaker.ErrOpen)
		var rejected *watertight.RejectedError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, 5*time.Second, rejected.RetryAfter)
		time.Sleep(5 * time.Second)
		_ = g.Do(t.Context(), "orders-db", func(context.Context) error { return watertight.Ignore(errDown) })
		assert.Equal(t, "half_open", compartment(t, g, "orders-db", "").Breaker.State)
		require.NoError(t, g.Do(t.Context(), "orders-db", nothing))
		assert.Equal(t, "closed", compartment(t, g, "orders-db", "").Breaker.State)
	})
}

// A policy for each host has one compartment more, for Do. With per: policy there
// is one for both.
func TestDoAndHTTPCallsOfOnePolicy(t *testing.T) {
	g := guard(t, named)
	require.NoError(t, g.Do(t.Context(), "hosts", func(ctx context.Context) error {
		admit(t, g, to("a")).Release()
		return nil
	}))
	assert.EqualValues(t, 1, compartment(t, g, "hosts", "").Granted)
	assert.EqualValues(t, 1, compartment(t, g, "hosts", "http://a:80").Granted)

	g = guard(t, `
version: 1
policies:
  - {name: all, side: client, per: policy, bulkhead: {maxConcurrent: 1}}
`)
	require.NoError(t, g.Do(t.Context(), "all", func(ctx context.Context) error {
		refused(t, g, to("a"), bulkhead.ErrFull)
		return nil
	}))
	assert.Len(t, g.Snapshot().Compartments, 1)
}

func TestDoOfAnExemptPolicyIsCounted(t *testing.T) {
	g := guard(t, named)
	require.NoError(t, g.Drain(t.Context()))
	assert.Same(t, errDown, g.Do(t.Context(), "free", func(context.Context) error {
		assert.EqualValues(t, 1, compartment(t, g, "free", "").InFlight)
		return errDown
	}))
	c := compartment(t, g, "free", "")
	assert.EqualValues(t, 1, c.Granted)
	assert.Zero(t, c.InFlight)
}

func TestDoWithABreakerAlone(t *testing.T) {
	g := guard(t, named)
	require.NoError(t, g.Do(t.Context(), "queue", func(context.Context) error {
		assert.EqualValues(t, 1, compartment(t, g, "queue", "").InFlight)
		return nil
	}))
	c := compartment(t, g, "queue", "")
	assert.EqualValues(t, 1, c.Granted)
	assert.Zero(t, c.InFlight)
	assert.Nil(t, c.Bulkhead)
}

// Drain waits for what Do runs, and refuses who queues once the requests, which
// may need it, have left.
func TestDrainWaitsForDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		request := admit(t, g, on("/"))
		let := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, g.Do(t.Context(), "orders-db", holding(let))) })
		synctest.Wait()
		wg.Go(func() {
			err := g.Do(t.Context(), "orders-db", nothing)
			assert.ErrorIs(t, err, bulkhead.ErrClosed)
		})
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- g.Drain(t.Context()) }()
		synctest.Wait()
		assert.Equal(t, 1, compartment(t, g, "orders-db", "").Bulkhead.Queued, "a request may need it")
		require.NoError(t, g.Do(t.Context(), "queue", nothing))
		request.Release()
		synctest.Wait()
		assert.Equal(t, 0, compartment(t, g, "orders-db", "").Bulkhead.Queued)
		require.ErrorIs(t, g.Do(t.Context(), "queue", nothing), bulkhead.ErrClosed)
		assert.Empty(t, drained)
		close(let)
		require.NoError(t, <-drained)
		wg.Wait()
		assert.EqualValues(t, 1, compartment(t, g, "orders-db", "").Rejected["draining"])
	})
}

func TestDoTellsItsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		hooks := s.hooks("one")
		arrive := hooks.Arrive
		hooks.Arrive = func(ctx context.Context, r *policy.Request) context.Context {
			assert.Equal(t, &policy.Request{Side: policy.Client}, r)
			return arrive(ctx, r)
		}
		g := guard(t, named, watertight.WithHooks(hooks))
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = g.Do(t.Context(), "orders-db", func(ctx context.Context) error {
				assert.Equal(t, "one", ctx.Value(ctxKey("grant")), "the call runs under what Grant made")
				time.Sleep(300 * time.Millisecond)
				return nil
			})
		})
		synctest.Wait()
		wg.Go(func() { _ = g.Do(t.Context(), "orders-db", nothing) })
		synctest.Wait()
		_ = g.Do(t.Context(), "orders-db", nothing)
		wg.Wait()

		db := watertight.Compartment{Policy: "orders-db", Side: policy.Client, Per: policy.PerPolicy}
		for i, e := range s.events {
			if e, ok := e.(watertight.RejectEvent); ok {
				e.Err = nil
				s.events[i] = e
			}
		}
		assert.ElementsMatch(t, []any{
			watertight.GrantEvent{Compartment: db, Limit: 1, InFlight: 1},
			watertight.RejectEvent{Compartment: db, Reason: policy.ReasonFull, Limit: 1, InFlight: 1, Queued: 1, RetryAfter: 3 * time.Second},
			watertight.ReleaseEvent{Compartment: db, Held: 300 * time.Millisecond},
			watertight.WaitEvent{Compartment: db, Arrived: start, Waited: 300 * time.Millisecond, Position: 1, Result: "granted"},
			watertight.GrantEvent{Compartment: db, Limit: 1, InFlight: 1, Waited: 300 * time.Millisecond},
			watertight.ReleaseEvent{Compartment: db},
		}, s.events)
	})
}

// Invariant 1, by many at once, in every way that a call can end.
func TestDoGivesEveryPermitBack(t *testing.T) {
	g := guard(t, `
version: 1
policies:
  - {name: db, side: client, bulkhead: {maxConcurrent: 3, maxQueue: 4, maxWait: 1ms}, breaker: {minCalls: 50, openFor: 1ms}}
`)
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 300 {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					_ = g.Do(ctx, "db", func(context.Context) error {
						now := inside.Add(1)
						defer inside.Add(-1)
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						runtime.Gosched()
						switch (i + n) % 6 {
						case 0:
							return errDown
						case 1:
							panic("of the test")
						case 2:
							runtime.Goexit()
						case 3:
							cancel()
							return ctx.Err()
						case 4:
							return watertight.Ignore(errDown)
						}
						return nil
					})
				}()
				<-done
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most.Load(), int64(3))
	c := compartment(t, g, "db", "")
	assert.Zero(t, c.InFlight)
	var total uint64
	for _, n := range c.Rejected {
		total += n
	}
	assert.EqualValues(t, 16*300, c.Granted+total+c.Left)
	require.NoError(t, g.Drain(t.Context()))
}

func TestDoAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	g := guard(t, named)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, name := range []string{"orders-db", "queue", "free"} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if g.Do(ctx, name, nothing) != nil {
				t.Fatal("refused")
			}
		}), name)
	}
}

func BenchmarkDo(b *testing.B) {
	g := guard(b, named)
	b.ReportAllocs()
	for b.Loop() {
		_ = g.Do(b.Context(), "orders-db", nothing)
	}
}
