package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// E15, invariant 2: a dead context loses even if a permit is free.
func TestDeadContextIsNeverAdmitted(t *testing.T) {
	for name, limits := range map[string]string{
		"bulkhead":             "bulkhead: {maxConcurrent: 1}",
		"breaker":              "breaker: {minCalls: 1}",
		"bulkhead and breaker": "bulkhead: {maxConcurrent: 1, maxWait: 1s}, breaker: {minCalls: 1}",
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, "+limits+"}]}")
			var ran atomic.Int64
			h := middleware.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) }))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 1000 {
				w := do(h, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				requireRefused(t, w, 503, "canceled")
				require.Empty(t, w.Header().Values("Retry-After"))
			}
			assert.Zero(t, ran.Load())
			c := compartment(t, g, "all", "")
			assert.EqualValues(t, 1000, c.Left)
			assert.Zero(t, c.Granted)
			for why, n := range c.Rejected {
				assert.Zero(t, n, why)
			}
			assert.Equal(t, 200, get(h, "/").Code, "the next is admitted")
		})
	}
}

// E16: a refusal neither takes nor gives back a permit.
func TestRefusalsLeaveThePermitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - name: queue
    side: server
    match: [{path: /queue}]
    per: policy
    bulkhead: {maxConcurrent: 1, maxQueue: 10, maxWait: 1h}
  - name: all
    side: server
    per: policy
    bulkhead: {maxConcurrent: 1}
`)
		var inside, worst atomic.Int64
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			worst.Store(max(worst.Load(), inside.Add(1)))
			time.Sleep(time.Second)
			inside.Add(-1)
		})
		h := middleware.New(g)(slow)

		go get(h, "/")
		synctest.Wait()
		for range 100 {
			requireRefused(t, get(h, "/"), 503, "full")
			require.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 1, c.Granted)
		assert.EqualValues(t, 100, c.Rejected["full"])
		assert.Zero(t, c.InFlight)

		codes := make(chan int, 10)
		for range 10 {
			go func() { codes <- get(h, "/queue").Code }()
		}
		for range 10 {
			require.Equal(t, 200, <-codes)
			require.GreaterOrEqual(t, compartment(t, g, "queue", "").InFlight, int64(0))
		}
		assert.EqualValues(t, 1, worst.Load())
		synctest.Wait()
		assert.Zero(t, compartment(t, g, "queue", "").InFlight)
	})
}

// E22: what maxWait and maxQueue of zero mean.
func TestNoWaitAndNoQueueRefuseAtOnce(t *testing.T) {
	for name, bulkhead := range map[string]string{
		"no wait":            "{maxConcurrent: 1}",
		"no wait, one place": "{maxConcurrent: 1, maxWait: 0s}",
		"a wait, no place":   "{maxConcurrent: 1, maxQueue: 0, maxWait: 1s}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, "{version: 1, policies: [{name: all, side: server, bulkhead: "+bulkhead+"}]}")
				gate := newGate()
				h := middleware.New(g)(gate)
				held := gate.hold(h, "/")
				began := time.Now()
				requireRefused(t, get(h, "/"), 503, "full")
				assert.Zero(t, time.Since(began))
				close(gate.open)
				assert.Equal(t, 200, (<-held).Code)
			})
		})
	}
}

// E22: nonsense is found when the program starts, not at a request.
func TestNonsenseIsRefusedAtBuild(t *testing.T) {
	for _, limit := range []int{0, -1} {
		_, err := policy.New(policy.Config{Policies: []policy.Policy{{Name: "all", Bulkhead: &policy.Bulkhead{MaxConcurrent: limit}}}})
		require.Error(t, err)
	}
	assert.PanicsWithValue(t, "middleware: New needs a Guard, got nil; make one with watertight.New", func() { middleware.New(nil) })
	wrap := middleware.New(guard(t, "{version: 1, policies: [{name: all, bulkhead: {maxConcurrent: 1}}]}"))
	assert.PanicsWithValue(t, "middleware: the handler to wrap is nil", func() { wrap(nil) })
}

// E22: one middleware on two routers is one set of compartments; the same route
// of both is the same compartment.
func TestOneMiddlewareOnTwoRoutersSharesItsCompartments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, bulkhead: {maxConcurrent: 1}}]}")
		wrap := middleware.New(g)
		gate := newGate()
		first, second := http.NewServeMux(), http.NewServeMux()
		first.Handle("/a", gate)
		second.Handle("/a", ok)
		second.Handle("/b", ok)
		held := gate.hold(wrap(first), "/a")
		h := wrap(second)
		requireRefused(t, get(h, "/a"), 503, "full")
		assert.Equal(t, 200, get(h, "/b").Code)
		close(gate.open)
		<-held
	})
}

// E12: streams on an exempt route take nothing from the others, and nothing in a
// query makes a route exempt. E13: exempt requests are counted all the same.
func TestExemptRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies:
  - {name: streams, side: server, match: [{route: /events}], exempt: true}
  - {name: preflight, side: server, match: [{method: [OPTIONS]}], exempt: true}
  - {name: rest, side: server, per: policy, bulkhead: {maxConcurrent: 2, maxWait: 1s}}
`)
		gate := newGate()
		mux := http.NewServeMux()
		mux.Handle("GET /events", gate)
		mux.Handle("GET /stream", gate)
		mux.Handle("/plain", ok)
		h := middleware.New(g)(mux)

		for range 2 {
			gate.hold(h, "/events")
		}
		assert.EqualValues(t, 2, compartment(t, g, "streams", "").InFlight)
		assert.Equal(t, 200, get(h, "/plain").Code)

		for range 2 {
			gate.hold(h, "/stream")
		}
		began := time.Now()
		requireRefused(t, get(h, "/plain?watch=true"), 408, "wait_timeout")
		assert.Equal(t, time.Second, time.Since(began))
		gate.hold(h, "/events")
		assert.Equal(t, 200, do(h, httptest.NewRequest("OPTIONS", "/plain", nil)).Code)

		close(gate.open)
		synctest.Wait()
		for _, c := range g.Snapshot().Compartments {
			assert.Zero(t, c.InFlight, c.Policy)
		}
		assert.EqualValues(t, 3, compartment(t, g, "streams", "").Granted)
		assert.EqualValues(t, 1, compartment(t, g, "preflight", "").Granted)
	})
}

// E10 A: outside, an http.TimeoutHandler answers at its deadline, and the permit
// stays with the work.
func TestPermitFollowsTheWorkNotTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
		var inside, worst, ran atomic.Int64
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			ran.Add(1)
			worst.Store(max(worst.Load(), inside.Add(1)))
			time.Sleep(300 * time.Millisecond)
			inside.Add(-1)
		})
		h := http.TimeoutHandler(middleware.New(g)(slow), 50*time.Millisecond, "too slow")

		began := time.Now()
		w := get(h, "/")
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "too slow", w.Body.String())
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		time.Sleep(50 * time.Millisecond)
		assert.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)
		time.Sleep(199 * time.Millisecond)
		assert.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Zero(t, compartment(t, g, "all", "").InFlight)

		for range 20 {
			go get(h, "/")
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, worst.Load())
		assert.EqualValues(t, 2, ran.Load(), "of the twenty one got in; the others' time ran out in the queue")
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 19, c.Left)
		assert.Zero(t, c.InFlight)
	})
}

// E10 B: inside, the permit comes back at the deadline, as the doc says.
func TestTimeoutHandlerInsideGivesThePermitBackAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}")
		var ran atomic.Int64
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			ran.Add(1)
			time.Sleep(300 * time.Millisecond)
		})
		h := middleware.New(g)(http.TimeoutHandler(slow, 50*time.Millisecond, "too slow"))
		for range 3 {
			assert.Equal(t, 503, get(h, "/").Code)
			assert.Zero(t, compartment(t, g, "all", "").InFlight)
		}
		time.Sleep(time.Second)
		assert.EqualValues(t, 3, ran.Load())
	})
}
