package jaegertest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const everyPolicy = `
version: 1
policies:
  - {name: queue, side: server, match: [{path: /queue}], per: policy, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 50ms}}
  - {name: trial, side: server, mode: observe, match: [{path: /trial}], per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 1h}}
  - {name: failing, side: client, match: [{host: failing.internal}], bulkhead: {maxConcurrent: 9}, breaker: {minCalls: 2, openFor: 50ms, halfOpen: {calls: 1}}}
  - {name: slow, side: client, match: [{host: slow.internal}], breaker: {minCalls: 2, slowCall: 1ms, slowCallRate: 100}}
  - {name: hanging, side: client, match: [{host: hanging.internal}], bulkhead: {maxConcurrent: 2}, breaker: {slowCall: 20ms}}
  - {name: late, side: client, match: [{host: late.internal}], breaker: {minCalls: 1, openFor: 1ms, halfOpen: {calls: 2, maxWait: 1ms}}}
  - {name: dropped, side: client, match: [{host: dropped.internal}], bulkhead: {maxConcurrent: 1}}
  - {name: db, side: client, match: [{method: [DO]}], bulkhead: {maxConcurrent: 1}}
`

// A stage is where everything happens that there is a span for: each scene in a trace of
// its own, under a span of the program.
type stage struct {
	*testing.T
	tracer oteltrace.Tracer
	guard  *watertight.Guard
	traces map[string]string // IDs by scene
}

func (s *stage) scene(name string, play func(ctx context.Context)) {
	s.Helper()
	ctx, span := s.tracer.Start(s.Context(), "caller")
	defer span.End()
	s.traces[name] = span.SpanContext().TraceID().String()
	play(ctx)
}

func (s *stage) admit(ctx context.Context, r *policy.Request) *watertight.Call {
	s.Helper()
	c, err := s.guard.Admit(ctx, r)
	require.NoError(s, err)
	return &c
}

func (s *stage) refused(ctx context.Context, r *policy.Request, want error) {
	s.Helper()
	_, err := s.guard.Admit(ctx, r)
	require.ErrorIs(s, err, want)
}

// answered makes a call that is answered with that status.
func (s *stage) answered(ctx context.Context, r *policy.Request, status int) {
	s.Helper()
	c := s.admit(ctx, r)
	c.SettleStatus(status)
	c.Release()
}

// soon waits for a state that nothing announces.
func (s *stage) soon(ok func() bool) {
	s.Helper()
	require.Eventually(s, ok, patience, poll)
}

func at(path string) *policy.Request {
	return &policy.Request{Side: policy.Server, Method: http.MethodGet, Host: "here", Path: path, EscapedPath: path}
}

func host(name string) *policy.Request {
	return &policy.Request{Side: policy.Client, Method: http.MethodGet, Scheme: "http", Host: name + ".internal", EscapedPath: "/"}
}

// play has everything happen.
func (s *stage) play() {
	queue := at("/queue")
	s.scene("held", func(ctx context.Context) {
		held := s.admit(ctx, queue)
		s.scene("waited too long", func(ctx context.Context) { s.refused(ctx, queue, bulkhead.ErrWaitTimeout) })
		queued := make(chan struct{})
		s.scene("queued", func(ctx context.Context) {
			go func() {
				defer close(queued)
				if c, err := s.guard.Admit(ctx, queue); assert.NoError(s, err) {
					c.Release()
				}
			}()
			s.soon(func() bool {
				return slices.ContainsFunc(s.guard.Snapshot().Compartments, func(c watertight.CompartmentSnapshot) bool {
					return c.Policy == "queue" && c.Bulkhead.Queued == 1
				})
			})
			s.scene("turned away", func(ctx context.Context) { s.refused(ctx, queue, bulkhead.ErrFull) })
			held.Release()
			<-queued
		})
	})

	s.scene("on trial", func(ctx context.Context) {
		outer := s.admit(ctx, at("/trial"))
		inner := s.admit(ctx, at("/trial"))
		inner.Release()
		outer.SettleStatus(500)
		outer.Release()
		s.answered(ctx, at("/trial"), 200)
	})

	failing := host("failing")
	s.scene("the first to fail", func(ctx context.Context) { s.answered(ctx, failing, 500) })
	s.scene("the last to fail", func(ctx context.Context) { s.answered(ctx, failing, 503) })
	s.scene("too late", func(ctx context.Context) { s.refused(ctx, failing, breaker.ErrOpen) })
	s.soon(func() bool {
		for _, c := range s.guard.Snapshot().Compartments {
			if c.Policy == "failing" {
				return c.Breaker.OpenRemainingMs == 0
			}
		}
		return false
	})
	s.scene("probe", func(ctx context.Context) {
		probe := s.admit(ctx, failing)
		s.scene("no probe left", func(ctx context.Context) { s.refused(ctx, failing, breaker.ErrOpen) })
		probe.SettleStatus(200)
		probe.Release()
	})

	slow := func(ctx context.Context) {
		c := s.admit(ctx, host("slow"))
		for begun := time.Now(); time.Since(begun) <= time.Millisecond; {
			runtime.Gosched()
		}
		c.SettleStatus(200)
		c.Release()
	}
	s.scene("slow", slow)
	s.scene("slow again", slow)

	s.scene("hanging", func(ctx context.Context) {
		for range 2 {
			defer s.admit(ctx, host("hanging")).Release()
		}
		s.scene("saw it", func(ctx context.Context) {
			s.soon(func() bool {
				c, err := s.guard.Admit(ctx, host("hanging"))
				c.Release()
				return errors.Is(err, breaker.ErrOpen)
			})
		})
	})

	s.scene("late", func(ctx context.Context) {
		s.answered(ctx, host("late"), 500)
		s.soon(func() bool {
			c, err := s.guard.Admit(ctx, host("late")) // the only probe of two
			c.Release()
			return err == nil
		})
		// Half-open is over long before anybody looks.
		begun := time.Now()
		s.soon(func() bool { return time.Since(begun) > 10*time.Millisecond })
		c, _ := s.guard.Admit(ctx, host("late"))
		c.Release()
	})

	s.scene("dropped", func(ctx context.Context) {
		rt := transport.New(base(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(strings.NewReader("x"))}, nil
		}), s.guard)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://dropped.internal/", nil)
		require.NoError(s, err)
		_, err = rt.RoundTrip(r)
		require.NoError(s, err)
		s.soon(func() bool {
			runtime.GC()
			return slices.ContainsFunc(s.guard.Snapshot().Compartments, func(c watertight.CompartmentSnapshot) bool { return c.Leaked == 1 })
		})
	})

	s.scene("Do", func(ctx context.Context) {
		require.NoError(s, s.guard.Do(ctx, "db", func(ctx context.Context) error {
			_, span := s.tracer.Start(ctx, "query")
			span.End()
			return nil
		}))
	})
	pool, err := s.guard.Pool("workers", bulkhead.PoolConfig{Max: 1})
	require.NoError(s, err)
	s.scene("pool", func(ctx context.Context) {
		require.NoError(s, pool.Do(ctx, func(ctx context.Context) error {
			_, span := s.tracer.Start(ctx, "task")
			span.End()
			return nil
		}))
	})

	require.NoError(s, s.guard.Drain(s.Context()))
	s.scene("draining", func(ctx context.Context) {
		s.refused(ctx, queue, bulkhead.ErrClosed)
		require.ErrorIs(s, pool.Do(ctx, func(context.Context) error { return nil }), bulkhead.ErrClosed)
	})
}

type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// shapes are the traces of the scenes.
var shapes = map[string]string{
	"held":              "caller\n  bulkhead.grant\n",
	"waited too long":   "caller\n  bulkhead.wait\n  bulkhead.reject\n",
	"queued":            "caller\n  bulkhead.wait\n  bulkhead.grant\n",
	"turned away":       "caller\n  bulkhead.reject\n",
	"the first to fail": "caller\n  bulkhead.grant\n",
	"the last to fail":  "caller\n  bulkhead.grant\n  breaker.trip\n",
	"too late":          "caller\n  breaker.reject\n",
	"probe":             "caller\n  breaker.half_open\n  bulkhead.grant\n  breaker.close\n",
	"no probe left":     "caller\n  breaker.reject\n",
	"slow":              "caller\n",
	"slow again":        "caller\n  breaker.trip\n",
	"hanging":           "caller\n  bulkhead.grant\n  bulkhead.grant\n",
	"dropped":           "caller\n  bulkhead.grant\n",
	"Do":                "caller\n  bulkhead.grant\n    query\n",
	"pool":              "caller\n  bulkhead.grant\n    task\n",
	"draining":          "caller\n  bulkhead.reject\n  bulkhead.reject\n",
}

// A sighting is of which type an attribute was, and on which spans.
type sighting struct{ kind, on string }

// everyAttribute is what the package metrics promises, as Jaeger has it.
var everyAttribute = map[string]sighting{
	"watertight.policy":                 {"string", "breaker.close breaker.half_open breaker.reject breaker.trip bulkhead.grant bulkhead.reject bulkhead.wait"},
	"watertight.side":                   {"string", "breaker.close breaker.half_open breaker.reject breaker.trip bulkhead.grant bulkhead.reject bulkhead.wait"},
	"watertight.key":                    {"string", "breaker.close breaker.half_open breaker.reject breaker.trip bulkhead.grant bulkhead.reject bulkhead.wait"},
	"watertight.queue.position":         {"int64", "bulkhead.wait"},
	"watertight.result":                 {"string", "bulkhead.wait"},
	"watertight.waited_ms":              {"float64", "bulkhead.grant"},
	"watertight.limit":                  {"int64", "bulkhead.grant bulkhead.reject"},
	"watertight.in_flight":              {"int64", "bulkhead.grant bulkhead.reject"},
	"watertight.queued":                 {"int64", "bulkhead.reject"},
	"watertight.mode":                   {"string", "breaker.reject breaker.trip bulkhead.reject"},
	"watertight.leaked":                 {"bool", "bulkhead.grant"},
	"watertight.reason":                 {"string", "breaker.reject bulkhead.reject"},
	"watertight.retry_after_ms":         {"float64", "breaker.reject bulkhead.reject"},
	"watertight.breaker.state":          {"string", "breaker.reject"},
	"watertight.breaker.from":           {"string", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.to":             {"string", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.cause":          {"string", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.failure_rate":   {"float64", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.slow_call_rate": {"float64", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.calls":          {"int64", "breaker.close breaker.half_open breaker.trip"},
	"watertight.breaker.overdue":        {"int64", "breaker.trip"},
	"watertight.breaker.responded":      {"int64", "breaker.trip"},
	"watertight.breaker.open_for_ms":    {"float64", "breaker.trip"},
	"watertight.breaker.late_ms":        {"float64", "breaker.trip"},
	"error.type":                        {"string", "breaker.reject bulkhead.reject"},
	"watertight.link.outcome":           {"string", "breaker.trip"},
	"watertight.link.took_ms":           {"float64", "breaker.trip"},
}

// An attribute that nobody has seen in Jaeger may as well not be there.
func TestEveryAttributeIsLookedFor(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "metrics", "attributes.go"))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`attribute\.Key\("([^"]+)"\)`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	var looked []string
	for name := range everyAttribute {
		looked = append(looked, name)
	}
	assert.ElementsMatch(t, names, looked)
	var spans []string
	for _, m := range regexp.MustCompile(`Span += +"([^"]+)"|Span = "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		spans = append(spans, m[1]+m[2])
	}
	assert.ElementsMatch(t, kinds, spans)
}

// Every span, with every attribute and every link, as it comes out of Jaeger.
func TestEverything(t *testing.T) {
	j := startJaeger(t)
	tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "everything", OTLP: j.otlp})
	require.NoError(t, err)
	set, err := policy.Parse("everything.yaml", []byte(everyPolicy))
	require.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	s := &stage{T: t, tracer: tel.Provider().Tracer("program"), traces: map[string]string{}}
	s.guard = watertight.New(set, watertight.WithLogger(quiet), watertight.WithHooks(metrics.New(
		metrics.WithTracerProvider(tel.Provider()), metrics.WithLogger(quiet))))
	defer s.guard.Close()
	s.play()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, tel.Shutdown(ctx))

	traces := map[string]*trace{}
	for name, id := range s.traces {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			tr, err := j.trace(id)
			require.NoError(c, err)
			traces[name] = tr
		}, patience, poll)
	}
	assert.ElementsMatch(t, append([]string{"caller", "query", "task"}, kinds...), j.operations(t, "everything"))

	for name, tr := range traces {
		t.Run(name, func(t *testing.T) {
			if shape, ok := shapes[name]; ok {
				assert.Equal(t, shape, tr.shape())
			}
			for _, sp := range tr.where(func(sp *span) bool { return sp.text("otel.scope.name") == metrics.ScopeName }) {
				require.NotNil(t, tr.parent(sp), "%s has no parent", sp.name)
				assert.Equal(t, "caller", tr.parent(sp).name)
				assert.Equal(t, "internal", sp.text("span.kind"))
				refused := strings.HasSuffix(sp.name, ".reject") && sp.text("watertight.mode") == ""
				assert.Equal(t, refused, sp.tags["error"] == true, "%s is an error", sp.name)
				if refused {
					assert.Equal(t, "ERROR", sp.text("otel.status_code"))
					assert.Equal(t, sp.text("watertight.reason"), sp.text("error.type"))
				}
				if sp.name != "breaker.trip" {
					assert.Empty(t, sp.links)
				}
			}
		})
	}

	t.Run("attributes", func(t *testing.T) { attributes(t, j, traces) })
	t.Run("links", func(t *testing.T) { links(t, j, traces) })
	t.Run("figures", func(t *testing.T) {
		assert.Equal(t, true, only(t, traces["dropped"], "bulkhead.grant").tags["watertight.leaked"])
		assert.Equal(t, "workers", only(t, traces["pool"], "bulkhead.grant").text("watertight.policy"))
		assert.Equal(t, "db", only(t, traces["Do"], "bulkhead.grant").text("watertight.policy"))
		assert.Equal(t, "wait_timeout", only(t, traces["waited too long"], "bulkhead.reject").text("error.type"))
		assert.Equal(t, "half_open", only(t, traces["no probe left"], "breaker.reject").text("watertight.breaker.state"))
		assert.Equal(t, "slow_call_rate", only(t, traces["slow again"], "breaker.trip").text("watertight.breaker.cause"))
		assert.Equal(t, "overdue", only(t, traces["saw it"], "breaker.trip").text("watertight.breaker.cause"))
		assert.EqualValues(t, 2, only(t, traces["saw it"], "breaker.trip").number("watertight.breaker.overdue"))
		assert.Equal(t, "observe", only(t, traces["on trial"], "breaker.trip").text("watertight.mode"))
		assert.Len(t, traces["on trial"].named("bulkhead.reject"), 1)
		assert.Len(t, traces["on trial"].named("breaker.reject"), 1)
		for _, sp := range traces["draining"].named("bulkhead.reject") {
			assert.Equal(t, "draining", sp.text("error.type"))
		}
		found, err := j.find(search{service: "everything", tags: map[string]string{"watertight.breaker.cause": "half_open_elapsed"}, limit: 10})
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(found, func(tr *trace) bool { return tr.id == traces["late"].id }))
	})
}

// attributes checks that each attribute is where it should be, and only there.
func attributes(t *testing.T, j *jaeger, traces map[string]*trace) {
	on, kind := map[string]map[string]bool{}, map[string]string{}
	see := func(name, typ, span string) {
		if kind[name] != "" {
			assert.Equal(t, kind[name], typ, "%s has one type", name)
		}
		if on[name] == nil {
			on[name] = map[string]bool{}
		}
		kind[name], on[name][span] = typ, true
	}
	for _, tr := range traces {
		for _, sp := range tr.where(func(sp *span) bool { return sp.text("otel.scope.name") == metrics.ScopeName }) {
			for name, typ := range sp.types {
				if strings.HasPrefix(name, "watertight.") || name == "error.type" {
					see(name, typ, sp.name)
				}
			}
			for _, l := range j.linkAttributes(t, tr.id, sp.id) {
				for _, a := range l {
					typ := "string"
					if a.Value.DoubleValue != nil {
						typ = "float64"
					}
					see(a.Key, typ, sp.name)
				}
			}
		}
	}
	seen := map[string]sighting{}
	for name, spans := range on {
		var names []string
		for span := range spans {
			names = append(names, span)
		}
		slices.Sort(names)
		seen[name] = sighting{kind[name], strings.Join(names, " ")}
	}
	assert.Equal(t, everyAttribute, seen)
}

// links checks where the links of the trips lead, and what they say.
func links(t *testing.T, j *jaeger, traces map[string]*trace) {
	ref := func(scene string, sp *span) spanRef { return spanRef{traces[scene].id, sp.id} }
	outcomes := func(scene string) (all []string) {
		trip := only(t, traces[scene], "breaker.trip")
		for _, l := range j.linkAttributes(t, traces[scene].id, trip.id) {
			for _, a := range l {
				if a.Key == "watertight.link.outcome" {
					all = append(all, *a.Value.StringValue)
				}
			}
		}
		return all
	}

	assert.Equal(t, []spanRef{
		ref("the first to fail", only(t, traces["the first to fail"], "bulkhead.grant")),
		ref("the last to fail", only(t, traces["the last to fail"], "bulkhead.grant")),
	}, only(t, traces["the last to fail"], "breaker.trip").links)
	assert.Equal(t, []string{"failed", "failed"}, outcomes("the last to fail"))

	// Only a breaker watches these, so that their callers stand for them; and that of
	// the last is the trip's parent, which Jaeger would lose by a link to it.
	assert.Equal(t, []spanRef{ref("slow", only(t, traces["slow"], "caller"))}, only(t, traces["slow again"], "breaker.trip").links)
	assert.Equal(t, []string{"slow"}, outcomes("slow again"))

	var hanging []spanRef
	for _, sp := range traces["hanging"].named("bulkhead.grant") {
		hanging = append(hanging, ref("hanging", sp))
	}
	assert.ElementsMatch(t, hanging, only(t, traces["saw it"], "breaker.trip").links)
	assert.Equal(t, []string{"overdue", "overdue"}, outcomes("saw it"))
}
