package faults

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const (
	limit = 6
	size  = 64 << 10 // of a download and of an upload

	// What may not open the breaker, however busy the machine is.
	patient = "minCalls: 6, window: {calls: 12}, failureRate: 50, openFor: 100ms, halfOpen: {calls: 2}"
	// What has to.
	strict       = patient + ", slowCall: 250ms, slowCallRate: 100"
	strictAtBody = strict + ", settle: body"
)

// A wire is a protocol with a real server and a real client.
type wire struct {
	name  string
	start func(*httptest.Server)
	tune  func(*http.Transport)
}

var wires = []wire{
	{"HTTP/1", (*httptest.Server).Start, func(*http.Transport) {}},
	{"HTTP/2", func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	}, func(*http.Transport) {}},
	{"h2c", func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	}, func(tr *http.Transport) {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}},
}

// A rig is a client, a proxy and a server.
type rig struct {
	server *httptest.Server
	proxy  *toxiproxy.Proxy
	base   *http.Transport
	guard  *watertight.Guard
	client *http.Client
	url    string // of the proxy

	conns clientConns

	grants, releases atomic.Int64
	mu               sync.Mutex // guards the field below
	trips            []breaker.Cause
}

func newRig(t *testing.T, w wire, breakerPolicy string) *rig {
	t.Helper()
	r := &rig{server: httptest.NewUnstartedServer(http.HandlerFunc(serve))}
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.start(r.server)
	r.base = r.server.Client().Transport.(*http.Transport)
	w.tune(r.base)
	r.base.MaxIdleConnsPerHost = limit
	r.conns.watch(r.base)
	r.protect(t, breakerPolicy)
	r.connect(t, "127.0.0.1:0")
	scheme, _, _ := strings.Cut(r.server.URL, "://")
	r.url = scheme + "://" + r.proxy.Listen
	return r
}

// protect makes the Guard and the client that goes through it.
func (r *rig) protect(t *testing.T, breakerPolicy string) {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(`
version: 1
policies:
  - name: up
    side: client
    bulkhead: {maxConcurrent: 6, maxQueue: 6, maxWait: 20ms}
    breaker: {`+breakerPolicy+`}
`))
	require.NoError(t, err)
	r.guard = watertight.New(set, watertight.WithHooks(watertight.Hooks{
		Grant: func(context.Context, watertight.GrantEvent) context.Context {
			r.grants.Add(1)
			return nil
		},
		Release: func(context.Context, watertight.ReleaseEvent) { r.releases.Add(1) },
		Transition: func(_ context.Context, e watertight.TransitionEvent) {
			if e.To == breaker.Open {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.trips = append(r.trips, e.Cause)
			}
		},
	}))
	r.client = &http.Client{Transport: transport.New(r.base, r.guard)}
}

// serve is the upstream.
func serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/download":
		_, _ = w.Write(make([]byte, size))
	case "/upload":
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Received", http.StatusText(http.StatusOK))
		if n != size {
			w.WriteHeader(http.StatusBadRequest)
		}
	case "/hold":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// connect puts a proxy in front of the server, at addr, with these toxics.
func (r *rig) connect(t *testing.T, addr string, toxics ...string) {
	t.Helper()
	r.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		"up", addr, strings.TrimPrefix(strings.TrimPrefix(r.server.URL, "http://"), "https://"))
	for _, toxic := range toxics {
		_, err := r.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
		require.NoError(t, err)
	}
	require.NoError(t, r.proxy.Start())
}

// reconnect breaks every connection, and puts a proxy with other toxics in the place
// of the one that was there.
func (r *rig) reconnect(t *testing.T, toxics ...string) {
	t.Helper()
	r.proxy.Stop()
	// Otherwise a call could pick one that is broken, but not known to be: on HTTP/2, one
	// whose last stream has not quite ended is not idle.
	r.conns.cut(t)
	r.connect(t, r.proxy.Listen, toxics...)
}

func (r *rig) close() {
	r.base.CloseIdleConnections()
	r.proxy.Stop()
	r.server.Close()
}

// A result is what became of a call.
type result struct {
	status int // 0: no answer
	err    error
}

func (r result) ok() bool { return r.err == nil && r.status == http.StatusOK }

// A use is what a caller does with a call.
type use func(ctx context.Context, r *rig) result

// uses are what the faults are tried with. None leaves anything open when its context
// has ended.
var uses = []use{download, closeUnread, upload, abandon, download, upload}

func (r *rig) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, body)
	if err != nil {
		return nil, err
	}
	return r.client.Do(req)
}

func download(ctx context.Context, r *rig) result {
	resp, err := r.do(ctx, http.MethodGet, "/download", nil)
	if err != nil {
		return result{err: err}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return result{resp.StatusCode, err}
}

func closeUnread(ctx context.Context, r *rig) result {
	resp, err := r.do(ctx, http.MethodGet, "/download", nil)
	if err != nil {
		return result{err: err}
	}
	_ = resp.Body.Close()
	return result{resp.StatusCode, nil}
}

func upload(ctx context.Context, r *rig) result {
	resp, err := r.do(ctx, http.MethodPost, "/upload", strings.NewReader(strings.Repeat("x", size)))
	if err != nil {
		return result{err: err}
	}
	_ = resp.Body.Close()
	return result{resp.StatusCode, nil}
}

// abandon leaves the body open; the end of its context has to do.
func abandon(ctx context.Context, r *rig) result {
	resp, err := r.do(ctx, http.MethodGet, "/download", nil)
	if err != nil {
		return result{err: err}
	}
	return result{resp.StatusCode, nil}
}

// wave makes one call of each kind at once, each with so much time.
func (r *rig) wave(kinds []use, patience time.Duration) []result {
	if kinds == nil {
		kinds = uses
	}
	results := make([]result, len(kinds))
	var wg sync.WaitGroup
	for i, use := range kinds {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			results[i] = use(ctx, r)
		})
	}
	wg.Wait()
	return results
}

// tripped returns why the breaker opened, each time that it did.
func (r *rig) tripped() []breaker.Cause {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]breaker.Cause(nil), r.trips...)
}

func (r *rig) snapshot(t *testing.T) watertight.CompartmentSnapshot {
	t.Helper()
	s := r.guard.Snapshot()
	require.Len(t, s.Compartments, 1)
	return s.Compartments[0]
}

// requireIdle waits until nothing is in flight or queued. Calls have ended; only the
// watches on contexts of abandoned bodies may still be at it.
func (r *rig) requireIdle(t *testing.T) {
	t.Helper()
	eventually(t, "a permit is still out", func() bool { return r.releases.Load() == r.grants.Load() })
	c := r.snapshot(t)
	require.Zero(t, c.Bulkhead.InFlight)
	require.Zero(t, c.Bulkhead.Queued)
	require.LessOrEqual(t, c.Bulkhead.Peak, limit)
	require.Zero(t, c.Leaked)
}

// recover calls until the breaker is closed, as a client does that heeds RetryAfter.
func (r *rig) recover(t *testing.T) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		res := upload(ctx, r)
		cancel()
		if res.ok() && r.snapshot(t).Breaker.State == "closed" {
			return
		}
		require.True(t, time.Now().Before(end), "the breaker does not close: %v", res)
		var rejected *watertight.RejectedError
		if errors.As(res.err, &rejected) {
			<-time.After(min(rejected.RetryAfter, 100*time.Millisecond))
		}
	}
}

// requireExact sees as many calls admitted as the limit says, and not one more.
func (r *rig) requireExact(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var held []*http.Response
	for range limit {
		resp, err := r.do(ctx, http.MethodGet, "/hold", nil)
		require.NoError(t, err)
		held = append(held, resp)
	}
	_, err := r.do(ctx, http.MethodGet, "/download", nil)
	require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
	require.Equal(t, limit, r.snapshot(t).Bulkhead.InFlight)
	cancel()
	for _, resp := range held {
		require.NoError(t, resp.Body.Close())
	}
	r.requireIdle(t)
	require.True(t, download(t.Context(), r).ok())
}

// eventually waits for something that other goroutines bring about.
func eventually(t *testing.T, problem string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("%s\n%s", problem, strings.Join(goroutines(), "\n\n"))
		}
		<-time.After(time.Millisecond)
	}
}

// goroutinesReturn returns a function that waits until there are no more goroutines
// than there are now.
func goroutinesReturn(t *testing.T) func() {
	before := len(goroutines())
	return func() {
		t.Helper()
		eventually(t, "goroutines are left", func() bool { return len(goroutines()) <= before })
	}
}

// goroutines returns the stacks of all that are not the proxy's: a toxic that closes a
// connection leaves behind whoever was about to send through it.
func goroutines() []string {
	buf := make([]byte, 4<<20)
	var stacks []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "/toxiproxy/") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// heap returns how many bytes are in use that the garbage collector cannot take, but
// for those of the proxy, and of them those that were allocated beneath the packages of
// watertight.
func heap() (all, ours int64) {
	runtime.GC() // the second one completes what the first has found
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 100)
	n, ok := runtime.MemProfile(records, false)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(records, false)
	}
	for _, r := range records[:n] {
		switch owner(r.Stack()) {
		case "ours":
			ours += r.InUseBytes()
			fallthrough
		case "":
			all += r.InUseBytes()
		}
	}
	return all, ours
}

// owner tells whose an allocation is.
func owner(stack []uintptr) string {
	frames := runtime.CallersFrames(stack)
	for more := len(stack) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case strings.Contains(f.Function, "/toxiproxy/"):
			return "proxy"
		case strings.HasPrefix(f.Function, "github.com/watertight-go/watertight") && !strings.Contains(f.Function, "/internal/faults"):
			return "ours"
		}
	}
	return ""
}

// requireNoGrowth does the same again until that leaves no more in use than there was
// before. Of what is ours there must be next to nothing more: a single call that was not
// let go is larger than that.
//
// What is kept for the next time, such as for a connection more than ever before, may be
// more the first time. What is not let go is more each time.
func requireNoGrowth(t *testing.T, again func()) {
	t.Helper()
	all, ours := heap()
	for range 5 {
		again()
		nowAll, nowOurs := heap()
		for wait := 0; wait < 1000 && (nowAll >= all+1<<20 || nowOurs >= ours+2<<10); wait++ {
			<-time.After(time.Millisecond) // goroutines of the connections are on their way out
			nowAll, nowOurs = heap()
		}
		t.Logf("in use: %d, was %d; of it beneath watertight: %d, was %d", nowAll, all, nowOurs, ours)
		if nowAll < all+1<<20 && nowOurs < ours+2<<10 {
			return
		}
		all, ours = nowAll, nowOurs
	}
	t.Fatalf("memory is left each time\n%s", strings.Join(goroutines(), "\n\n"))
}

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 1 // every allocation
	m.Run()
}
