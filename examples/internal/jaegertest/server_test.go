package jaegertest_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/internal/program"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// A remote is a span of a caller who is not in Jaeger: it is only known by the
// header that came with the request.
type remote struct{ traceID, spanID string }

func newRemote() remote {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] |= 1              // no ID may be zero
	b[16] |= 1
	return remote{hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])}
}

// An answer is a response read to its end.
type answer struct {
	status int
	reason string // of a problem document
}

// call sends a request in the trace of from; none: without a trace. It may be
// called from any goroutine.
func call(t *testing.T, from remote, sampled bool, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if !assert.NoError(t, err) {
		return answer{}
	}
	if from.traceID != "" {
		flags := 0
		if sampled {
			flags = 1
		}
		r.Header.Set("Traceparent", fmt.Sprintf("00-%s-%s-%02x", from.traceID, from.spanID, flags))
	}
	resp, err := client.Do(r)
	if !assert.NoError(t, err) {
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	var problem struct{ Reason string }
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		assert.NoError(t, json.Unmarshal(body, &problem))
	}
	return answer{resp.StatusCode, problem.Reason}
}

// later does what call does, in another goroutine.
func later(t *testing.T, from remote, url string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- call(t, from, true, url) }()
	return c
}

// receive waits for a value that should come soon.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

var (
	ok      = answer{status: http.StatusOK}
	failed  = answer{status: http.StatusInternalServerError}
	full    = answer{http.StatusServiceUnavailable, "full"}
	refused = answer{http.StatusServiceUnavailable, "open"}
)

// requireIn returns the trace that a remote span is in, and checks that its
// one top is a child of that span.
func requireIn(t *testing.T, j *jaeger, from remote) *trace {
	t.Helper()
	var tr *trace
	var err error
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		tr, err = j.trace(from.traceID)
		require.NoError(c, err)
	}, patience, poll)
	require.Equal(t, from.traceID, tr.id)
	for _, top := range tr.tops() {
		require.Equal(t, from.spanID, top.parentID, "%s", tr)
	}
	return tr
}

// only returns the one span of that name.
func only(t *testing.T, tr *trace, name string) *span {
	t.Helper()
	spans := tr.named(name)
	require.Len(t, spans, 1, "%s", tr)
	return spans[0]
}

const serverPolicies = `
version: 1
policies:
  - name: narrow
    side: server
    match:
      - path: /upstream/{name}/{rest...}
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}
  - name: fragile
    side: server
    match:
      - route: /status/{code}
    breaker: {failureRate: 100, window: {calls: 2}, minCalls: 2, openFor: 1s, halfOpen: {calls: 1}}
`

// What happens to a request is in the trace that its caller began.
func TestServer(t *testing.T) {
	j := startJaeger(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(serverPolicies), 0o600))
	c := contractOf(t, file)

	arrived, opened := make(chan string, 10), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("Traceparent")
		<-opened
	}))
	defer upstream.Close()
	open := sync.OnceFunc(func() { close(opened) })
	defer open() // or the upstream would wait for its requests

	server := program.Start(t, nil, build(t, "server"), "-addr", "127.0.0.1:0", "-admin", "", "-policy", file, "-otlp", j.otlp, "-upstream", "gate="+upstream.URL)
	base := server.Says(t, `listening on (\S+)\n`)
	gate := base + "/upstream/gate/"

	held, queued, turnedAway := newRemote(), newRemote(), newRemote()
	first := later(t, held, gate)
	sent := receive(t, arrived)
	second := later(t, queued, gate)
	require.Eventually(t, func() bool { _, n := narrow(t, base); return n == 1 }, patience, poll)
	require.Equal(t, full, call(t, turnedAway, true, gate))
	opening := time.Now().Truncate(time.Microsecond) // as exactly as Jaeger tells
	open()
	require.Equal(t, ok, receive(t, first))
	require.Equal(t, ok, receive(t, second))

	harmless, fatal, tooLate := newRemote(), newRemote(), newRemote()
	require.Equal(t, failed, call(t, harmless, true, base+"/status/500"))
	require.Equal(t, failed, call(t, fatal, true, base+"/status/500"))
	require.Equal(t, refused, call(t, tooLate, true, base+"/status/200"))
	var probe remote
	require.Eventually(t, func() bool {
		probe = newRemote()
		return call(t, probe, true, base+"/status/200") == ok
	}, patience, poll, "the breaker should close")

	unsampled := newRemote()
	require.Equal(t, ok, call(t, unsampled, false, gate+"unsampled"))
	// The gateway passes an answer on while its handler still holds the permit.
	require.Eventually(t, func() bool { n, _ := narrow(t, base); return n == 0 }, patience, poll)
	require.Equal(t, ok, call(t, remote{}, false, gate+"untraced"))
	require.NoError(t, server.Stop()) // and sends what it has

	for _, tt := range []struct {
		name  string
		from  remote
		shape string
	}{
		{"held", held, "" +
			"GET /upstream/{name}/*\n" +
			"  bulkhead.grant\n" +
			"    HTTP GET\n"},
		{"queued", queued, "" +
			"GET /upstream/{name}/*\n" +
			"  bulkhead.wait\n" +
			"  bulkhead.grant\n" +
			"    HTTP GET\n"},
		{"turned away", turnedAway, "" +
			"GET /upstream/{name}/*\n" +
			"  bulkhead.reject\n"},
		{"harmless", harmless, "" +
			"GET /status/{code}\n"},
		{"fatal", fatal, "" +
			"GET /status/{code}\n" +
			"  breaker.trip\n"},
		{"too late", tooLate, "" +
			"GET /status/{code}\n" +
			"  breaker.reject\n"},
		{"probe", probe, "" +
			"GET /status/{code}\n" +
			"  breaker.half_open\n" +
			"  breaker.close\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := requireIn(t, j, tt.from)
			c.hold(t, tr)
			assert.Equal(t, tt.shape, tr.shape())
			assert.Equal(t, "server", tr.tops()[0].text("span.kind"))
		})
	}

	t.Run("figures", func(t *testing.T) {
		wait := only(t, requireIn(t, j, queued), "bulkhead.wait")
		assert.EqualValues(t, 1, wait.number("watertight.queue.position"))
		assert.Equal(t, "granted", wait.text("watertight.result"))
		// It queued before the gate was opened, and had nothing until then.
		assert.False(t, opening.Before(wait.start))
		assert.False(t, wait.end().Before(opening))

		reject := only(t, requireIn(t, j, turnedAway), "bulkhead.reject")
		assert.Equal(t, "full", reject.text("error.type"))
		assert.EqualValues(t, 1000, reject.number("watertight.retry_after_ms"))

		trip := only(t, requireIn(t, j, fatal), "breaker.trip")
		assert.Equal(t, "failure_rate", trip.text("watertight.breaker.cause"))
		assert.EqualValues(t, 100, trip.number("watertight.breaker.failure_rate"))
		assert.EqualValues(t, 2, trip.number("watertight.breaker.calls"))
		assert.EqualValues(t, 1000, trip.number("watertight.breaker.open_for_ms"))
		assert.Equal(t, "open", only(t, requireIn(t, j, tooLate), "breaker.reject").text("watertight.breaker.state"))
	})
	t.Run("sent to the upstream", func(t *testing.T) {
		wire := only(t, requireIn(t, j, held), "HTTP GET")
		assert.Equal(t, "00-"+held.traceID+"-"+wire.id+"-01", sent)
	})
	t.Run("not sampled", func(t *testing.T) {
		_, err := j.trace(unsampled.traceID)
		assert.ErrorContains(t, err, "not found")
	})
	t.Run("without a caller's span", func(t *testing.T) {
		traces, err := j.find(search{service: serverService, tags: map[string]string{"url.path": "/upstream/gate/untraced"}, limit: 10})
		require.NoError(t, err)
		require.Len(t, traces, 1)
		c.hold(t, traces[0])
		assert.Equal(t, "GET /upstream/{name}/*\n  bulkhead.grant\n    HTTP GET\n", traces[0].shape())
		assert.Empty(t, traces[0].tops()[0].parentID)
	})
}

// narrow returns how many calls are inside the one compartment of that policy,
// and how many queue for it.
func narrow(t *testing.T, base string) (inFlight int64, queued int) {
	resp, err := client.Get(base + "/debug/watertight.json")
	if !assert.NoError(t, err) {
		return -1, -1
	}
	defer resp.Body.Close()
	var s watertight.Snapshot
	assert.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	for _, c := range s.Compartments {
		if c.Policy == "narrow" && c.Bulkhead != nil {
			return c.InFlight, c.Bulkhead.Queued
		}
	}
	return -1, -1
}

// Without otelhttp outside, the caller's span is the one that the headers name,
// and what the handler does still hangs under its permit.
func TestMiddlewareAlone(t *testing.T) {
	j := startJaeger(t)
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "alone", OTLP: j.otlp})
	require.NoError(t, err)
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name: "narrow", Side: policy.Server, Bulkhead: &policy.Bulkhead{MaxConcurrent: 1},
	}}})
	require.NoError(t, err)
	wt := watertight.New(set, watertight.WithHooks(metrics.New(
		metrics.WithTracerProvider(tel.Provider()),
		metrics.WithPropagators(telemetry.Propagator()))))
	defer wt.Close()
	inside, leave := make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(middleware.New(wt)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, span := tel.Provider().Tracer("handler").Start(r.Context(), "handler")
		defer span.End()
		inside <- struct{}{}
		<-leave
	})))
	defer srv.Close()
	open := sync.OnceFunc(func() { close(leave) })
	defer open()

	granted, rejected := newRemote(), newRemote()
	first := later(t, granted, srv.URL)
	receive(t, inside)
	require.Equal(t, full, call(t, rejected, true, srv.URL))
	open()
	require.Equal(t, ok, receive(t, first))
	require.Equal(t, ok, call(t, remote{}, false, srv.URL))
	srv.Close() // the handlers have returned, and released what they had
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, tel.Shutdown(ctx))

	tr := requireIn(t, j, granted)
	assert.Equal(t, "bulkhead.grant\n  handler\n", tr.shape())
	tr = requireIn(t, j, rejected)
	assert.Equal(t, "bulkhead.reject\n", tr.shape())

	traces, err := j.find(search{service: "alone", operation: "handler", limit: 10})
	require.NoError(t, err)
	require.Len(t, traces, 2)
	for _, tr := range traces {
		assert.Equal(t, "bulkhead.grant\n  handler\n", tr.shape())
		if tr.id != granted.traceID {
			assert.Empty(t, tr.tops()[0].parentID, "nobody called from a trace")
		}
	}
}
