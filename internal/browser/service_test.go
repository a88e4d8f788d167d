package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// What each test needs of these it brings about by calls. Times are so long that nothing
// changes while a test looks, or so short that nobody has to wait.
const policies = `
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: reports
    side: server
    match: [{path: "/reports/{id}"}]
    bulkhead: {maxConcurrent: 8, maxQueue: 6, maxWait: 1h}
  - name: checkout
    side: server
    match: [{path: /checkout}]
    breaker: {failureRate: 50, window: {calls: 20}, minCalls: 10, openFor: 10m}
  - name: tenants
    side: server
    match: [{path: /tenants}]
    per: header:X-Tenant
    bulkhead: {maxConcurrent: 4}
  - name: odd
    side: server
    match: [{path: {prefix: /odd/}}]
    bulkhead: {maxConcurrent: 3}
  - name: trial
    side: server
    match: [{path: /trial}]
    mode: observe
    bulkhead: {maxConcurrent: 1}
  - name: payments
    side: client
    match: [{host: payments.internal}]
    bulkhead: {maxConcurrent: 50, maxWait: 100ms}
    breaker: {failureRate: 40, window: {calls: 20}, minCalls: 10, openFor: 10m}
  - name: orders-db
    side: client
    match: [{method: [DO]}]
    bulkhead: {maxConcurrent: 4}
    breaker: {failureRate: 50, window: {calls: 4}, minCalls: 4, openFor: 1ms, halfOpen: {calls: 2}}
  - name: search
    side: client
    match: [{method: [DO]}]
    breaker: {slowCall: 1ms, slowCallRate: 50, window: {calls: 4}, minCalls: 4, openFor: 10m}
`

// A service is a program that a Guard protects, with its callers and its upstreams. Who
// calls what is up to the test; what is held, stays until the test lets it go.
type service struct {
	testing.TB
	guard *watertight.Guard
	pool  *watertight.Pool

	url      string
	callers  *http.Client // call the service
	upstream *http.Client // calls http://payments.internal/, guarded

	gates map[string]*gate // by what is held there
	held  sync.WaitGroup
}

// A gate holds calls until it is opened.
type gate struct {
	opened chan struct{}
	open   func()
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

func parse(t testing.TB, yaml string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("watertight.yaml", []byte(yaml))
	require.NoError(t, err)
	return set
}

// serve starts a service under the given policies.
func serve(t testing.TB, yaml string) *service {
	t.Helper()
	s := &service{
		TB:    t,
		guard: quiet(t, yaml),
		gates: make(map[string]*gate),
	}
	for _, name := range []string{"reports", "trial", "pool", "orders-db", "tenants", "odd"} {
		s.gates[name] = newGate()
	}
	var err error
	s.pool, err = s.guard.Pool("thumbnails", bulkhead.PoolConfig{Core: 2, Max: 2, Backlog: 5})
	require.NoError(t, err)

	mux := http.NewServeMux()
	hold := func(name string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("hold") {
				<-s.gates[name].opened
			}
		}
	}
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /reports/{id}", hold("reports"))
	mux.HandleFunc("GET /tenants", hold("tenants"))
	mux.HandleFunc("GET /trial", hold("trial"))
	mux.HandleFunc("GET /checkout", answer)
	for _, path := range odd {
		mux.HandleFunc("GET "+path, hold("odd"))
	}
	guarded := httptest.NewServer(middleware.New(s.guard)(mux))
	payments := httptest.NewServer(http.HandlerFunc(answer))
	s.url = guarded.URL

	inbound := &http.Transport{MaxIdleConnsPerHost: 100}
	outbound := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, payments.Listener.Addr().String())
	}}
	s.callers = &http.Client{Transport: inbound}
	s.upstream = &http.Client{Transport: transport.New(outbound, s.guard)}

	t.Cleanup(func() {
		for _, g := range s.gates {
			g.open()
		}
		s.held.Wait()
		inbound.CloseIdleConnections()
		outbound.CloseIdleConnections()
		guarded.Close()
		payments.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, s.guard.Drain(ctx))
		s.guard.Close()
	})
	return s
}

// answer answers with the status that it is asked for.
func answer(w http.ResponseWriter, r *http.Request) {
	if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
		w.WriteHeader(status)
	}
}

// get calls the service n times, one after the other, and returns the last status.
func (s *service) get(n int, path string, header ...string) int {
	s.Helper()
	status := 0
	for range n {
		status = s.send(s.callers, s.url+path, header...)
	}
	return status
}

// pay calls the upstream n times through the Guard; 0 is its refusal.
func (s *service) pay(n int, query string) int {
	s.Helper()
	status := 0
	for range n {
		status = s.send(s.upstream, "http://payments.internal/"+query)
	}
	return status
}

func (s *service) send(c *http.Client, to string, header ...string) int {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, to, nil)
	if !assert.NoError(s, err) {
		return 0
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	var refused *watertight.RejectedError
	if errors.As(err, &refused) {
		return 0
	}
	if !assert.NoError(s, err) {
		return 0
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(s, err)
	return resp.StatusCode
}

// later has n calls stay until the gate is opened.
func (s *service) later(n int, call func()) {
	for range n {
		s.held.Go(call)
	}
}

// hold has n requests stay inside, or queue, at a path that has a gate.
func (s *service) hold(n int, path string, header ...string) {
	s.later(n, func() { s.get(1, path+"?hold", header...) })
}

// stream has calls go on, from now to the end of the test: so many times as many of the
// one path as of the one before it.
func (s *service) stream(paths ...string) {
	done := make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for j, path := range paths {
				if i%(1<<(len(paths)-1-j)) == 0 {
					s.get(1, path)
				}
			}
		}
	})
	s.Cleanup(func() {
		close(done)
		calls.Wait()
	})
}

var errDown = errors.New("down")

// do makes n calls of the policy of that name, one after the other.
func (s *service) do(n int, name string, fn func() error) {
	s.Helper()
	for range n {
		err := s.guard.Do(context.Background(), name, func(context.Context) error { return fn() })
		var refused *watertight.RejectedError
		if err != nil && !errors.Is(err, errDown) && !errors.As(err, &refused) {
			require.NoError(s, err)
		}
	}
}

func fails() error    { return errDown }
func succeeds() error { return nil }

// slowly takes longer than a slow call of the search policy. It is what is tested, and no
// wait for something else.
func slowly() error { time.Sleep(2 * time.Millisecond); return nil }

// of returns the one compartment of a policy and key.
func (s *service) of(policy, key string) compartment {
	s.Helper()
	c, ok := s.find(policy, key)
	require.True(s, ok, "there is no compartment %q of %q", key, policy)
	return c
}

func (s *service) find(policy, key string) (compartment, bool) {
	for _, c := range s.guard.Snapshot().Compartments {
		if c.Policy == policy && c.Key == key {
			return c, true
		}
	}
	return compartment{}, false
}

// short names a compartment, for people.
func short(c compartment) string { return fmt.Sprintf("%s %.30q", c.Policy, c.Key) }

type compartment = watertight.CompartmentSnapshot

// settle waits until a compartment is as described.
func (s *service) settle(policy, key string, is func(compartment) bool) {
	s.Helper()
	require.Eventually(s, func() bool {
		c, ok := s.find(policy, key)
		return ok && is(c)
	}, patience, poll, "%s %s", policy, key)
}

const reports = "GET /reports/{id}"

// fill fills the reports: all permits and places in the queue are taken, and some callers
// were turned away.
func (s *service) fill() {
	s.Helper()
	// One after the other, as far as the order shows: who queues and who is inside.
	s.hold(8, "/reports/1")
	s.settle("reports", reports, func(c compartment) bool { return c.Bulkhead.InFlight == 8 })
	s.hold(6, "/reports/2")
	s.settle("reports", reports, func(c compartment) bool { return c.Bulkhead.Queued == 6 })
	require.Equal(s, http.StatusServiceUnavailable, s.get(5, "/reports/3"))
}

// trip opens the breaker of the payments, and has some calls refused by it.
func (s *service) trip() {
	s.Helper()
	require.Equal(s, http.StatusOK, s.pay(4, ""))
	require.Equal(s, http.StatusBadGateway, s.pay(6, "?status=502"))
	require.Zero(s, s.pay(3, ""))
	require.Equal(s, "open", s.of("payments", "http://payments.internal:80").Breaker.State)
}

// probe takes the breaker of the orders through open to half-open, with one probe out and
// held, or all of the way.
func (s *service) probe(hold bool) {
	s.Helper()
	s.do(4, "orders-db", fails)
	require.Equal(s, "open", s.of("orders-db", "").Breaker.State)
	if hold {
		s.later(1, func() {
			s.probing(func() error { <-s.gates["orders-db"].opened; return nil })
		})
		s.settle("orders-db", "", func(c compartment) bool {
			return c.Breaker.State == "half_open" && c.Breaker.ProbesLeft == 1
		})
		return
	}
	s.probing(succeeds)
	s.do(1, "orders-db", succeeds)
	require.Equal(s, "closed", s.of("orders-db", "").Breaker.State)
}

// probing calls until it is let in as a probe.
func (s *service) probing(fn func() error) {
	s.Helper()
	in := false
	for deadline := time.Now().Add(patience); !in && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // as long as it is open
		s.do(1, "orders-db", func() error { in = true; return fn() })
	}
	assert.True(s, in)
}

// work has tasks run and wait in the pool.
func (s *service) work() {
	s.Helper()
	s.later(5, func() {
		assert.NoError(s, s.pool.Do(context.Background(), func(context.Context) error { <-s.gates["pool"].opened; return nil }))
	})
	s.settle("thumbnails", "", func(c compartment) bool { return c.Pool.Active == 2 && c.Pool.Queued == 3 })
}

// Names that others choose, and that a careless page would take for something else.
var hostile = []string{
	`<img src=x onerror=alert(1)>`,
	`"><script>alert(document.domain)</script>`,
	`'-alert(1)-'`,
	`javascript:alert(1)//`,
	`{{constructor.constructor('alert(1)')()}}`,
	`${alert(1)}`,
	`__proto__`,
	`constructor`,
	`../../etc/passwd?#`,
	`%3Cb%3E%00`,
	`<!--`,
	`a,b;c=d "quoted"`,
}

// Routes may be longer than any screen, and written from right to left, or claim so.
var odd = []string{
	"/odd/\u202Egnp.exe\u202C",
	"/odd/\u05E9\u05DC\u05D5\u05DD/\u0645\u0631\u062D\u0628\u0627",
	"/odd/" + strings.Repeat("a-very-long-segment/", 40) + "end",
	"/odd/" + strings.Repeat("unbreakable", 40),
}

// storm brings about every state there is.
func (s *service) storm() {
	s.Helper()
	s.get(3, "/healthz")
	s.get(2, "/nowhere")
	for _, name := range hostile {
		s.get(1, "/tenants", "X-Tenant", name)
	}
	s.get(1, "/tenants", "X-Tenant", long)
	for _, path := range odd {
		s.get(1, (&url.URL{Path: path}).EscapedPath())
	}
	s.hold(2, "/trial")
	s.settle("trial", "GET /trial", func(c compartment) bool { return c.Observed["full"] == 1 })
	s.probe(false)
	s.probe(true)
	s.fill()
	s.trip()
	s.get(8, "/checkout?status=200")
	s.get(10, "/checkout?status=503")
	s.do(4, "search", slowly)
	s.work()
}

// long is what a header key is cut to: 64 bytes that end in a hash.
const long = "0123456789-abcdefghijklmnopqrstuvwxyz-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789"
