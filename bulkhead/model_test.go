package bulkhead_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/bulkhead"
)

// A model is a bulkhead without concurrency: a count, and a slice of those who
// wait. It runs beside a real one, in a bubble, and says before every step what
// each call must have been told after it.
type model struct {
	b     *bulkhead.Bulkhead
	want  bulkhead.Snapshot
	shut  bool
	queue []*modelCall
	held  []*modelCall
	calls []*modelCall // begun, and not yet seen to end
	drain []chan error
	stale bulkhead.Permit // the last one released
}

type modelCall struct {
	*call
	cancel  context.CancelFunc
	arrived time.Time
	maxWait time.Duration

	ended  bool
	err    error
	info   bulkhead.Info
	anyFig bool // the step leaves open which figures the call saw
}

func (m *model) end(c *modelCall, err error) {
	c.ended, c.err = true, err
	if c.info.Position > 0 {
		c.info.Waited = time.Since(c.arrived)
	}
	c.info.Limit, c.info.InFlight, c.info.Queued = m.want.Limit, m.want.InFlight, len(m.queue)
	switch err {
	case nil:
		m.want.Granted++
		m.held = append(m.held, c)
	case bulkhead.ErrFull:
		m.want.Full++
	case bulkhead.ErrWaitTimeout:
		m.want.TimedOut++
	case bulkhead.ErrClosed:
		m.want.Closed++
	default:
		m.want.Left++
	}
}

func (m *model) take(c *modelCall) {
	m.want.InFlight++
	m.want.Peak = max(m.want.Peak, m.want.InFlight)
	m.end(c, nil)
}

func (m *model) arrive(c *modelCall, dead bool) {
	switch {
	case dead:
		m.end(c, context.Canceled)
	case m.shut:
		m.end(c, bulkhead.ErrClosed)
	case m.want.InFlight < m.want.Limit && len(m.queue) == 0:
		m.take(c)
	case m.want.MaxWait > 0 && len(m.queue) < m.want.Backlog:
		m.queue = append(m.queue, c)
		c.arrived, c.maxWait = time.Now(), m.want.MaxWait
		c.info.Arrived, c.info.Position = c.arrived, len(m.queue)
	default:
		m.end(c, bulkhead.ErrFull)
	}
}

func (m *model) grant() {
	for len(m.queue) > 0 && m.want.InFlight < m.want.Limit {
		c := m.queue[0]
		m.queue = m.queue[1:]
		m.take(c)
	}
}

func (m *model) leave(c *modelCall) {
	m.queue = slices.DeleteFunc(m.queue, func(w *modelCall) bool { return w == c })
	m.end(c, context.Canceled)
	c.anyFig = true
}

func (m *model) close() {
	m.shut = true
	queue := m.queue
	m.queue = nil
	for _, c := range queue {
		m.end(c, bulkhead.ErrClosed)
	}
}

func (m *model) expire() {
	var late []*modelCall
	m.queue = slices.DeleteFunc(m.queue, func(c *modelCall) bool {
		if time.Since(c.arrived) < c.maxWait {
			return false
		}
		late = append(late, c)
		return true
	})
	for _, c := range late {
		m.end(c, bulkhead.ErrWaitTimeout)
		c.info.Waited = c.maxWait
		c.anyFig = true
	}
}

// check compares the real bulkhead, at rest, with the model.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	m.want.Queued = len(m.queue)
	require.Equal(t, m.want, m.b.Snapshot())
	m.calls = slices.DeleteFunc(m.calls, func(c *modelCall) bool {
		require.Equal(t, c.ended, c.isDone(), "has the call at position %d ended", c.info.Position)
		if !c.ended {
			return false
		}
		require.Equal(t, c.err, c.call.err)
		got := c.call.info
		if c.anyFig {
			got.Limit, got.InFlight, got.Queued = c.info.Limit, c.info.InFlight, c.info.Queued
		}
		require.Equal(t, c.info, got)
		require.Equal(t, c.err != nil, c.permit == bulkhead.Permit{})
		return true
	})
	for _, d := range m.drain {
		require.Equal(t, m.want.InFlight == 0, len(d) == 1, "has drain returned")
	}
}

func (m *model) begin(dead bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if dead {
		cancel()
	}
	c := &modelCall{cancel: cancel}
	m.arrive(c, dead)
	c.call = begin(ctx, m.b)
	m.calls = append(m.calls, c)
}

// drawFrom removes a random element, or returns nil if there is none: the step
// then does nothing. See pick.
func drawFrom(t *rapid.T, s *[]*modelCall, label string) *modelCall {
	if len(*s) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(*s)-1).Draw(t, label)
	c := (*s)[i]
	*s = slices.Delete(slices.Clone(*s), i, i+1)
	return c
}

func (m *model) release(t *rapid.T) {
	c := drawFrom(t, &m.held, "release")
	if c == nil {
		return
	}
	m.want.InFlight--
	m.grant()
	c.permit.Release()
	m.stale = c.permit
}

// blur is for the end of a step in which calls leave while others are granted.
// Who is granted is certain. Whether the leavers still counted as queued, or
// for a moment as in flight, when it happened is not.
func (m *model) blur(t *rapid.T) {
	for _, c := range m.held {
		c.anyFig = true
	}
	synctest.Wait()
	peak := m.b.Snapshot().Peak
	require.LessOrEqual(t, m.want.Peak, peak)
	require.LessOrEqual(t, peak, max(m.want.Peak, m.want.Limit))
	m.want.Peak = peak
}

func TestModel(t *testing.T) {
	for range 10 { // of rapid's usual 100 runs each, which take some 20 ms
		rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, runModel) })
	}
}

var config = rapid.Custom(func(t *rapid.T) bulkhead.Config {
	return bulkhead.Config{
		Limit:   rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "limit"),
		Backlog: rapid.SampledFrom([]int{8, 4, 1, 0}).Draw(t, "backlog"),
		MaxWait: rapid.SampledFrom([]time.Duration{4, 7, 1, 0}).Draw(t, "max wait") * time.Second,
	}
})

func runModel(t *rapid.T) {
	cfg := config.Draw(t, "config")
	m := &model{
		b:    bulkhead.New(cfg),
		want: bulkhead.Snapshot{Limit: cfg.Limit, Backlog: cfg.Backlog, MaxWait: cfg.MaxWait},
	}
	defer func() { // also after a failure: the bubble ends when its goroutines do
		for _, c := range m.calls {
			c.cancel()
		}
		m.b.Configure(bulkhead.Config{Limit: 1 << 20})
		for m.b.Snapshot().InFlight > 0 && len(m.held) > 0 {
			m.held[0].permit.Release()
			m.held = m.held[1:]
		}
	}()

	t.Repeat(map[string]func(*rapid.T){
		"arrive": func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "how many") {
				m.begin(false)
			}
		},
		"arrive dead": func(*rapid.T) { m.begin(true) },
		"try": func(t *rapid.T) {
			c := &modelCall{}
			switch {
			case m.shut:
				m.end(c, bulkhead.ErrClosed)
			case m.want.InFlight < m.want.Limit && len(m.queue) == 0:
				m.take(c)
			default:
				m.end(c, bulkhead.ErrFull)
			}
			p, err := m.b.TryAcquire()
			require.Equal(t, c.err, err)
			c.call = &call{permit: p}
		},
		"release": m.release,
		"release what is not out": func(t *rapid.T) {
			if m.want.InFlight == 0 && m.stale != (bulkhead.Permit{}) {
				require.Panics(t, m.stale.Release)
			}
		},
		"leave": func(t *rapid.T) {
			queue := slices.Clone(m.queue)
			if c := drawFrom(t, &queue, "leave"); c != nil {
				m.leave(c)
				c.cancel()
			}
		},
		"leave as a permit comes": func(t *rapid.T) {
			if len(m.held) == 0 || len(m.queue) == 0 {
				return
			}
			queue := slices.Clone(m.queue)
			c := drawFrom(t, &queue, "leave")
			m.leave(c)
			c.cancel()
			m.release(t)
			m.blur(t)
		},
		"some leave as the limit changes": func(t *rapid.T) {
			queue := slices.Clone(m.queue)
			leavers := min(len(queue), rapid.IntRange(1, 3).Draw(t, "leavers"))
			if leavers == 0 {
				return
			}
			for range leavers {
				c := drawFrom(t, &queue, "leave")
				m.leave(c)
				c.cancel()
			}
			limit := config.Draw(t, "config").Limit
			m.want.Limit = limit
			m.grant()
			m.b.Resize(limit)
			m.blur(t)
		},
		"cancel one that is inside": func(t *rapid.T) {
			held := slices.Clone(m.held)
			if c := drawFrom(t, &held, "cancel"); c != nil && c.cancel != nil {
				c.cancel()
			}
		},
		"resize": func(t *rapid.T) {
			m.want.Limit = config.Draw(t, "config").Limit
			m.grant()
			m.b.Resize(m.want.Limit)
		},
		"configure": func(t *rapid.T) {
			cfg := config.Draw(t, "config")
			m.want.Limit, m.want.Backlog, m.want.MaxWait = cfg.Limit, cfg.Backlog, cfg.MaxWait
			m.grant()
			m.b.Configure(cfg)
		},
		"time passes": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
			m.expire()
		},
		"close": func(t *rapid.T) {
			if seldom(t) {
				m.close()
				m.b.Close()
			}
		},
		"drain": func(t *rapid.T) {
			if seldom(t) {
				m.close()
				done := make(chan error, 1)
				m.drain = append(m.drain, done)
				go func() { done <- m.b.Drain(context.Background()) }()
			}
		},
		"": m.check,
	})
}
