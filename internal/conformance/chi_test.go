package conformance_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	_ "github.com/go-chi/chi/v5" // whose version go.mod names
)

// front lets chi's tests be served by routers that have our middleware in front of
// the middleware that they use themselves, or behind it, next to the routes, or both.
// It does not stand among what a test uses, since some look at that.
const front = `
package chi

import "net/http"

// Front is set by the tests' package outside of this one, which may import the
// adapter that imports this one.
var Front func(http.Handler) http.Handler

func fronted(here bool, h http.Handler) http.Handler {
	if Front == nil || !here {
		return h
	}
	return Front(h)
}
`

// install is the rest of the tests' package. The limits are generous, so that what
// differs is the way through them, and not an answer of theirs; that requests went
// that way, and that nothing is left of them, is a condition of passing.
const install = `
package PACKAGE

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/policy"
)

type derived struct{}

func TestMain(m *testing.M) {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "all",
		Side:     policy.Server,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 10000},
		BREAKER
	}}})
	if err != nil {
		panic(err)
	}
	var opts []watertight.Option
	if HOOKS {
		opts = append(opts, watertight.WithHooks(watertight.Hooks{
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
				return context.WithValue(ctx, derived{}, true)
			},
		}))
	}
	wt := watertight.New(set, opts...)
	chi.Front = watertightchi.Middleware(wt)

	code := m.Run()
	granted := uint64(0)
	for _, c := range wt.Snapshot().Compartments {
		granted += c.Granted
		for reason, n := range c.Rejected {
			if n > 0 {
				fmt.Println(n, "requests of", c.Key, "were refused:", reason)
				code = 1
			}
		}
		if c.InFlight != 0 {
			fmt.Println(c.InFlight, "requests of", c.Key, "are still in flight")
			code = 1
		}
	}
	if granted == 0 {
		fmt.Println("no request came to the middleware")
		code = 1
	}
	os.Exit(code)
}
`

// chi's own tests pass as they do without us, with permits alone, and with all that
// the middleware can put in the way: a writer of its own for a breaker, a request
// that is a copy since a hook added to its context and since it is met twice.
func TestChi(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs the tests of chi, which take half a minute and are programs of their own")
	}
	const module = "github.com/go-chi/chi/v5"
	packages := []string{".", "./middleware"}
	// One test wants a port of its own and hopes that it is open after 100 ms. Its
	// copies run at once, on a machine that is busy with them.
	sources := func(t *testing.T) *suite {
		s := checkout(t, module)
		s.patch(t, "middleware/middleware_test.go", `	"io"
`, `	"io"
	"net"
`)
		s.patch(t, "middleware/middleware_test.go", `	go server.ListenAndServeTLS(testdataDir+"/cert.pem", testdataDir+"/key.pem")
`, `	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.ServeTLS(l, testdataDir+"/cert.pem", testdataDir+"/key.pem")
`)
		s.patch(t, "middleware/middleware_test.go", `client.Get("https://localhost:7072")`, `client.Get("https://" + l.Addr().String())`)
		return s
	}
	patched := func(t *testing.T, breaker, hooks, before, behind string) *suite {
		s := sources(t)
		s.add(t, "front.go", front)
		s.patch(t, "mux.go", "mx.handler = chain(mx.middlewares, http.HandlerFunc(mx.routeHTTP))",
			"mx.handler = fronted("+before+", chain(mx.middlewares, fronted("+behind+", http.HandlerFunc(mx.routeHTTP))))")
		fill := strings.NewReplacer("BREAKER", breaker, "HOOKS", hooks)
		s.add(t, "front_test.go", strings.Replace(fill.Replace(install), "PACKAGE", "chi_test", 1))
		s.add(t, "middleware/front_test.go", strings.Replace(fill.Replace(install), "PACKAGE", "middleware_test", 1))
		return s
	}

	// They mostly sleep, so they run beside each other.
	var wg sync.WaitGroup
	var without, permits, all results
	var saidPermits, saidAll map[string]string
	plain := sources(t)
	onlyPermits := patched(t, "", "false", "false", "true")
	everything := patched(t, "Breaker: &policy.Breaker{FailureRate: 100, MinCalls: 1_000_000, Window: policy.Window{Calls: 1_000_000}},", "true", "true", "true")
	wg.Go(func() { without, _ = plain.run(t, packages...) })
	wg.Go(func() { permits, saidPermits = onlyPermits.run(t, packages...) })
	wg.Go(func() { all, saidAll = everything.run(t, packages...) })
	wg.Wait()

	assert.Greater(t, len(without), 100, "the suite is there")
	assert.Empty(t, differences(without, permits, saidPermits, nil), "with permits")
	assert.Empty(t, differences(without, all, saidAll, nil), "with a breaker and hooks")
}
