package agreement_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
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

const policies = `
version: 1
defaults: {maxCompartments: 3}
policies:
  - {name: health, side: server, match: [{path: /healthz}], exempt: true}
  - {name: storm, side: server, match: [{path: {prefix: /storm/}}], per: route, bulkhead: {maxConcurrent: %d}}
  - {name: orderly, side: server, match: [{path: /orderly}], per: policy, bulkhead: {maxConcurrent: 2, maxQueue: 100, maxWait: 25s}}
  - {name: hasty, side: server, match: [{path: /hasty}], per: policy, bulkhead: {maxConcurrent: 1, maxQueue: 8, maxWait: 30ms}}
  - {name: fragile, side: server, match: [{path: /fragile}], per: policy, breaker: {minCalls: 4, openFor: 50ms, halfOpen: {calls: 2}}}
  - {name: broken, match: [{path: /broken}], per: policy, bulkhead: {maxConcurrent: 9}, breaker: {minCalls: 4, openFor: 1h}}
  - {name: trial, side: server, match: [{path: /trial}], per: policy, mode: observe, bulkhead: {maxConcurrent: 1}}
  - {name: shadow, side: server, match: [{path: /shadow}], per: policy, mode: observe, breaker: {minCalls: 4, openFor: 1h}}
  - {name: tenants, side: server, match: [{path: /tenants}], per: header:X-Tenant, bulkhead: {maxConcurrent: 1}}
  - {name: ends, side: server, match: [{path: /ends}], per: policy, bulkhead: {maxConcurrent: 9}}
  - {name: payments, side: client, match: [{path: /payments}], bulkhead: {maxConcurrent: 3}}
  - {name: patient, side: client, match: [{path: /patient}], bulkhead: {maxConcurrent: 1, maxQueue: 100, maxWait: 25s}}
  - {name: shaky, side: client, match: [{path: /shaky}], bulkhead: {maxConcurrent: 5}, breaker: {minCalls: 4, openFor: 50ms, halfOpen: {calls: 2}}}
  - {name: drops, side: client, match: [{path: /drops}], bulkhead: {maxConcurrent: 9}}
  - {name: database, side: client, match: [{method: [DO]}], per: policy, bulkhead: {maxConcurrent: 1}}
`

func parse(t *testing.T, stormLimit int) *policy.Set {
	t.Helper()
	set, err := policy.Parse("incident.yaml", fmt.Appendf(nil, policies, stormLimit))
	require.NoError(t, err)
	return set
}

// An incident is a server behind a Guard, an upstream that is called through the same
// Guard, and what both and their callers count. Nothing in the books comes from the
// Guard; its snapshot only tells when to go on.
type incident struct {
	t        *testing.T
	wt       *watertight.Guard
	books    *books
	server   *httptest.Server
	upstream *httptest.Server
	outside  *http.Client   // calls the server
	guarded  *http.Client   // calls the upstream
	inside   sync.WaitGroup // requests in the server, those of callers included that have left
	gates    map[string]*gate
}

// A gate keeps those who come to a path until it is opened.
type gate struct {
	entered atomic.Int64
	opened  atomic.Pointer[chan struct{}]
}

func newGate() *gate {
	g := new(gate)
	g.shut()
	return g
}

func (g *gate) shut() {
	g.entered.Store(0)
	c := make(chan struct{})
	g.opened.Store(&c)
}

func (g *gate) open() { close(*g.opened.Load()) }

func (g *gate) pass() {
	opened := *g.opened.Load()
	g.entered.Add(1)
	<-opened
}

func newIncident(t *testing.T, wt *watertight.Guard) *incident {
	in := &incident{t: t, wt: wt, books: newBooks(), gates: map[string]*gate{}}
	mux := http.NewServeMux()
	in.gates["/ends"] = newGate()
	for _, path := range []string{"/orderly", "/hasty", "/trial", "/tenants", "/patient"} {
		in.gates[path] = newGate()
		mux.HandleFunc(path, func(_ http.ResponseWriter, r *http.Request) {
			if r.FormValue("hold") != "" {
				in.gates[path].pass()
			}
		})
	}
	for _, path := range []string{"/healthz", "/storm/a", "/storm/b", "/storm/c", "/payments", "/fragile", "/broken", "/shadow", "/shaky", "/drops"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			for range 50 { // so that others come meanwhile
				runtime.Gosched()
			}
			if r.FormValue("fail") != "" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write(make([]byte, 100))
		})
	}
	guarded := middleware.New(wt)(mux)
	mux.HandleFunc("/ends", func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("how") {
		case "panic":
			panic(http.ErrAbortHandler)
		case "goexit":
			runtime.Goexit()
		case "hijack":
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				c.Close()
			}
		case "gone":
			in.gates["/ends"].entered.Add(1)
			<-r.Context().Done()
		}
	})
	in.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.inside.Add(1)
		defer in.inside.Done()
		guarded.ServeHTTP(w, r)
	}))
	in.upstream = httptest.NewServer(mux)
	in.outside = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	in.guarded = &http.Client{Transport: transport.New(base, wt)}
	t.Cleanup(func() {
		in.outside.CloseIdleConnections()
		base.CloseIdleConnections()
		in.server.Close()
		in.upstream.Close()
	})
	return in
}

// until waits for something that is on its way.
func (in *incident) until(what string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			panic("not in time: " + what)
		}
	}
}

// queued waits until so many callers are in a policy's queue.
func (in *incident) queued(name string, n int) {
	in.until(fmt.Sprint(name, ": ", n, " in the queue"), func() bool {
		for _, c := range in.wt.Snapshot().Compartments {
			if c.Policy == name && c.Bulkhead != nil {
				return c.Bulkhead.Queued == n
			}
			if c.Policy == name && c.Pool != nil {
				return c.Pool.Queued == n
			}
		}
		return false
	})
}

// call sends a request to the server and counts what became of it, as its sender sees it.
func (in *incident) call(ctx context.Context, name, target, tenant string) (result string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.server.URL+target, nil)
	if err != nil {
		panic(err)
	}
	if tenant != "" {
		req.Header.Set("X-Tenant", tenant)
	}
	resp, err := in.outside.Do(req)
	switch {
	case errors.Is(err, context.Canceled):
		in.books.add(1, name, "server", "left")
		return "left"
	case err != nil:
		panic(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var problem struct{ Reason string }
		if err := json.Unmarshal(text, &problem); err != nil {
			panic(err)
		}
		in.books.add(1, name, "server", "rejected", problem.Reason)
		return problem.Reason
	}
	in.books.add(1, name, "server", "granted")
	return "granted"
}

// send is call for the client side.
func (in *incident) send(ctx context.Context, name, target string) (result string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.upstream.URL+target, nil)
	if err != nil {
		panic(err)
	}
	resp, err := in.guarded.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return in.fared(name, err)
}

// fared counts what became of a call of the client side that is not answered by a status.
func (in *incident) fared(name string, err error) (result string) {
	var rejected *watertight.RejectedError
	switch {
	case err == nil:
		in.books.add(1, name, "client", "granted")
		return "granted"
	case errors.As(err, &rejected):
		in.books.add(1, name, "client", "rejected", rejected.Reason.String())
		return rejected.Reason.String()
	case errors.Is(err, context.Canceled):
		in.books.add(1, name, "client", "left")
		return "left"
	}
	panic(err)
}

// many calls f on as many goroutines, and returns a function that waits for them.
func many(n int, f func(i int)) (wait func()) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	return wg.Wait
}

// run is the incident: everything at once, and then the end.
func (in *incident) run() {
	var wg sync.WaitGroup
	for _, scene := range []func(){
		in.storm, in.reload, in.orderly, in.hasty, in.fragile, in.broken, in.trial, in.shadow, in.tenants, in.unlimited,
		in.ends, in.payments, in.patient, in.shaky, in.drops, in.database, in.pool,
	} {
		wg.Go(scene)
	}
	wg.Wait()
	in.drain()
	in.inside.Wait()
}

// storm is more than there are permits for.
func (in *incident) storm() {
	many(12, func(i int) {
		for n := range 30 {
			in.call(context.Background(), "storm", "/storm/"+[]string{"a", "b", "c"}[(i+n)%3], "")
		}
	})()
}

func (in *incident) reload() {
	in.wt.Reload(parse(in.t, 2))
	in.books.add(1, "policies", "all", "reload", "ok")
	in.books.add(1, "storm", "server", "limit")
	in.wt.ReloadFailed(errors.New("a bad file"))
	in.books.add(1, "policies", "all", "reload", "failed")
	in.wt.Reload(parse(in.t, 2)) // the same
	in.books.add(1, "policies", "all", "reload", "ok")
}

// hold sends n calls that stay inside until the gate of the path opens.
func (in *incident) hold(path string, n int, call func(i int)) (wait func()) {
	g := in.gates[path]
	before := g.entered.Load()
	wait = many(n, call)
	in.until(path+": all inside", func() bool { return g.entered.Load() == before+int64(n) })
	return wait
}

// orderly has a queue, and callers that leave it.
func (in *incident) orderly() {
	call := func(int) { in.call(context.Background(), "orderly", "/orderly?hold=1", "") }
	holders := in.hold("/orderly", 2, call)
	waiters := many(10, call)
	in.queued("orderly", 10)
	ctx, cancel := context.WithCancel(context.Background())
	leavers := many(6, func(int) { in.call(ctx, "orderly", "/orderly", "") })
	in.queued("orderly", 16)
	cancel()
	leavers()
	in.queued("orderly", 10)
	in.gates["/orderly"].open()
	holders()
	waiters()
	in.books.add(10, "orderly", "server", "waited", "granted")
	in.books.add(6, "orderly", "server", "waited", "canceled")
}

// hasty has a queue that nobody gets out of in time.
func (in *incident) hasty() {
	holder := in.hold("/hasty", 1, func(int) { in.call(context.Background(), "hasty", "/hasty?hold=1", "") })
	many(8, func(int) {
		result := in.call(context.Background(), "hasty", "/hasty", "")
		assert.Equal(in.t, "wait_timeout", result)
		in.books.add(1, "hasty", "server", "waited", "wait_timeout")
	})()
	in.gates["/hasty"].open()
	holder()
}

// cycle trips a breaker and lets it recover, call by call.
func (in *incident) cycle(name, side string, call func(fail bool) (result string)) {
	for range 3 {
		for range 4 {
			assert.Equal(in.t, "granted", call(true))
		}
		in.books.add(1, name, side, "transition", "open", "failure_rate")
		for call(false) == "open" {
		}
		in.books.add(1, name, side, "transition", "half_open", "open_elapsed")
		assert.Equal(in.t, "granted", call(false), "the second probe")
		in.books.add(1, name, side, "transition", "closed", "probes")
	}
}

func failing(path string, fail bool) string {
	if fail {
		return path + "?fail=1"
	}
	return path
}

// fragile has a breaker, and no bulkhead.
func (in *incident) fragile() {
	in.cycle("fragile", "server", func(fail bool) string {
		return in.call(context.Background(), "fragile", failing("/fragile", fail), "")
	})
}

// broken has a breaker on either side, which opens for good.
func (in *incident) broken() {
	for i := range 7 {
		want := "granted"
		if i >= 4 {
			want = "open"
		}
		assert.Equal(in.t, want, in.call(context.Background(), "broken", "/broken?fail=1", ""))
		assert.Equal(in.t, want, in.send(context.Background(), "broken", "/broken?fail=1"))
	}
	in.books.add(1, "broken", "server", "transition", "open", "failure_rate")
	in.books.add(1, "broken", "client", "transition", "open", "failure_rate")
}

// trial only observes.
func (in *incident) trial() {
	holder := in.hold("/trial", 1, func(int) { in.call(context.Background(), "trial", "/trial?hold=1", "") })
	many(5, func(int) { in.call(context.Background(), "trial", "/trial", "") })()
	in.books.add(5, "trial", "server", "observed", "full")
	in.gates["/trial"].open()
	holder()
}

// shadow has a breaker that only observes, and trips once.
func (in *incident) shadow() {
	for range 7 {
		in.call(context.Background(), "shadow", "/shadow?fail=1", "")
	}
	in.books.add(1, "shadow", "server", "transition", "open", "failure_rate")
	in.books.add(3, "shadow", "server", "observed", "open")
}

// tenants come and go, until there are too many at once.
func (in *incident) tenants() {
	call := func(tenant string) { in.call(context.Background(), "tenants", "/tenants", tenant) }
	for i := range 10 {
		call(fmt.Sprint("guest", i))
	}
	in.books.add(7, "tenants", "server", "evicted")
	holders := in.hold("/tenants", 3, func(i int) {
		in.call(context.Background(), "tenants", "/tenants?hold=1", fmt.Sprint("resident", i))
	})
	in.books.add(3, "tenants", "server", "evicted")
	call("late")
	call("later")
	in.books.add(1, "tenants", "server", "overflow", "began")
	assert.Equal(in.t, "full", in.call(context.Background(), "tenants", "/tenants", "resident0"))
	in.gates["/tenants"].open()
	holders()
	call("latest")
	in.books.add(1, "tenants", "server", "evicted")
	in.books.add(1, "tenants", "server", "overflow", "ended")
}

// ends are those that leave their caller without an answer.
func (in *incident) ends() {
	for range 5 {
		for _, how := range []string{"panic", "goexit", "hijack", "gone"} {
			ctx, cancel := context.WithCancel(context.Background())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.server.URL+"/ends?how="+how, nil) // no GET, which is sent again
			if err != nil {
				panic(err)
			}
			entered := in.gates["/ends"].entered.Load()
			answered := many(1, func(int) {
				resp, err := in.outside.Do(req)
				if !assert.Error(in.t, err, how) {
					resp.Body.Close()
				}
			})
			if how == "gone" {
				in.until("inside", func() bool { return in.gates["/ends"].entered.Load() > entered })
				cancel()
			}
			answered()
			cancel()
			in.books.add(1, "ends", "server", "granted")
		}
	}
}

func (in *incident) unlimited() {
	for range 3 {
		in.call(context.Background(), "health", "/healthz", "")
		in.call(context.Background(), "(unmatched)", "/nowhere", "")
	}
}

// payments is a storm on the client side.
func (in *incident) payments() {
	many(8, func(int) {
		for range 30 {
			in.send(context.Background(), "payments", "/payments")
		}
	})()
}

// patient is a queue on the client side.
func (in *incident) patient() {
	call := func(int) { in.send(context.Background(), "patient", "/patient?hold=1") }
	holder := in.hold("/patient", 1, call)
	waiters := many(5, call)
	in.queued("patient", 5)
	ctx, cancel := context.WithCancel(context.Background())
	leavers := many(4, func(int) { in.send(ctx, "patient", "/patient") })
	in.queued("patient", 9)
	cancel()
	leavers()
	in.gates["/patient"].open()
	holder()
	waiters()
	in.books.add(5, "patient", "client", "waited", "granted")
	in.books.add(4, "patient", "client", "waited", "canceled")
}

// shaky has both.
func (in *incident) shaky() {
	in.cycle("shaky", "client", func(fail bool) string {
		return in.send(context.Background(), "shaky", failing("/shaky", fail))
	})
}

// drops leaves response bodies to their contexts, and forgets others.
func (in *incident) drops() {
	var left []*http.Response
	for range 5 {
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.upstream.URL+"/drops", nil)
		if err != nil {
			panic(err)
		}
		resp, err := in.guarded.Do(req) //nolint:bodyclose // it is what this is about
		if err != nil {
			panic(err)
		}
		left = append(left, resp)
		cancel()
		in.books.add(1, "drops", "client", "granted")
	}
	in.until("the ends of the contexts are heard of", func() bool {
		for _, c := range in.wt.Snapshot().Compartments {
			if c.Policy == "drops" {
				return c.Bulkhead.InFlight == 0
			}
		}
		return false
	})
	runtime.KeepAlive(left) // or the garbage collector might come first
	for range 5 {
		if _, err := in.guarded.Get(in.upstream.URL + "/drops"); err != nil { //nolint:bodyclose // likewise
			panic(err)
		}
		in.books.add(1, "drops", "client", "granted")
		in.books.add(1, "drops", "client", "leaked")
	}
}

func (in *incident) database() {
	inside, open := make(chan struct{}), make(chan struct{})
	holder := many(1, func(int) {
		in.fared("database", in.wt.Do(context.Background(), "database", func(context.Context) error {
			close(inside)
			<-open
			return nil
		}))
	})
	<-inside
	for range 3 {
		in.fared("database", in.wt.Do(context.Background(), "database", func(context.Context) error { return nil }))
	}
	close(open)
	holder()
}

func (in *incident) pool() {
	p, err := in.wt.Pool("works", bulkhead.PoolConfig{Max: 1, Backlog: 3})
	if err != nil {
		panic(err)
	}
	inside, open := make(chan struct{}), make(chan struct{})
	holder := many(1, func(int) {
		in.fared("works", p.Do(context.Background(), func(context.Context) error { close(inside); <-open; return nil }))
	})
	<-inside
	nothing := func(context.Context) error { return nil }
	waiter := many(1, func(int) { in.fared("works", p.Do(context.Background(), nothing)) })
	in.queued("works", 1)
	ctx, cancel := context.WithCancel(context.Background())
	leaver := many(1, func(int) { in.fared("works", p.Do(ctx, nothing)) })
	in.queued("works", 2)
	future, err := watertight.Submit(p, ctx, func(context.Context) (int, error) { return 0, nil })
	if err != nil {
		panic(err)
	}
	in.queued("works", 3)
	for range 3 {
		in.fared("works", p.Do(context.Background(), nothing))
	}
	cancel()
	leaver()
	_, err = future.Wait(context.Background())
	in.fared("works", err)
	close(open)
	holder()
	waiter()
	in.books.add(1, "works", "client", "waited", "granted")
	in.books.add(2, "works", "client", "waited", "canceled")
}

// drain ends it all, with callers in the queue and more that come.
func (in *incident) drain() {
	g := in.gates["/orderly"]
	g.shut()
	call := func(int) { in.call(context.Background(), "orderly", "/orderly?hold=1", "") }
	holders := in.hold("/orderly", 2, call)
	waiters := many(4, call)
	in.queued("orderly", 4)
	drained := make(chan error)
	go func() { drained <- in.wt.Drain(context.Background()) }()
	waiters()
	in.books.add(4, "orderly", "server", "waited", "draining")
	for range 3 {
		in.call(context.Background(), "orderly", "/orderly", "")
		in.call(context.Background(), "(unmatched)", "/nowhere", "")
		in.call(context.Background(), "health", "/healthz", "")
		in.send(context.Background(), "patient", "/patient")
	}
	g.open()
	holders()
	// Of the bodies that were dropped, Drain waits for the garbage collector.
	done := false
	in.until("drained", func() bool {
		runtime.GC()
		select {
		case err := <-drained:
			assert.NoError(in.t, err)
			done = true
		default:
		}
		return done
	})
	in.send(context.Background(), "payments", "/payments")
	in.fared("database", in.wt.Do(context.Background(), "database", func(context.Context) error { return nil }))
}
