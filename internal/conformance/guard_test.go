package conformance_test

import (
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// A way is how much the library puts in the way of a request.
type way struct {
	name   string
	limits string
	opts   []watertight.Option
}

type derived struct{}

// ways are the three ways through: untouched; with a writer of its own, for the
// breaker; with that and a copied request, for a hook.
var ways = []way{
	{"permits", "bulkhead: {maxConcurrent: 1}", nil},
	{"breaker", "bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 100}", nil},
	{"breaker and hooks", "bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 100}", []watertight.Option{
		watertight.WithHooks(watertight.Hooks{Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
			return context.WithValue(ctx, derived{}, true)
		}}),
	}},
}

// guard makes a Guard with one permit on each side, and in each way.
func (w way) guard(t testing.TB) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte("{version: 1, policies: [{name: all, per: policy, "+w.limits+"}]}"))
	require.NoError(t, err)
	return watertight.New(set, w.opts...)
}

// compartment returns that of one side.
func compartment(g *watertight.Guard, side policy.Side) watertight.CompartmentSnapshot {
	for _, c := range g.Snapshot().Compartments {
		if c.Policy == "all" && c.Side == side.String() {
			return c
		}
	}
	return watertight.CompartmentSnapshot{}
}

// requireRest fails unless all that came has gone, at last: a reverse proxy closes
// an upgraded connection on a goroutine of its own.
func requireRest(t testing.TB, g *watertight.Guard) {
	t.Helper()
	ctx := bounded(t)
	for {
		var inside []string
		for _, c := range g.Snapshot().Compartments {
			if c.InFlight != 0 || c.Bulkhead != nil && c.Bulkhead.Queued != 0 {
				inside = append(inside, c.Policy+" "+c.Side)
			}
			require.Zero(t, c.Leaked, "%s %s", c.Policy, c.Side)
		}
		if len(inside) == 0 {
			return
		}
		require.NoError(t, ctx.Err(), "still in flight: %v", inside)
		runtime.Gosched()
	}
}

// A server tells, request by request, when its handler has returned.
type server struct {
	*httptest.Server
	returned chan struct{}
}

func serve(t testing.TB, h http.Handler, how func(*httptest.Server)) *server {
	t.Helper()
	s := &server{returned: make(chan struct{}, 100)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.returned <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(failing{t}, "", 0)
	how(s.Server)
	t.Cleanup(s.Close)
	return s
}

// failing makes what a server logs a failure.
type failing struct{ t testing.TB }

func (f failing) Write(p []byte) (int, error) {
	f.t.Errorf("logged: %s", p)
	return len(p), nil
}
