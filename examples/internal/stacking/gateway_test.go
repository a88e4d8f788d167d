package stacking_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

const onePermit = "  - {name: one, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1m}}\n"

// One trace leads from the program through a gateway, with a middleware and a transport
// of one Guard, to the innermost upstream; and every span in it has the parent that it
// should have.
func TestGateway(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			r := newRig(t)
			var tenant, traceparent []string
			upstream := http.NewServeMux()
			upstream.HandleFunc("GET /up", func(w http.ResponseWriter, req *http.Request) {
				assert.Equal(t, version, req.ProtoMajor)
				traceparent = req.Header.Values("Traceparent")
				tenant = append(req.Header.Values("Baggage"), baggage.FromContext(req.Context()).Member("tenant").Value())
				r.work(w, req)
			})
			up := r.serve(r.traced(middleware.New(r.guard(onePermit))(upstream)))

			wt := r.guard(onePermit)
			through := transport.New(r.tracedBy(r.wire(version)), wt)
			gateway := http.NewServeMux()
			gateway.HandleFunc("GET /gate", func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(r.getIn(req.Context(), through, up+"/up"))
			})
			gate := r.serve(r.traced(middleware.New(wt)(gateway)))

			member, err := baggage.NewMember("tenant", "blue")
			require.NoError(t, err)
			bag, err := baggage.New(member)
			require.NoError(t, err)
			ctx, span := r.begin(baggage.ContextWithBaggage(t.Context(), bag), "program")
			client := transport.New(r.tracedBy(r.wire(version)), r.guard(onePermit))
			assert.Equal(t, http.StatusOK, r.getIn(ctx, client, gate+"/gate"))
			span.End()

			assert.Equal(t, ""+
				"program\n"+
				"  bulkhead.grant (client)\n"+
				"    HTTP GET\n"+
				"      GET /gate\n"+
				"        bulkhead.grant (server)\n"+
				"          bulkhead.grant (client)\n"+
				"            HTTP GET\n"+
				"              GET /up\n"+
				"                bulkhead.grant (server)\n"+
				"                  work\n", r.tree())
			assert.Equal(t, []string{"tenant=blue", "blue"}, tenant)
			assert.Len(t, traceparent, 1)
		})
	}
}

// Where a server has no otelhttp, the middleware finds the caller in the headers. Where
// a client has none, nothing is sent, and the trace ends there.
func TestWithoutOtelhttp(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			r := newRig(t)
			url := r.serve(middleware.New(r.guard(onePermit))(http.HandlerFunc(r.work)))
			r.get(transport.New(r.tracedBy(r.wire(version)), r.guard(onePermit)), url)
			assert.Equal(t, ""+
				"program\n"+
				"  bulkhead.grant (client)\n"+
				"    HTTP GET\n"+
				"      bulkhead.grant (server)\n"+
				"        work\n", r.tree())
		})
	}
	t.Run("nor in the client", func(t *testing.T) {
		r := newRig(t)
		url := r.serve(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			assert.Empty(t, req.Header.Values("Traceparent"))
		}))
		r.get(transport.New(r.wire(1), r.guard(onePermit)), url)
		assert.Equal(t, "program\n  bulkhead.grant (client)\n", r.tree())
	})
}

// A refusal by the upstream's server reaches the program as an answer, one by the
// gateway's own transport as an error within.
func TestRefusalsAlongTheWay(t *testing.T) {
	const none = "  - {name: none, side: client, breaker: {minCalls: 1, force: open}}\n"
	r := newRig(t)
	wt := r.guard(none)
	through := transport.New(r.tracedBy(r.wire(1)), wt)
	gate := r.serve(r.traced(middleware.New(wt)(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Zero(t, r.getIn(req.Context(), through, "http://127.0.0.1:1/"))
		w.WriteHeader(http.StatusBadGateway)
	}))))
	assert.Equal(t, http.StatusBadGateway, r.get(r.tracedBy(r.wire(1)), gate))
	assert.Equal(t, ""+
		"program\n"+
		"  HTTP GET !\n"+
		"    GET !\n"+
		"      breaker.reject (client) !\n", r.tree())
}

// A call that queued has a wait beside its permit, on either side.
func TestQueued(t *testing.T) {
	r := newRig(t)
	g := r.gate()
	wt := r.guard(onePermit)
	client := transport.New(r.tracedBy(r.wire(1)), wt)
	url := r.serve(g)
	ctx, span := r.begin(t.Context(), "program")
	done := make(chan int, 2)
	go func() { done <- r.getIn(ctx, client, url) }()
	<-g.arrived
	go func() { done <- r.getIn(ctx, client, url) }()
	r.queued(wt, 1)
	g.open()
	<-done
	<-done
	span.End()
	assert.Equal(t, ""+
		"program\n"+
		"  bulkhead.grant (client)\n"+
		"    HTTP GET\n"+
		"  bulkhead.wait (client)\n"+
		"  bulkhead.grant (client)\n"+
		"    HTTP GET\n", r.tree())
}

// A redirect is a call of its own, with a permit of its own. Both are children of the
// one who asked.
func TestRedirects(t *testing.T) {
	r := newRig(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /from", func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/to", http.StatusFound) })
	mux.HandleFunc("GET /to", r.work)
	url := r.serve(r.traced(mux))
	assert.Equal(t, http.StatusOK, r.get(transport.New(r.tracedBy(r.wire(1)), r.guard(onePermit)), url+"/from"))
	assert.Equal(t, ""+
		"program\n"+
		"  bulkhead.grant (client)\n"+
		"    HTTP GET\n"+
		"      GET /from\n"+
		"  bulkhead.grant (client)\n"+
		"    HTTP GET\n"+
		"      GET /to\n"+
		"        work\n", r.tree())
}

// A pool's task runs under its permit, and so do the calls that it makes; as does what Do
// calls.
func TestPoolsAndDo(t *testing.T) {
	r := newRig(t)
	url := r.serve(r.traced(http.HandlerFunc(r.work)))
	wt := r.guard("  - {name: db, side: client, match: [{method: [DO]}], bulkhead: {maxConcurrent: 1}}\n" + onePermit)
	pool, err := wt.Pool("workers", bulkhead.PoolConfig{Max: 1})
	require.NoError(t, err)
	client := transport.New(r.tracedBy(r.wire(1)), wt)
	ctx, span := r.begin(t.Context(), "program")
	require.NoError(t, pool.Do(ctx, r.task(wt, client, url)))
	require.NoError(t, wt.Drain(t.Context()))
	span.End()
	assert.Equal(t, ""+
		"program\n"+
		"  bulkhead.grant (client)\n"+ // the worker
		"    bulkhead.grant (client)\n"+ // of Do
		"      query\n"+
		"    bulkhead.grant (client)\n"+
		"      HTTP GET\n"+
		"        GET\n"+
		"          work\n", r.tree())
}

// resty retries under one program's span, and gives up at once when refused.
func TestRestyAttempts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stack func(r *rig, wt *watertight.Guard) *resty.Client
		tree  string
	}{
		{"otelhttp beneath", func(r *rig, wt *watertight.Guard) *resty.Client {
			c := resty.New().SetTransport(r.tracedBy(r.wire(1)))
			return watertightresty.Configure(c, wt)
		}, "" +
			"program\n" +
			"  bulkhead.grant (client)\n" +
			"    HTTP GET !\n" +
			"  bulkhead.grant (client)\n" +
			"    HTTP GET !\n" +
			"  breaker.trip (client)\n" +
			"  breaker.reject (client) !\n"},
		{"otelhttp above", func(r *rig, wt *watertight.Guard) *resty.Client {
			c := watertightresty.Configure(resty.New().SetTransport(r.wire(1)), wt)
			return c.SetTransport(r.tracedBy(c.GetClient().Transport))
		}, "" +
			"program\n" +
			"  HTTP GET !\n" +
			"    bulkhead.grant (client)\n" +
			"  HTTP GET !\n" +
			"    bulkhead.grant (client)\n" +
			"    breaker.trip (client)\n" +
			"  HTTP GET !\n" +
			"    breaker.reject (client) !\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			url := r.serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
			client := tt.stack(r, r.guard("  - {name: up, side: client, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 2}}\n"))
			client.SetRetryCount(5).SetRetryWaitTime(1).SetRetryMaxWaitTime(1).SetLogger(silent{})
			client.AddRetryCondition(func(resp *resty.Response, err error) bool { return err != nil || resp.IsError() })
			ctx, span := r.begin(t.Context(), "program")
			_, err := client.R().SetContext(ctx).Get(url)
			require.Error(t, err)
			span.End()
			assert.Equal(t, tt.tree, r.tree())
		})
	}
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
