package conformance_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// between lets every server and every client of net/http go through a Guard. There is
// one middleware for all servers, since two would have the Guard mark each request.
const between = `
package http

import "net"

// FrontHandler and FrontTransport are set by the tests' package outside of this one,
// which may import what imports this one.
var (
	FrontHandler   Handler
	FrontTransport func(RoundTripper) RoundTripper
)

// Behind is what FrontHandler wraps: whatever the server of a request serves.
var Behind Handler = HandlerFunc(func(w ResponseWriter, r *Request) {
	serverHandler{r.Context().Value(ServerContextKey).(*Server)}.serve(w, r)
})

// fronted tells of what is left alone: handlers that a test calls without a server, and
// connections that a test makes of buffers. These have ended before their requests are
// read, so that it is chance whether a client that has left comes to the handler.
func fronted(r *Request) bool {
	_, known := r.Context().Value(ServerContextKey).(*Server)
	addr, _ := r.Context().Value(LocalAddrContextKey).(net.Addr)
	return FrontHandler != nil && known && addr != nil && addr.Network() != "local-addr"
}

type bareTransport struct{ *Transport }

func (t bareTransport) RoundTrip(r *Request) (*Response, error) { return t.roundTrip(r) }
`

// installBetween is the rest of the tests' package. What the Guard has counted is said at
// the end. Some tests never close what they get: that is found by the garbage collector.
const installBetween = `
package PACKAGE_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

type derived struct{}

func runFronted(m *testing.M) int {
	p := policy.Policy{Name: "all", Per: policy.PerPolicy, Bulkhead: &policy.Bulkhead{MaxConcurrent: 100_000}}
	var opts []watertight.Option
	switch os.Getenv("WATERTIGHT_FRONT") {
	case "":
		return m.Run()
	case "everything":
		p.Breaker = &policy.Breaker{FailureRate: 100, MinCalls: 1_000_000, Window: policy.Window{Calls: 1_000_000}}
		opts = append(opts, watertight.WithHooks(watertight.Hooks{
			Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
				return context.WithValue(ctx, derived{}, true)
			},
		}))
	}
	set, err := policy.New(policy.Config{Policies: []policy.Policy{p}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(set, opts...)
	http.FrontHandler = middleware.New(wt)(http.Behind)
	http.FrontTransport = func(rt http.RoundTripper) http.RoundTripper { return transport.New(rt, wt) }

	code := m.Run()
	left := left(wt)
	granted, refused := make(map[string]uint64), uint64(0)
	for _, c := range wt.Snapshot().Compartments {
		granted[c.Side] += c.Granted
		for _, n := range c.Rejected {
			refused += n
		}
	}
	fmt.Println("Guard: server", granted["server"], "client", granted["client"], "refused", refused, "left", left)
	return code
}
` + countLeft

// What the standard library's tests see of us, and why.
var (
	withPermits = map[string]string{
		"net/http.TestTransportAutomaticHTTP2":                                             refusedBefore,
		"net/http.TestTransportAutomaticHTTP2_DialerAndTLSConfigSupportsHTTP2AndTLSConfig": refusedBefore,
		"net/http.TestTransportAutomaticHTTP2_ExpectContinueTimeout":                       refusedBefore,
	}
	withEverything = map[string]string{
		"net/http.TestWriteHeaderNoCodeCheck":          callerInLog,
		"net/http.TestWriteHeaderNoCodeCheck/h1":       callerInLog,
		"net/http.TestWriteHeaderNoCodeCheck_h1hijack": callerInLog,
	}
)

const (
	refusedBefore = "a request without a URL is refused before the base sees it; these look at what the base prepares when it sees its first request"
	callerInLog   = "the server's log names the place that sets a status twice, and that is our writer"
)

// unfinished are tests that wait in vain with everything in the way: they call
// Transport.CancelRequest, which is deprecated and knows a request by its pointer. What
// the transport got is a copy.
var unfinished = []string{
	"net/http.TestTransportAndServerSharedBodyRace",
	"net/http.TestTransportCancelRequestBeforeResponseHeaders",
	"net/http/httputil.TestReverseProxyCancellation",
}

// net/http's own tests, and those of its reverse proxy, pass as they do without us, with
// every server and every client of theirs behind a Guard: with permits alone, and with
// all that we can put in the way.
func TestNetHTTP(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("builds net/http anew and runs its tests, which are programs of their own")
	}
	goroot := filepath.Join(t.TempDir(), "goroot")
	// Not where it is, which may be in the module cache, and there nothing can be overlaid.
	require.NoError(t, os.Symlink(output(t, "", nil, "go", "env", "GOROOT"), goroot))
	overlay := frontedNetHTTP(t, goroot)
	suite := func(front string) *suite {
		return &suite{dir: ".", program: filepath.Join(goroot, "bin", "go"), env: append(os.Environ(), "GOROOT="+goroot, "GOTOOLCHAIN=local", "GOWORK=off", "WATERTIGHT_FRONT="+front, "GOFLAGS=-buildvcs=false -overlay="+overlay)}
	}
	packages := []string{"net/http", "net/http/httputil"}
	args := append([]string{"-vet=off", "-short"}, packages...)
	var skip []string
	for _, name := range unfinished {
		skip = append(skip, name[strings.LastIndexByte(name, '.')+1:])
	}

	without, _ := suite("").run(t, args...) // first, so that the others find what it has built

	var wg sync.WaitGroup
	var permits, all results
	var saidPermits, saidAll map[string]string
	wg.Go(func() { permits, saidPermits = suite("permits").run(t, args...) })
	wg.Go(func() {
		all, saidAll = suite("everything").run(t, append([]string{"-skip=^(" + strings.Join(skip, "|") + ")$"}, args...)...)
	})
	wg.Wait()

	for _, p := range packages {
		for _, said := range []map[string]string{saidPermits, saidAll} {
			assert.Regexp(t, `Guard: server [1-9]\d\d+ client [1-9]\d\d+ refused 0 left 0\n`, said[p], "%s went through the Guard", p)
		}
		for _, r := range []results{without, permits, all} {
			delete(r, p) // fails if a test does
		}
	}
	assert.Greater(t, len(without), 1400, "the suites are there")
	assert.Empty(t, differences(without, permits, saidPermits, withPermits), "with permits")
	for name := range without {
		if slices.ContainsFunc(unfinished, func(u string) bool { return name == u || strings.HasPrefix(name, u+"/") }) {
			delete(without, name)
		}
	}
	maps.Copy(withEverything, withPermits)
	assert.Empty(t, differences(without, all, saidAll, withEverything), "with a breaker and hooks")
}

// frontedNetHTTP writes what go build is to take in place of files of the standard
// library, and returns the list of these.
func frontedNetHTTP(t *testing.T, goroot string) string {
	t.Helper()
	from := filepath.Join(goroot, "src", "net", "http")
	s := &suite{dir: t.TempDir()}
	replace := make(map[string]string)
	place := func(name string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o755))
		replace[filepath.Join(from, name)] = filepath.Join(s.dir, name)
	}
	add := func(name, text string) {
		place(name)
		s.add(t, name, text)
	}
	patch := func(name, old, with string) {
		place(name)
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		s.add(t, name, string(text))
		s.patch(t, name, old, with)
	}
	add("front.go", between)
	patch("server.go", "func (sh serverHandler) ServeHTTP(rw ResponseWriter, req *Request) {\n", `func (sh serverHandler) ServeHTTP(rw ResponseWriter, req *Request) {
	if fronted(req) {
		FrontHandler.ServeHTTP(rw, req)
		return
	}
	sh.serve(rw, req)
}

func (sh serverHandler) serve(rw ResponseWriter, req *Request) {
`)
	patch("roundtrip.go", "	return t.roundTrip(req)\n", `	if FrontTransport != nil {
		return FrontTransport(bareTransport{t}).RoundTrip(req)
	}
	return t.roundTrip(req)
`)
	patch("main_test.go", "m.Run()", "runFronted(m)")
	add("front_test.go", strings.Replace(installBetween, "PACKAGE", "http", 1))
	add("httputil/front_test.go", strings.Replace(installBetween, "PACKAGE", "httputil", 1)+
		"\nfunc TestMain(m *testing.M) { os.Exit(runFronted(m)) }\n")

	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	s.add(t, "overlay.json", string(text))
	return filepath.Join(s.dir, "overlay.json")
}
