package watertight_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

var works = watertight.Compartment{Policy: "works", Side: policy.Client, Per: policy.PerPolicy}

// isRefused reports whether the Guard refused, and not the task.
func isRefused(err error) bool {
	_, ok := errors.AsType[*watertight.RejectedError](err)
	return ok
}

// pool makes the pool "works".
func pool(t testing.TB, g *watertight.Guard, cfg bulkhead.PoolConfig) *watertight.Pool {
	t.Helper()
	p, err := g.Pool("works", cfg)
	require.NoError(t, err)
	return p
}

// plain returns what hooks were told, without what differs from run to run.
func (s *story) plain(t testing.TB) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []any
	for i, e := range s.events {
		assert.Equal(t, "one", s.ctxs[i].Value(ctxKey("arrive")), "every hook gets what Arrive made")
		switch e := e.(type) {
		case watertight.RejectEvent:
			assert.True(t, isRefused(e.Err))
			e.Err = nil
			events = append(events, e)
		case watertight.ReleaseEvent:
			assert.Equal(t, "one", s.ctxs[i].Value(ctxKey("grant")), "Release gets what Grant made")
			events = append(events, e)
		default:
			events = append(events, e)
		}
	}
	return events
}

func TestPoolNamesAreUnique(t *testing.T) {
	g := guard(t, named)
	pool(t, g, bulkhead.PoolConfig{Max: 1})
	for name, want := range map[string]string{
		"":            "watertight: a pool needs a name",
		"works":       `watertight: there is a pool "works" already; make it once and share it`,
		"orders-db":   `watertight: pool name "orders-db" is taken by a policy; choose another`,
		"reports":     `watertight: pool name "reports" is taken by a policy; choose another`,
		"(unmatched)": `watertight: pool name "(unmatched)" is taken by a policy; choose another`,
		"(exempt)":    `watertight: pool name "(exempt)" is taken by a policy; choose another`,
	} {
		p, err := g.Pool(name, bulkhead.PoolConfig{Max: 1})
		assert.EqualError(t, err, want)
		assert.Nil(t, p)
	}
	assert.Panics(t, func() { _, _ = g.Pool("bad", bulkhead.PoolConfig{}) })
	_, err := g.Pool("other", bulkhead.PoolConfig{Max: 1})
	require.NoError(t, err)
	assert.Len(t, g.Snapshot().Compartments, 2)
}

// What others read, they read by these names.
func TestPoolSnapshotJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		p := pool(t, g, bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 1, OnFull: bulkhead.Discard()})
		picture := func() string {
			text, err := json.Marshal(g.Snapshot().Compartments)
			require.NoError(t, err)
			return string(text)
		}
		assert.JSONEq(t, `[{"policy": "works", "side": "client", "per": "policy", "key": "",
			"granted": 0, "rejected": {"full": 0, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 0, "leaked": 0, "inFlight": 0,
			"pool": {"core": 1, "max": 1, "backlog": 1, "workers": 0, "active": 0, "abandoned": 0, "idle": 0, "queued": 0,
				"waitingForRoom": 0, "callerRunning": 0, "peak": 0,
				"completed": 0, "failed": 0, "panicked": 0, "callerRun": 0, "fellBack": 0, "discarded": 0}}]`, picture())

		require.NoError(t, p.Do(t.Context(), nothing))
		let := make(chan struct{})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _ = p.Do(impatient, holding(let)) }()
		synctest.Wait()
		go func() { _ = p.Do(t.Context(), func(context.Context) error { return errDown }) }()
		synctest.Wait()
		assert.ErrorIs(t, p.Do(t.Context(), nothing), bulkhead.ErrDiscarded)
		pressed := `"pressedSince": "` + time.Now().Format(time.RFC3339Nano) + `"`
		assert.Equal(t, context.Canceled, p.Do(canceled(t), nothing))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.JSONEq(t, `[{"policy": "works", "side": "client", "per": "policy", "key": "",
			"granted": 2, "rejected": {"full": 1, "wait_timeout": 0, "open": 0, "draining": 0}, "left": 1, "leaked": 0, "inFlight": 1,
			"pool": {"core": 1, "max": 1, "backlog": 1, "workers": 1, "active": 1, "abandoned": 1, "idle": 0, "queued": 1,
				"waitingForRoom": 0, "callerRunning": 0, "peak": 1, `+pressed+`,
				"completed": 1, "failed": 0, "panicked": 0, "callerRun": 0, "fellBack": 0, "discarded": 1}}]`, picture())
		close(let)
		require.NoError(t, g.Drain(t.Context()))
		assert.ErrorIs(t, p.Do(t.Context(), nothing), bulkhead.ErrClosed)
		assert.JSONEq(t, `[{"policy": "works", "side": "client", "per": "policy", "key": "",
			"granted": 3, "rejected": {"full": 1, "wait_timeout": 0, "open": 0, "draining": 1}, "left": 1, "leaked": 0, "inFlight": 0,
			"waits": [{"upToMs": 1, "count": 0}, {"upToMs": 2, "count": 0}, {"upToMs": 4, "count": 0}, {"upToMs": 8, "count": 0},
				{"upToMs": 16, "count": 0}, {"upToMs": 32, "count": 0}, {"upToMs": 64, "count": 0}, {"upToMs": 128, "count": 0},
				{"upToMs": 256, "count": 0}, {"upToMs": 512, "count": 0}, {"upToMs": 1024, "count": 1}],
			"pool": {"core": 1, "max": 1, "backlog": 1, "workers": 0, "active": 0, "abandoned": 0, "idle": 0, "queued": 0,
				"waitingForRoom": 0, "callerRunning": 0, "peak": 1, `+pressed+`,
				"completed": 2, "failed": 1, "panicked": 0, "callerRun": 0, "fellBack": 0, "discarded": 1}}]`, picture())
	})
}

func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestPoolStandsBehindThePoliciesInTheSnapshot(t *testing.T) {
	g := guard(t, named)
	pool(t, g, bulkhead.PoolConfig{Max: 1})
	admit(t, g, on("/")).Release()
	admit(t, g, &policy.Request{Side: policy.Server, RouteKnown: true}).Release()
	var names []string
	for _, c := range g.Snapshot().Compartments {
		names = append(names, c.Policy)
	}
	assert.Equal(t, []string{"hosts", "works", "(unmatched)"}, names)
}

// An error is the task's own, whatever it is; only the pool's are wrapped.
func TestPoolReturnsWhatTheTaskReturns(t *testing.T) {
	g := guard(t, named)
	p := pool(t, g, bulkhead.PoolConfig{Max: 1})
	require.NoError(t, p.Do(t.Context(), nothing))
	for _, err := range []error{errDown, bulkhead.ErrFull, bulkhead.ErrDiscarded, context.Canceled} {
		assert.Equal(t, err, p.Do(t.Context(), func(context.Context) error { return err }))
		f, submitted := watertight.Submit(p, t.Context(), func(context.Context) (int, error) { return 42, err })
		require.NoError(t, submitted)
		n, got := f.Wait(t.Context())
		assert.Equal(t, 42, n)
		assert.Equal(t, err, got)
	}
	var panicked *bulkhead.PanicError
	require.ErrorAs(t, p.Do(t.Context(), func(context.Context) error { panic("of the test") }), &panicked)
	assert.Equal(t, "of the test", panicked.Value)
	require.ErrorAs(t, p.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil }), &panicked)

	c := compartment(t, g, "works", "")
	assert.EqualValues(t, 11, c.Granted)
	assert.Zero(t, c.Rejected["full"])
	assert.Zero(t, c.InFlight)

	assert.PanicsWithValue(t, "watertight: Do of a nil function", func() { _ = p.Do(t.Context(), nil) })
	assert.PanicsWithValue(t, "watertight: Submit of a nil function", func() { _, _ = watertight.Submit[int](p, t.Context(), nil) })
}

func TestPoolConfigureIsLive(t *testing.T) {
	p := pool(t, watertight.New(nil), bulkhead.PoolConfig{Max: 1})
	p.Configure(bulkhead.PoolConfig{Max: 3, Backlog: 2})
	s := p.Snapshot()
	assert.Equal(t, 3, s.Max)
	assert.Equal(t, 2, s.Backlog)
}

// By both ways in: what waits, is granted, refused or leaves tells so.
func TestPoolTellsItsHooks(t *testing.T) {
	do := func(p *watertight.Pool, ctx context.Context, fn func(context.Context) error) error {
		return p.Do(ctx, fn)
	}
	submit := func(p *watertight.Pool, ctx context.Context, fn func(context.Context) error) error {
		f, err := watertight.Submit(p, ctx, func(ctx context.Context) (int, error) { return 0, fn(ctx) })
		if err != nil {
			return err
		}
		_, err = f.Wait(context.WithoutCancel(ctx)) // the task's own end
		return err
	}
	for name, run := range map[string]func(*watertight.Pool, context.Context, func(context.Context) error) error{"Do": do, "Submit": submit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s story
				g := guard(t, named, watertight.WithHooks(s.hooks("one")))
				p := pool(t, g, bulkhead.PoolConfig{Max: 1, Backlog: 2})
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					_ = run(p, t.Context(), func(ctx context.Context) error {
						assert.Equal(t, "one", ctx.Value(ctxKey("grant")), "the task runs under what Grant made")
						time.Sleep(300 * time.Millisecond)
						return nil
					})
				})
				synctest.Wait()
				wg.Go(func() { assert.Equal(t, errDown, run(p, t.Context(), func(context.Context) error { return errDown })) })
				synctest.Wait()
				leaving, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				wg.Go(func() { assert.Equal(t, context.DeadlineExceeded, run(p, leaving, nothing)) })
				synctest.Wait()
				err := run(p, t.Context(), nothing)
				assert.EqualError(t, err, "watertight: policy works refused the call, full: bulkhead: full; retry after 1s")
				assert.ErrorIs(t, err, bulkhead.ErrFull)
				assert.Equal(t, context.Canceled, run(p, canceled(t), nothing), "of which nothing is told")
				wg.Wait()
				require.NoError(t, g.Drain(t.Context()))
				assert.ErrorIs(t, run(p, t.Context(), nothing), bulkhead.ErrClosed)

				assert.Equal(t, []any{
					watertight.GrantEvent{Compartment: works, Limit: 1, InFlight: 1},
					watertight.RejectEvent{Compartment: works, Reason: policy.ReasonFull, Limit: 1, InFlight: 1, Queued: 2, RetryAfter: time.Second},
					watertight.WaitEvent{Compartment: works, Arrived: start, Waited: 100 * time.Millisecond, Position: 2, Result: "canceled"},
					watertight.ReleaseEvent{Compartment: works, Held: 300 * time.Millisecond},
					watertight.WaitEvent{Compartment: works, Arrived: start, Waited: 300 * time.Millisecond, Position: 1, Result: "granted"},
					watertight.GrantEvent{Compartment: works, Limit: 1, InFlight: 1, Waited: 300 * time.Millisecond},
					watertight.ReleaseEvent{Compartment: works},
					watertight.RejectEvent{Compartment: works, Reason: policy.ReasonDraining, Limit: 1, RetryAfter: time.Second},
				}, s.plain(t))
				c := compartment(t, g, "works", "")
				assert.EqualValues(t, 2, c.Granted)
				assert.EqualValues(t, 2, c.Left)
				assert.EqualValues(t, 1, c.Rejected["full"])
				assert.EqualValues(t, 1, c.Rejected["draining"])
			})
		})
	}
}

// What becomes of a task that finds the pool full, and what is told of it.
func TestPoolOnFull(t *testing.T) {
	full := watertight.RejectEvent{Compartment: works, Reason: policy.ReasonFull, Limit: 1, InFlight: 1, RetryAfter: time.Second}
	errFell := errors.New("from the cache")
	for _, test := range []struct {
		name      string
		how       bulkhead.OnFull
		do        error // what Do returns, by errors.Is
		refused   bool  // by a RejectedError
		submitted error // what the future ends with, where Submit returns one
		future    bool
		told      []any
	}{
		{"abort", bulkhead.Abort(), bulkhead.ErrFull, true, nil, false, []any{full}},
		{"discard", bulkhead.Discard(), bulkhead.ErrDiscarded, true, bulkhead.ErrDiscarded, true, []any{full}},
		{"fallback", bulkhead.Fallback(func(context.Context) (int, error) { return 7, errFell }), errFell, false, errFell, true, []any{full}},
		{"fallback, well", bulkhead.Fallback(func(context.Context) (int, error) { return 7, nil }), nil, false, nil, true, []any{full}},
		{"caller runs", bulkhead.CallerRuns(), errDown, false, errDown, true, []any{
			watertight.GrantEvent{Compartment: works, Limit: 1, InFlight: 1},
			watertight.ReleaseEvent{Compartment: works},
		}},
		{"wait for room", bulkhead.WaitForRoom(time.Second, 1), bulkhead.ErrWaitTimeout, true, nil, false, []any{
			watertight.WaitEvent{Compartment: works, Waited: time.Second, Position: 1, Result: "wait_timeout"},
			watertight.RejectEvent{Compartment: works, Reason: policy.ReasonWaitTimeout, Limit: 1, InFlight: 1, RetryAfter: time.Second},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s story
				g := guard(t, named, watertight.WithHooks(s.hooks("one")))
				p := pool(t, g, bulkhead.PoolConfig{Max: 1, OnFull: test.how})
				let := make(chan struct{})
				go func() { _ = p.Do(t.Context(), holding(let)) }()
				synctest.Wait()
				check := func(err, want error) {
					t.Helper()
					assert.ErrorIs(t, err, want)
					assert.Equal(t, test.refused && want == test.do, isRefused(err))
				}
				told := func() (events []any) {
					s.mu.Lock()
					for i, e := range s.events {
						if w, ok := e.(watertight.WaitEvent); ok {
							w.Arrived = time.Time{}
							s.events[i] = w
						}
					}
					s.mu.Unlock()
					events = s.plain(t)
					s.events, s.ctxs = nil, nil
					return events
				}
				told() // of the one that holds it

				check(p.Do(t.Context(), func(context.Context) error { return errDown }), test.do)
				assert.Equal(t, test.told, told(), "Do")

				f, err := watertight.Submit(p, t.Context(), func(context.Context) (int, error) { return 0, errDown })
				if test.future {
					require.NoError(t, err)
					_, err := f.Wait(t.Context())
					assert.Equal(t, test.submitted, err, "as the pool has it")
				} else {
					check(err, test.do)
				}
				assert.Equal(t, test.told, told(), "Submit")
				close(let)
				require.NoError(t, g.Drain(t.Context()))

				c := compartment(t, g, "works", "")
				refused := c.Rejected["full"] + c.Rejected["wait_timeout"]
				assert.EqualValues(t, 3, c.Granted+refused, "each is counted once")
				assert.Zero(t, c.InFlight)
			})
		})
	}
}

// The caller's context ends after the worker has looked at it, and before the
// task begins.
func TestPoolTaskThatBeginsAfterItsCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := guard(t, named, watertight.WithHooks(s.hooks("one")))
		p := pool(t, g, bulkhead.PoolConfig{Max: 1, Backlog: 1})
		let := make(chan struct{})
		go func() { _ = p.Do(t.Context(), holding(let)) }()
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		ending := &endingContext{Context: ctx, at: 3, end: func() { cancel(); <-left }}
		ran := false
		go func() {
			defer close(left)
			assert.Equal(t, context.Canceled, p.Do(ending, func(context.Context) error { ran = true; return nil }))
		}()
		synctest.Wait()
		close(let)
		require.NoError(t, g.Drain(t.Context()))
		require.True(t, ran, "the worker did not get to begin, so this tests nothing")

		var told []any
		for _, e := range s.plain(t)[1:] { // after the Grant of the first
			switch e := e.(type) {
			case watertight.WaitEvent:
				told = append(told, e.Result)
			case watertight.GrantEvent:
				told = append(told, "grant")
			case watertight.ReleaseEvent:
				told = append(told, "release")
			}
		}
		assert.Equal(t, []any{"release", "canceled", "grant", "release"}, told)
		assert.EqualValues(t, 2, compartment(t, g, "works", "").Granted)
	})
}

// An endingContext ends while it says, for the at-th time that it is asked, that
// it has not.
type endingContext struct {
	context.Context
	asked atomic.Int64
	at    int64
	end   func()
}

func (c *endingContext) Err() error {
	err := c.Context.Err()
	if c.asked.Add(1) == c.at {
		c.end()
	}
	return err
}

// Drain lets the requests that are inside use the pools, waits for all tasks
// that were accepted, and lets these call their upstreams.
func TestDrainWaitsForPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		p := pool(t, g, bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 5})
		request := admit(t, g, on("/"))
		let := make(chan struct{})
		_, err := watertight.Submit(p, t.Context(), func(ctx context.Context) (int, error) { return 0, holding(let)(ctx) })
		require.NoError(t, err)
		drained := make(chan error, 1)
		go func() { drained <- g.Drain(t.Context()) }()
		synctest.Wait()
		queued, err := watertight.Submit(p, t.Context(), func(ctx context.Context) (string, error) {
			admit(t, g, to("up")).Release()
			return "done", nil
		})
		require.NoError(t, err, "a request is inside, and may need it")
		request.Release()
		synctest.Wait()
		_, err = watertight.Submit(p, t.Context(), func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, bulkhead.ErrClosed)
		var rejected *watertight.RejectedError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, policy.ReasonDraining, rejected.Reason)
		assert.Equal(t, 503, rejected.StatusCode())
		late, err := g.Pool("late", bulkhead.PoolConfig{Max: 1})
		require.NoError(t, err)
		require.ErrorIs(t, late.Do(t.Context(), nothing), bulkhead.ErrClosed)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Drain(ctx), context.DeadlineExceeded)
		assert.Empty(t, drained)
		close(let)
		require.NoError(t, <-drained)
		got, err := queued.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "done", got)
		assert.Zero(t, p.Snapshot().Workers)
	})
}

// Every submission is counted once, every Grant has its Release, and what is told
// agrees with what is counted; by many at once, with contexts that end at any time.
func TestPoolBooksBalance(t *testing.T) {
	var waited, granted, released, rejected, inside, most atomic.Int64
	g := guard(t, named, watertight.WithHooks(watertight.Hooks{
		Wait: func(context.Context, watertight.WaitEvent) { waited.Add(1) },
		Grant: func(context.Context, watertight.GrantEvent) context.Context {
			granted.Add(1)
			return nil
		},
		Release: func(context.Context, watertight.ReleaseEvent) { released.Add(1) },
		Reject:  func(context.Context, watertight.RejectEvent) { rejected.Add(1) },
	}))
	p := pool(t, g, bulkhead.PoolConfig{Core: 1, Max: 3, Backlog: 4, OnFull: bulkhead.WaitForRoom(100*time.Microsecond, 4)})
	const submitters, rounds = 16, 300
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			for n := range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%7)*50*time.Microsecond+1)
				task := func(context.Context) error {
					now := inside.Add(1)
					defer inside.Add(-1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					for range n % 50 {
						runtime.Gosched()
					}
					if n%11 == 0 {
						panic("of the test")
					}
					return nil
				}
				if i%2 == 0 {
					_ = p.Do(ctx, task)
				} else if f, err := watertight.Submit(p, ctx, func(ctx context.Context) (int, error) { return 0, task(ctx) }); err == nil && n%3 == 0 {
					_, _ = f.Wait(ctx)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, g.Drain(t.Context()))
	c := compartment(t, g, "works", "")
	refused := c.Rejected["full"] + c.Rejected["wait_timeout"] + c.Rejected["draining"]
	assert.EqualValues(t, submitters*rounds, c.Granted+refused+c.Left)
	assert.EqualValues(t, c.Granted, c.Pool.Completed+c.Pool.Failed+c.Pool.Panicked)
	assert.EqualValues(t, c.Granted, granted.Load())
	assert.EqualValues(t, c.Granted, released.Load())
	assert.EqualValues(t, refused, rejected.Load())
	assert.LessOrEqual(t, most.Load(), int64(3))
	assert.Zero(t, c.InFlight)
	assert.NotZero(t, waited.Load())
}

// A context that lives long does not collect the tasks that were submitted under
// it; the wait of one that left is told, although nobody waits for the future.
func TestPoolFollowsSubmittedTasksAndLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := guard(t, named, watertight.WithHooks(s.hooks("one")))
		p := pool(t, g, bulkhead.PoolConfig{Max: 1, Backlog: 10})
		ctx := &watchedContext{Context: t.Context(), done: make(chan struct{})}
		let := make(chan struct{})
		for range 5 {
			_, err := watertight.Submit(p, ctx, func(ctx context.Context) (int, error) { return 0, holding(let)(ctx) })
			require.NoError(t, err)
		}
		assert.NotZero(t, ctx.watchers.Load())
		close(let)
		require.NoError(t, g.Drain(t.Context()))
		assert.Zero(t, ctx.watchers.Load())
	})
}

// The task begins just when the Guard has begun to watch its context.
func TestPoolLetsGoOfATaskThatBeginsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named, watertight.WithHooks(new(story).hooks("one")))
		p := pool(t, g, bulkhead.PoolConfig{Max: 1, Backlog: 1})
		let, begun := make(chan struct{}), make(chan struct{})
		go func() { _ = p.Do(t.Context(), holding(let)) }()
		synctest.Wait()
		ctx := &watchedContext{Context: t.Context(), done: make(chan struct{})}
		ctx.meanwhile = func(n int64) {
			if n == 2 { // the first is the pool's
				close(let)
				<-begun
			}
		}
		f, err := watertight.Submit(p, ctx, func(context.Context) (int, error) { close(begun); return 7, nil })
		require.NoError(t, err)
		got, err := f.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 7, got)
		assert.EqualValues(t, 2, ctx.asked.Load())
		assert.Zero(t, ctx.watchers.Load())
	})
}

// A watchedContext counts who waits for its end, as [context.AfterFunc] asks it to.
type watchedContext struct {
	context.Context
	done      chan struct{}
	asked     atomic.Int64
	watchers  atomic.Int64
	meanwhile func(n int64) // called by the n-th AfterFunc; nil: none
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(func()) func() bool {
	c.watchers.Add(1)
	if n := c.asked.Add(1); c.meanwhile != nil {
		c.meanwhile(n)
	}
	return sync.OnceValue(func() bool { c.watchers.Add(-1); return true })
}

func TestPoolAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates; the run without it pins the allocations")
		return
	}
	g := watertight.New(nil)
	p := pool(t, g, bulkhead.PoolConfig{Core: 1, Max: 1})
	defer func() { _ = g.Drain(t.Context()) }()
	bare := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
	defer bare.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	there := testing.AllocsPerRun(1000, func() { _ = bare.Do(ctx, nothing) })
	here := testing.AllocsPerRun(1000, func() { _ = p.Do(ctx, nothing) })
	assert.Equal(t, there+2, here)
}

func BenchmarkPoolDo(b *testing.B) {
	g := watertight.New(nil)
	p := pool(b, g, bulkhead.PoolConfig{Core: 1, Max: 1})
	defer func() { _ = g.Drain(b.Context()) }()
	b.ReportAllocs()
	for b.Loop() {
		_ = p.Do(b.Context(), nothing)
	}
}

// Waits of tasks are counted as those of calls are, however they end, and also if no hook
// asks for them.
func TestPoolCountsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, named)
		p := pool(t, g, bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 3})
		let := make(chan struct{})
		go func() { _ = p.Do(t.Context(), holding(let)) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Do(t.Context(), nothing) }()
		go func() { _ = p.Do(ctx, nothing) }()
		_, err := watertight.Submit(p, ctx, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
		synctest.Wait()
		cancel()
		close(let)
		synctest.Wait()
		require.NoError(t, p.Do(t.Context(), nothing))
		assert.Equal(t, []watertight.WaitSnapshot{{UpToMs: 1, Count: 3}}, compartment(t, g, "works", "").Waits)
		require.NoError(t, g.Drain(t.Context()))
	})
}
