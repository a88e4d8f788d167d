package bulkhead_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/bulkhead"
)

// A poolModel is a pool without concurrency: slices of those who run, wait in
// the backlog and wait at the door, and the moments at which workers became
// idle. It runs beside a real pool, in a bubble, and says before every step what
// each task and its submitter must have seen after it.
type poolModel struct {
	p      *bulkhead.Pool
	want   bulkhead.PoolSnapshot
	onFull onFullModel
	shut   bool

	run     []*poolTask
	backlog []*poolTask
	door    []*poolTask
	callers []*poolTask
	idle    []time.Time // since when; the longest first
	tasks   []*poolTask // not yet seen to end
	drain   []chan error
}

type onFullModel struct {
	name       string
	maxWait    time.Duration
	maxWaiters int
}

var (
	errTask     = errors.New("the task failed")
	errFallback = errors.New("the fallback failed")
	errPanic    = errors.New("stands for a panic")
	errGoexit   = errors.New("stands for a Goexit")
)

type poolTask struct {
	do     bool // by Do, else by Submit
	cancel context.CancelFunc
	dead   bool
	since  time.Time     // at the door
	wait   time.Duration // at the door

	// What the model expects.
	started   bool
	ended     bool  // the task: it has run, or never will
	err       error // of the future, or of Do if that has not left before
	returned  bool  // the submitter is back from Submit or Do
	submitErr error
	gone      bool // the submitter, with the task that it ran, which called Goexit

	// What was seen. The bubble is at rest when these are read.
	hasStarted  atomic.Bool
	finish      chan error
	hasReturned atomic.Bool
	f           *bulkhead.Future[int] // this and gotErr: only once it has returned
	gotErr      error
}

func (m *poolModel) submit(t *poolTask) {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.finish = cancel, make(chan error, 1)
	if t.dead {
		cancel()
	}
	m.arrive(t)
	m.tasks = append(m.tasks, t)
	fn := func(context.Context) error {
		t.hasStarted.Store(true)
		switch err := <-t.finish; err {
		case errPanic:
			panic("model")
		case errGoexit:
			runtime.Goexit()
			return nil
		default:
			return err
		}
	}
	go func() {
		defer func() { t.hasReturned.Store(true) }() // also after a Goexit
		if t.do {
			t.gotErr = m.p.Do(ctx, fn)
			return
		}
		t.f, t.gotErr = bulkhead.Submit(m.p, ctx, func(ctx context.Context) (int, error) { return 1, fn(ctx) })
	}()
}

// refuse ends a task that was not accepted.
func (t *poolTask) refuse(err error) { t.ended, t.returned, t.submitErr = true, true, err }

// end ends a task that was.
func (t *poolTask) end(err error) {
	t.ended, t.err = true, err
	if t.do && !t.returned {
		t.submitErr = err
	}
	t.returned = true
}

func (m *poolModel) arrive(t *poolTask) {
	switch {
	case t.dead:
		m.want.Left++
		t.refuse(context.Canceled)
	case m.shut:
		m.want.Closed++
		t.refuse(bulkhead.ErrClosed)
	case len(m.run) < m.want.Max && len(m.backlog) == 0 && len(m.door) == 0:
		m.start(t)
	case len(m.backlog) < m.want.Backlog:
		m.enqueue(t)
	case m.onFull.name == "caller runs":
		m.callers = append(m.callers, t)
		t.started = true
	case m.onFull.name == "discard":
		m.want.Discarded++
		t.end(bulkhead.ErrDiscarded)
	case m.onFull.name == "fallback":
		m.want.FellBack++
		t.end(errFallback)
	case m.onFull.name == "wait" && len(m.door) < m.onFull.maxWaiters:
		t.since, t.wait = time.Now(), m.onFull.maxWait
		m.door = append(m.door, t)
	default:
		m.want.Full++
		t.refuse(bulkhead.ErrFull)
	}
}

func (m *poolModel) start(t *poolTask) {
	if n := len(m.idle); n > 0 {
		m.idle = m.idle[:n-1]
	}
	m.run = append(m.run, t)
	m.want.Peak = max(m.want.Peak, len(m.run))
	t.started = true
	t.returned = !t.do
}

func (m *poolModel) enqueue(t *poolTask) {
	m.backlog = append(m.backlog, t)
	t.returned = !t.do
}

// settle moves whoever can move: this is all there is to fairness.
func (m *poolModel) settle() {
	for len(m.run) < m.want.Max && len(m.backlog)+len(m.door) > 0 {
		from := &m.backlog
		if len(m.backlog) == 0 {
			from = &m.door
		}
		t := (*from)[0]
		*from = (*from)[1:]
		m.start(t)
	}
	for len(m.door) > 0 && len(m.backlog) < m.want.Backlog {
		m.enqueue(m.door[0])
		m.door = m.door[1:]
	}
	for len(m.idle) > 0 && (m.shut || m.workers() > m.want.Max) {
		m.idle = m.idle[1:]
	}
	for len(m.idle) > 0 && m.workers() > m.want.Core && time.Since(m.idle[0]) >= m.want.KeepAlive {
		m.idle = m.idle[1:]
	}
}

func (m *poolModel) workers() int { return len(m.run) + len(m.idle) }

// pick draws one of s, or returns nil if there is none: the step then does
// nothing. It is not skipped, because rapid fails a run of a hundred skipped
// steps, and a fuzzer comes to choose nothing else.
func pick(t *rapid.T, s []*poolTask, label string) *poolTask {
	if len(s) == 0 {
		return nil
	}
	return s[rapid.IntRange(0, len(s)-1).Draw(t, label)]
}

func without(s []*poolTask, t *poolTask) []*poolTask {
	return slices.DeleteFunc(slices.Clone(s), func(o *poolTask) bool { return o == t })
}

func (m *poolModel) finish(t *poolTask, err error) {
	switch {
	case slices.Contains(m.callers, t):
		m.callers = without(m.callers, t)
		m.want.CallerRun++
		t.gone = err == errGoexit
	case err == nil:
		m.want.Completed++
	case err == errTask:
		m.want.Failed++
	default:
		m.want.Panicked++
	}
	if slices.Contains(m.run, t) {
		m.run = without(m.run, t)
		m.idle = append(m.idle, time.Now())
	}
	t.end(err)
	m.settle()
	t.finish <- err
}

func (m *poolModel) leave(t *poolTask) {
	t.dead = true
	switch {
	case slices.Contains(m.door, t):
		m.door = without(m.door, t)
		m.want.Left++
		t.refuse(context.Canceled)
	case slices.Contains(m.backlog, t):
		m.backlog = without(m.backlog, t)
		m.want.Left++
		t.end(context.Canceled)
	case slices.Contains(m.run, t) && t.do && !t.returned:
		t.returned, t.submitErr = true, context.Canceled
	}
	m.settle()
	t.cancel()
}

func (m *poolModel) expire() {
	for _, t := range m.door {
		if time.Since(t.since) >= t.wait {
			m.door = without(m.door, t)
			m.want.TimedOut++
			t.refuse(bulkhead.ErrWaitTimeout)
		}
	}
	m.settle()
}

func (m *poolModel) configure(cfg bulkhead.PoolConfig) {
	if cfg.Core < m.want.Core {
		surplus := max(0, m.workers()-m.want.Core)
		for i := min(surplus, len(m.idle)); i < len(m.idle); i++ {
			m.idle[i] = time.Now()
		}
	}
	m.want.Core, m.want.Max, m.want.Backlog, m.want.KeepAlive = cfg.Core, cfg.Max, cfg.Backlog, cfg.KeepAlive
	m.settle()
}

func (m *poolModel) close() {
	m.shut = true
	for _, t := range m.door {
		m.want.Closed++
		t.refuse(bulkhead.ErrClosed)
	}
	m.door = nil
	m.settle()
}

func (m *poolModel) closeNow() int {
	m.close()
	n := len(m.backlog)
	for _, t := range m.backlog {
		m.want.Closed++
		t.end(bulkhead.ErrClosed)
	}
	m.backlog = nil
	return n
}

// check compares the real pool, at rest, with the model.
func (m *poolModel) check(t *rapid.T) {
	synctest.Wait()
	m.want.Active, m.want.Idle, m.want.Workers = len(m.run), len(m.idle), m.workers()
	m.want.Queued, m.want.WaitingForRoom, m.want.CallerRunning = len(m.backlog), len(m.door), len(m.callers)
	m.want.Abandoned = 0
	for _, task := range m.run {
		if task.do && task.returned {
			m.want.Abandoned++
		}
	}
	require.Equal(t, m.want, m.p.Snapshot())
	for _, task := range m.tasks {
		require.Equal(t, task.started, task.hasStarted.Load(), "has it started")
		require.Equal(t, task.returned, task.hasReturned.Load(), "is its submitter back")
		if !task.returned || task.gone {
			continue
		}
		sameError(t, task.submitErr, task.gotErr)
		if task.f != nil {
			require.Equal(t, task.ended, isClosed(task.f.Done()), "is its future done")
			if task.ended {
				_, err := task.f.Wait(context.Background())
				sameError(t, task.err, err)
			}
		}
	}
	m.tasks = slices.DeleteFunc(m.tasks, func(task *poolTask) bool { return task.ended })
	for _, d := range m.drain {
		require.Equal(t, len(m.run)+len(m.backlog)+len(m.callers) == 0, len(d) == 1, "has drain returned")
	}
}

func sameError(t *rapid.T, want, got error) {
	if want != errPanic && want != errGoexit {
		require.Equal(t, want, got)
		return
	}
	var panicked *bulkhead.PanicError
	require.ErrorAs(t, got, &panicked)
	require.Equal(t, want == errGoexit, panicked.Value == nil)
}

func drawPool(t *rapid.T) (bulkhead.PoolConfig, onFullModel) {
	cfg := bulkhead.PoolConfig{
		Max:       rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "max"),
		Backlog:   rapid.SampledFrom([]int{2, 0, 1, 4}).Draw(t, "backlog"),
		KeepAlive: rapid.SampledFrom([]time.Duration{4, 7, 1, 0}).Draw(t, "keep-alive") * time.Second,
	}
	cfg.Core = rapid.IntRange(0, cfg.Max).Draw(t, "core")
	o := onFullModel{name: rapid.SampledFrom([]string{"wait", "caller runs", "abort", "discard", "fallback"}).Draw(t, "on full")}
	switch o.name {
	case "caller runs":
		cfg.OnFull = bulkhead.CallerRuns()
	case "discard":
		cfg.OnFull = bulkhead.Discard()
	case "fallback":
		cfg.OnFull = bulkhead.Fallback(func(context.Context) (int, error) { return 2, errFallback })
	case "wait":
		o.maxWait = time.Duration(rapid.IntRange(1, 5).Draw(t, "max wait")) * time.Second
		o.maxWaiters = rapid.IntRange(1, 4).Draw(t, "max waiters")
		cfg.OnFull = bulkhead.WaitForRoom(o.maxWait, o.maxWaiters)
	}
	return cfg, o
}

func TestPoolModel(t *testing.T) {
	for range 30 { // of rapid's usual 100 runs each, which take some 10 ms
		rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, runPoolModel) })
	}
}

// FuzzPoolModel looks for the same with schedules that are grown by coverage.
func FuzzPoolModel(f *testing.F) {
	f.Add(bytes.Repeat([]byte{20}, 9000)) // "finish" and nothing else, of no task
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { rapid.SyncTest(t, runPoolModel) }))
}

func runPoolModel(t *rapid.T) {
	cfg, onFull := drawPool(t)
	m := &poolModel{p: bulkhead.NewPool(cfg), onFull: onFull}
	m.want.Core, m.want.Max, m.want.Backlog, m.want.KeepAlive = cfg.Core, cfg.Max, cfg.Backlog, cfg.KeepAlive
	defer func() { // also after a failure: the bubble ends when its goroutines do
		m.p.CloseNow()
		for _, task := range m.tasks {
			task.cancel()
			close(task.finish)
		}
	}()
	drawErr := func(t *rapid.T) error {
		return rapid.SampledFrom([]error{nil, errTask, errPanic, errGoexit}).Draw(t, "how it ends")
	}
	working := func() []*poolTask { return slices.Concat(m.run, m.callers) }
	inside := func() []*poolTask {
		return slices.DeleteFunc(slices.Concat(m.backlog, m.door, m.run), func(t *poolTask) bool { return t.dead })
	}

	t.Repeat(map[string]func(*rapid.T){
		"submit": func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "how many") {
				m.submit(&poolTask{do: rapid.Bool().Draw(t, "do")})
				synctest.Wait() // they are to arrive in this order
			}
		},
		"submit dead": func(t *rapid.T) { m.submit(&poolTask{do: rapid.Bool().Draw(t, "do"), dead: true}) },
		"finish": func(t *rapid.T) {
			if who := pick(t, working(), "which"); who != nil {
				m.finish(who, drawErr(t))
			}
		},
		"leave": func(t *rapid.T) {
			if who := pick(t, inside(), "which"); who != nil {
				m.leave(who)
			}
		},
		// What left is not run, whether it was taken out or found dead in its turn.
		"leave the backlog as a worker comes": func(t *rapid.T) {
			who := pick(t, slices.DeleteFunc(slices.Clone(m.backlog), func(t *poolTask) bool { return t.dead }), "which")
			worker := pick(t, m.run, "worker")
			if who == nil || worker == nil {
				return
			}
			how := drawErr(t)
			m.leave(who)
			m.finish(worker, how)
		},
		"time passes": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
			m.expire()
		},
		"resize": func(t *rapid.T) {
			cfg, _ := drawPool(t)
			m.configure(bulkhead.PoolConfig{Core: cfg.Core, Max: cfg.Max, Backlog: m.want.Backlog, KeepAlive: m.want.KeepAlive})
			m.p.Resize(cfg.Core, cfg.Max)
		},
		"configure": func(t *rapid.T) {
			cfg, onFull := drawPool(t)
			m.onFull = onFull
			m.configure(cfg)
			m.p.Configure(cfg)
		},
		"close": func(t *rapid.T) {
			if seldom(t) {
				m.close()
				m.p.Close()
			}
		},
		"close now": func(t *rapid.T) {
			if seldom(t) {
				n := m.closeNow()
				require.Equal(t, n, m.p.CloseNow())
			}
		},
		"drain": func(t *rapid.T) {
			if seldom(t) {
				m.close()
				done := make(chan error, 1)
				m.drain = append(m.drain, done)
				go func() { done <- m.p.Drain(context.Background()) }()
			}
		},
		"": m.check,
	})
}

// seldom is false most of the times: little happens after a close.
func seldom(t *rapid.T) bool { return rapid.IntRange(0, 24).Draw(t, "seldom") == 12 }
