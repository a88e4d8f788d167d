package transport_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/transport"
)

// collect runs the garbage collector until ok, or fails. Cleanups run on
// goroutines of the runtime, some time after the collection that found them due.
func collect(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		require.True(t, time.Now().Before(end), "the garbage collector did not find it in time")
		runtime.GC()
		runtime.Gosched()
	}
}

// logged makes a Guard that logs into the buffer returned.
func logged(t *testing.T, yaml string, opts ...watertight.Option) (*watertight.Guard, func() string) {
	var mu sync.Mutex
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), nil))
	return guard(t, yaml, append(opts, watertight.WithLogger(logger))...), func() string {
		mu.Lock()
		defer mu.Unlock()
		return out.String()
	}
}

// silent is a logger that says nothing.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// A body that is dropped under a context that never ends holds its permit until
// the garbage collector finds it. That is counted each time and logged once.
func TestDroppedBodiesAreFoundAndCounted(t *testing.T) {
	contexts := map[string]func() context.Context{
		"context that cannot end": context.Background,
		"context that goes on":    t.Context,
	}
	for _, test := range []struct {
		name string
		base base
	}{
		{"body", streaming},
		{"session", func(r *http.Request) (*http.Response, error) {
			return answer(r, 101, &session{Reader: strings.NewReader("x")}), nil
		}},
		{"session that can close its sending half", func(r *http.Request) (*http.Response, error) {
			return answer(r, 101, &halfCloser{session: session{Reader: strings.NewReader("x")}}), nil
		}},
	} {
		for name, ctx := range contexts {
			t.Run(test.name+", "+name, func(t *testing.T) {
				var releases, leaks atomic.Int64
				g, log := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`, watertight.WithHooks(watertight.Hooks{
					Release: func(_ context.Context, e watertight.ReleaseEvent) {
						if e.Leaked {
							leaks.Add(1)
						}
						releases.Add(1)
					},
				}))
				rt := transport.New(test.base, g)
				for range 3 {
					open(t, rt, get(t, "http://up/").WithContext(ctx()))
				}
				collect(t, func() bool { return releases.Load() == 3 })
				c := only(t, g)
				assert.EqualValues(t, 3, c.Leaked)
				assert.Zero(t, c.Bulkhead.InFlight)
				assert.EqualValues(t, 3, leaks.Load())
				assert.Equal(t, 3, capacity(t, g))
				// The permit does not wait for the log.
				collect(t, func() bool { return strings.Contains(log(), "dropped without Close") })
				assert.Equal(t, 1, strings.Count(log(), "dropped without Close"), log())
				assert.Contains(t, log(), "policy=p")
			})
		}
	}
}

// A tallied context is one of another kind, which counts who watches for its end.
type tallied struct {
	context.Context
	done     chan struct{}
	watchers atomic.Int64
}

func (c *tallied) Done() <-chan struct{} { return c.done }

func (c *tallied) AfterFunc(func()) (stop func() bool) {
	c.watchers.Add(1)
	return sync.OnceValue(func() bool {
		c.watchers.Add(-1)
		return true
	})
}

// A context that lives on, such as a program's own, gathers nothing of bodies that have
// ended, nor of those that were dropped.
func TestContextsAreLeftAlone(t *testing.T) {
	g, log := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`)
	rt := transport.New(base(streaming), g)
	ctx := &tallied{Context: t.Context(), done: make(chan struct{})}
	resp := open(t, rt, get(t, "http://up/").WithContext(ctx))
	assert.EqualValues(t, 1, ctx.watchers.Load())
	require.NoError(t, resp.Body.Close())
	assert.Zero(t, ctx.watchers.Load())

	open(t, rt, get(t, "http://up/").WithContext(ctx))
	collect(t, func() bool { return strings.Contains(log(), "dropped without Close") })
	assert.Zero(t, ctx.watchers.Load())
}

// The client wraps what it hands out once more if it has a time-out.
func TestDroppedBodiesAreFoundBehindAClient(t *testing.T) {
	g, _ := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`)
	client := &http.Client{Transport: transport.New(base(streaming), g), Timeout: time.Hour}
	for range 3 {
		_, err := client.Do(get(t, "http://up/").WithContext(context.Background()))
		require.NoError(t, err)
	}
	collect(t, func() bool { return only(t, g).Leaked == 3 && inFlight(t, g) == 0 })
	assert.Equal(t, 3, capacity(t, g))
}

// Of those that only a breaker watches, or nothing at all, leaks are counted too.
func TestDroppedBodiesWithoutABulkhead(t *testing.T) {
	for _, yaml := range []string{
		`  - {name: p, breaker: {}}`,
		`  - {name: p, match: [{host: elsewhere}], breaker: {}}`,
		`  - {name: p, exempt: true}`,
	} {
		g, log := logged(t, yaml)
		rt := transport.New(base(streaming), g)
		open(t, rt, get(t, "http://up/"))
		collect(t, func() bool { return only(t, g).InFlight == 0 })
		assert.EqualValues(t, 1, only(t, g).Leaked, yaml)
		// The permit does not wait for the log.
		collect(t, func() bool { return strings.Contains(log(), "dropped without Close") })
		assert.Equal(t, 1, strings.Count(log(), "dropped without Close"), yaml)
		require.NoError(t, g.Drain(t.Context()), "nobody is inside")
	}
}

// A body that is ended in time is no leak when it is collected later.
func TestEndedBodiesAreNotLeaks(t *testing.T) {
	g, log := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`)
	rt := transport.New(base(streaming), g)
	ctx, cancel := context.WithCancel(t.Context())
	var kept []*http.Response
	for range 3 {
		kept = append(kept, open(t, rt, get(t, "http://up/").WithContext(ctx)))
	}
	assert.NoError(t, kept[0].Body.Close())
	_, err := io.ReadAll(kept[1].Body)
	assert.NoError(t, err)
	cancel()
	collect(t, func() bool { return inFlight(t, g) == 0 }) // the context works on a goroutine of its own
	runtime.KeepAlive(kept)

	gone := sentinel()
	collect(t, gone.Load)
	assert.Zero(t, only(t, g).Leaked)
	assert.Empty(t, log())
}

// Whoever keeps a body that has ended keeps none of those that come after it from
// being found when they are dropped, and can end none of them.
func TestEndedBodiesHaveNoHoldOfLaterOnes(t *testing.T) {
	const bodies = 20 // sync.Pool forgets some, under the race detector
	for name, ctx := range map[string]context.Context{"endless context": context.Background(), "context that may end": t.Context()} {
		t.Run(name, func(t *testing.T) {
			g, _ := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 20}}`)
			rt := transport.New(base(streaming), g)
			r := get(t, "http://up/").WithContext(ctx)
			var kept []*http.Response
			for range bodies {
				kept = append(kept, open(t, rt, r))
			}
			endAll := func() {
				for _, resp := range kept {
					_, _ = io.Copy(io.Discard, resp.Body) // the second time it is closed already
					assert.NoError(t, resp.Body.Close())
				}
			}
			endAll()
			require.Zero(t, inFlight(t, g))
			for range bodies {
				open(t, rt, r)
			}
			endAll()
			if c := only(t, g); c.Leaked == 0 { // the garbage collector comes when it likes
				assert.Equal(t, bodies, c.Bulkhead.InFlight)
			}
			collect(t, func() bool { return only(t, g).Leaked == bodies && inFlight(t, g) == 0 })
			runtime.KeepAlive(kept)
		})
	}
}

// Over a real connection too, which may hold on to the response as long as it lives.
func TestDroppedBodiesAreFoundOverEachWire(t *testing.T) {
	over := make(chan struct{}, 1)
	overEachWire(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/open" {
			<-over
		}
	}, func(t *testing.T, rt *http.Transport, url string) {
		g, _ := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`)
		defer func() { over <- struct{}{} }()
		open(t, transport.New(rt, g), get(t, url+"/open").WithContext(context.Background()))
		collect(t, func() bool { return only(t, g).Leaked == 1 && inFlight(t, g) == 0 })
	})
}

// Close and Read are the last mention that a caller makes of a body. While they
// run it is in use, however long that takes and whatever the garbage collector
// makes of it.
func TestBodyInUseIsNotDropped(t *testing.T) {
	busy := func() {
		first := sentinel()
		collect(t, first.Load)
		second := sentinel()
		collect(t, second.Load)
	}
	for name, use := range map[string]func(io.ReadCloser){
		"Close": func(body io.ReadCloser) { _ = body.Close() },
		"Read":  func(body io.ReadCloser) { _, _ = body.Read(make([]byte, 1)) },
	} {
		for _, status := range []int{200, 101} {
			g, log := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
			rt := transport.New(base(func(r *http.Request) (*http.Response, error) {
				return answer(r, status, &slowBody{func() {
					busy()
					assert.Equal(t, 1, inFlight(t, g), "%s, %d: held until it is over", name, status)
				}}), nil
			}), g)
			use(open(t, rt, get(t, "http://up/")).Body)
			c := only(t, g)
			assert.Zero(t, c.Leaked, "%s, %d", name, status)
			assert.Zero(t, c.Bulkhead.InFlight)
			assert.Empty(t, log())
		}
	}
}

// sentinel makes garbage, and returns what tells that it was found.
func sentinel() *atomic.Bool {
	var found atomic.Bool
	runtime.AddCleanup(new([64]byte), func(b *atomic.Bool) { b.Store(true) }, &found)
	return &found
}

// slowBody works for a while in everything that it is asked to do.
type slowBody struct{ work func() }

func (b *slowBody) Read([]byte) (int, error) {
	b.work()
	return 0, io.ErrUnexpectedEOF
}

func (b *slowBody) Write(p []byte) (int, error) { return len(p), nil }

func (b *slowBody) Close() error {
	b.work()
	return nil
}

// A hook that takes its time when it hears of a leak does not keep other bodies from
// being found.
func TestALeakThatIsStillToldOfHoldsUpNoOther(t *testing.T) {
	stall := make(chan struct{})
	defer close(stall)
	g, _ := logged(t, `  - {name: p, bulkhead: {maxConcurrent: 3}}`, watertight.WithHooks(watertight.Hooks{
		Release: func(context.Context, watertight.ReleaseEvent) { <-stall },
	}))
	rt := transport.New(base(streaming), g)
	for range 3 {
		open(t, rt, get(t, "http://up/"))
		collect(t, func() bool { return inFlight(t, g) == 0 })
	}
}
