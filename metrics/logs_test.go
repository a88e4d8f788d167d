package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// A logBook keeps records.
type logBook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

type record = map[string]any

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *logBook) option() metrics.Option {
	return metrics.WithLogger(slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
}

// take returns the records since it was last called.
func (b *logBook) take(t testing.TB) (records []record) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for dec := json.NewDecoder(&b.out); dec.More(); {
		var r record
		require.NoError(t, dec.Decode(&r))
		records = append(records, r)
	}
	return records
}

// written returns how many events the records of one text and of the other account for.
func written(t testing.TB, records []record, one, more string) (n uint64) {
	t.Helper()
	for _, r := range records {
		switch r["msg"] {
		case one:
			n++
		case more:
			n += uint64(r["left_out"].(float64))
		}
	}
	return n
}

func full(c watertight.Compartment) watertight.RejectEvent {
	return watertight.RejectEvent{Compartment: c, Reason: policy.ReasonFull, Limit: 4, InFlight: 3, Queued: 2, RetryAfter: time.Second, Err: bulkhead.ErrFull}
}

var hostA = watertight.Compartment{Policy: "p", Side: policy.Client, Per: policy.PerHost, Key: "http://a:80"}

func TestAStormOfRefusalsIsOneRecordAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		hooks := metrics.New(book.option(), metrics.WithoutSpans(), metrics.WithoutMetrics())
		ctx := trace.ContextWithSpanContext(t.Context(), remoteContext(t, sampledRemote))
		storm := func() {
			for range 1000 {
				hooks.Reject(ctx, full(hostA))
				time.Sleep(10 * time.Millisecond)
			}
		}
		storm()
		storm()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		sc := trace.SpanContextFromContext(ctx)
		first := record{
			"level": "WARN", "msg": "watertight: call refused", "policy": "p", "side": "client", "key": "http://a:80", "reason": "full",
			"limit": 4.0, "in_flight": 3.0, "queued": 2.0, "retry_after_ms": 1000.0,
			"trace_id": sc.TraceID().String(), "span_id": sc.SpanID().String(),
		}
		more := func(n float64) record {
			return record{
				"level": "WARN", "msg": "watertight: more calls refused", "policy": "p", "side": "client", "key": "http://a:80", "reason": "full",
				"left_out": n, "over_ms": 10_000.0,
			}
		}
		got := book.take(t)
		assert.EqualValues(t, 2000, written(t, got, "watertight: call refused", "watertight: more calls refused"))
		assert.Len(t, got, 3)
		assert.Equal(t, first, got[0])
		assert.Equal(t, more(got[1]["left_out"].(float64)), got[1])

		time.Sleep(10 * time.Second)
		hooks.Reject(ctx, full(hostA))
		assert.Equal(t, []record{first}, book.take(t), "the storm is over, and this is a new one")
	})
}

// Each reason, each compartment and each kind of record has a count of its own.
func TestOneFloodHidesNoOther(t *testing.T) {
	var book logBook
	hooks := metrics.New(book.option())
	other := hostA
	other.Key = "http://b:80"
	for range 3 {
		hooks.Reject(t.Context(), full(hostA))
		hooks.Observe(t.Context(), full(hostA))
		hooks.Reject(t.Context(), full(other))
		e := full(hostA)
		e.Reason, e.Breaker = policy.ReasonOpen, breaker.HalfOpen
		hooks.Reject(t.Context(), e)
	}
	got := book.take(t)
	require.Len(t, got, 4)
	assert.Equal(t, record{
		"level": "INFO", "msg": "watertight: call would have been refused", "policy": "p", "side": "client", "key": "http://a:80",
		"reason": "full", "mode": "observe", "limit": 4.0, "in_flight": 3.0, "queued": 2.0, "retry_after_ms": 1000.0,
	}, got[1])
	assert.Equal(t, "http://b:80", got[2]["key"])
	assert.Equal(t, record{
		"level": "WARN", "msg": "watertight: call refused", "policy": "p", "side": "client", "key": "http://a:80",
		"reason": "open", "state": "half_open", "retry_after_ms": 1000.0,
	}, got[3])
}

// Keys that may be secrets are in no record, and share a count: whoever makes them up
// must not make the log.
func TestSecretKeysShareACountAndStayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		hooks := metrics.New(book.option())
		for i := range 10 {
			c := watertight.Compartment{Policy: "p", Side: policy.Server, Per: policy.PerHeader, Key: fmt.Sprint("secret", i)}
			hooks.Reject(t.Context(), full(c))
			hooks.Evict(t.Context(), watertight.EvictEvent{Compartment: c, Cause: "bound", Rested: time.Second})
			hooks.Overflow(t.Context(), watertight.OverflowEvent{Compartment: c, Began: true, Max: 7})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := book.take(t)
		assert.Len(t, got, 6)
		for _, r := range got {
			assert.NotContains(t, r, "key")
			assert.NotContains(t, fmt.Sprint(r), "secret")
		}
		assert.EqualValues(t, 10, written(t, got, "watertight: call refused", "watertight: more calls refused"))
	})
}

func TestRecordsOfTablesAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		hooks := metrics.New(book.option())
		for _, key := range []string{"http://a:80", "http://b:80", "http://c:80"} {
			c := hostA
			c.Key = key
			hooks.Evict(t.Context(), watertight.EvictEvent{Compartment: c, Cause: "idle", Rested: 90 * time.Second})
		}
		shared := hostA
		shared.Key = "(overflow)"
		hooks.Overflow(t.Context(), watertight.OverflowEvent{Compartment: shared, Began: true, Max: 7})
		hooks.Overflow(t.Context(), watertight.OverflowEvent{Compartment: shared, Max: 7})
		all := hostA
		all.Key = ""
		hooks.LimitChange(t.Context(), watertight.LimitChangeEvent{Compartment: all, From: 4, To: 5, Cause: "reload"})
		assert.Equal(t, []record{
			{"level": "INFO", "msg": "watertight: compartment dropped", "policy": "p", "side": "client", "key": "http://a:80", "cause": "idle", "rested_ms": 90_000.0},
			{"level": "WARN", "msg": "watertight: too many keys, new ones share a compartment", "policy": "p", "side": "client", "key": "(overflow)", "max_compartments": 7.0},
			{"level": "INFO", "msg": "watertight: new keys have compartments of their own again", "policy": "p", "side": "client", "key": "(overflow)", "max_compartments": 7.0},
			{"level": "INFO", "msg": "watertight: limit changed", "policy": "p", "side": "client", "from": 4.0, "to": 5.0, "cause": "reload"},
		}, book.take(t))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []record{
			{"level": "INFO", "msg": "watertight: more compartments dropped", "policy": "p", "side": "client", "cause": "idle", "left_out": 2.0, "over_ms": 10_000.0},
		}, book.take(t))
	})
}

// A breaker that flaps has its first records in full.
func TestAFlappingBreakerIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		hooks := metrics.New(book.option())
		for range 7 {
			for _, to := range []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed} {
				hooks.Transition(t.Context(), watertight.TransitionEvent{Compartment: hostA, Transition: breaker.Transition{To: to, At: time.Now()}})
			}
		}
		assert.Len(t, book.take(t), 3*5)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		of := func(level, msg string) record {
			return record{"level": level, "msg": msg, "policy": "p", "side": "client", "key": "http://a:80", "left_out": 2.0, "over_ms": 10_000.0}
		}
		assert.ElementsMatch(t, []record{
			of("WARN", "watertight: breaker tripped more often"),
			of("INFO", "watertight: breaker half-open more often"),
			of("INFO", "watertight: breaker closed more often"),
		}, book.take(t))
	})
}

func TestTooManyCompartmentsAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		hooks := metrics.New(book.option())
		for i := range 100 {
			c := hostA
			c.Key = fmt.Sprint(i)
			hooks.Reject(t.Context(), full(c))
		}
		assert.Len(t, book.take(t), 20)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []record{{"level": "WARN", "msg": "watertight: more calls refused", "left_out": 80.0, "over_ms": 10_000.0}}, book.take(t))
	})
}

// What the Guard logs itself has the ids of the trace as well.
func TestTheGuardsOwnRecordsHaveTheTrace(t *testing.T) {
	var book, guards logBook
	r := newRig(t, oneServerPermit)
	hooks := metrics.New(book.option(), metrics.WithTracerProvider(r.provider))
	set, err := policy.Parse("test.yaml", []byte(oneServerPermit))
	require.NoError(t, err)
	g := watertight.New(set, watertight.WithHooks(hooks), watertight.WithLogger(slog.New(slog.NewJSONHandler(&guards, nil))))
	c, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server, Method: "GET", Host: "here", EscapedPath: "/", Route: "/", RouteKnown: true})
	require.NoError(t, err)
	c.Leak()
	got := guards.take(t)
	require.Len(t, got, 1)
	grant := r.only("bulkhead.grant").SpanContext()
	assert.Equal(t, grant.TraceID().String(), got[0]["trace_id"])
	assert.Equal(t, grant.SpanID().String(), got[0]["span_id"])
	assert.Empty(t, book.take(t), "one event, one record")
}

func TestWithoutLogs(t *testing.T) {
	var book logBook
	hooks := metrics.New(book.option(), metrics.WithoutLogs())
	assert.Nil(t, hooks.LimitChange)
	assert.Nil(t, hooks.Evict)
	assert.Nil(t, hooks.Overflow)
	assert.Nil(t, hooks.LogAttrs)
	hooks.Reject(t.Context(), full(hostA))
	hooks.Transition(t.Context(), watertight.TransitionEvent{Transition: breaker.Transition{To: breaker.Open, At: time.Now()}})
	assert.Empty(t, book.take(t))
	assert.Nil(t, metrics.New(metrics.WithoutLogs(), metrics.WithoutSpans()).Reject)
}

// Closing tells what nobody has been told yet, also without metrics.
func TestCloseTellsTheLastCount(t *testing.T) {
	for name, opts := range map[string][]metrics.Option{"all": nil, "without metrics": {metrics.WithoutMetrics()}} {
		t.Run(name, func(t *testing.T) {
			var book logBook
			hooks := metrics.New(append(opts, book.option())...)
			g := newGuard(t, oneServerPermit, hooks)
			for range 3 {
				hooks.Reject(t.Context(), full(hostA))
			}
			require.Len(t, book.take(t), 1)
			g.Close()
			got := book.take(t)
			require.Len(t, got, 1)
			assert.EqualValues(t, 2, got[0]["left_out"])
		})
	}
}

// A handler of logs that does what it must not.
type rudeHandler struct {
	slog.Handler
	handle func()
}

func (h rudeHandler) Handle(context.Context, slog.Record) error { h.handle(); return nil }

// One that blocks holds up the call that it is told of and no other; it may call back.
func TestALogThatBlocksHoldsUpNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *watertight.Guard
		stall := make(chan struct{})
		handled := 0
		hooks := metrics.New(metrics.WithLogger(slog.New(rudeHandler{slog.NewTextHandler(&bytes.Buffer{}, nil), func() {
			handled++
			g.Snapshot()
			g.Close()
			<-stall
		}})))
		g = newGuard(t, "version: 1\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}}]\n", hooks)
		req := &policy.Request{Side: policy.Server, Method: "GET", Host: "here", EscapedPath: "/", Route: "/", RouteKnown: true}
		inside, err := g.Admit(t.Context(), req)
		require.NoError(t, err)
		first := make(chan error)
		go func() {
			_, err := g.Admit(t.Context(), req)
			first <- err
		}()
		synctest.Wait()
		require.Equal(t, 1, handled)
		for range 100 {
			_, err := g.Admit(t.Context(), req)
			require.ErrorIs(t, err, bulkhead.ErrFull)
		}
		time.Sleep(35 * time.Second) // that of the count stalls too
		synctest.Wait()
		require.Equal(t, 2, handled)
		inside.Release()
		again, err := g.Admit(t.Context(), req)
		require.NoError(t, err)
		again.Release()
		close(stall)
		require.ErrorIs(t, <-first, bulkhead.ErrFull)
		time.Sleep(time.Minute)
	})
}

// One that panics when it is told a count takes nothing down.
func TestALogThatPanicsAtACountTakesNothingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		hooks := metrics.New(metrics.WithLogger(slog.New(rudeHandler{slog.NewTextHandler(&bytes.Buffer{}, nil), func() {
			if handled++; handled > 1 {
				panic("handler")
			}
		}})))
		for range 3 {
			hooks.Reject(t.Context(), full(hostA))
			hooks.Reject(t.Context(), full(hostA))
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		assert.Equal(t, 4, handled)
	})
}

// Written and left out is what happened, whatever happens at the same time.
func TestHammerLogs(t *testing.T) {
	var book logBook
	hooks := metrics.New(book.option(), metrics.WithoutSpans(), metrics.WithoutMetrics())
	g := newGuard(t, `
version: 1
policies: [{name: p, side: server, per: header:x, bulkhead: {maxConcurrent: 1}}]
`, hooks)
	var refused atomic.Uint64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				req := &policy.Request{Side: policy.Server, Method: "GET", Host: "here", EscapedPath: "/", Header: map[string][]string{"X": {fmt.Sprint(i % 3)}}}
				if c, err := g.Admit(t.Context(), req); err != nil {
					refused.Add(1)
				} else {
					_, err := g.Admit(t.Context(), req)
					require.Error(t, err)
					refused.Add(1)
					c.Release()
				}
			}
		})
	}
	wg.Wait()
	g.Close()
	assert.Equal(t, refused.Load(), written(t, book.take(t), "watertight: call refused", "watertight: more calls refused"))
}

func TestARefusalThatIsLeftOutAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var book logBook
	hooks := metrics.New(book.option(), metrics.WithoutSpans(), metrics.WithoutMetrics())
	e := full(hostA)
	hooks.Reject(t.Context(), e)
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() { hooks.Reject(ctx, e) }))
}

func BenchmarkRefusalLeftOut(b *testing.B) {
	hooks := metrics.New(metrics.WithLogger(slog.New(slog.DiscardHandler)), metrics.WithoutSpans(), metrics.WithoutMetrics())
	e := full(hostA)
	ctx := b.Context()
	hooks.Reject(ctx, e)
	b.ReportAllocs()
	for b.Loop() {
		hooks.Reject(ctx, e)
	}
}
