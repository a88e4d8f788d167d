package breaker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/breaker"
)

// tick is the grain of time in the model. All durations are multiples of it, and
// so are the buckets of the windows tested and the slots of the overdue rule, so
// that these are exact.
const tick = 100 * time.Millisecond

// model is the breaker written naively. It lives through every tick, so nothing
// is ever caught up with, and it computes every rate from a log of all outcomes,
// so nothing is ever summed up or evicted.
type model struct {
	c   breaker.Config // with every default filled in, and the slow call rule on
	now time.Duration  // since New

	state   breaker.State
	period  int
	since   time.Duration
	openFor time.Duration
	attempt int
	denied  uint64

	log      []ended // since the window was last emptied
	probeLog []ended // of the latest half-open
	byProbes bool
	permits  int
	enough   int // so many probes decide
	probes   []*modelCall

	calls      []*modelCall    // let in and not ended
	responses  []time.Duration // of this period
	askedUntil time.Duration

	changes []breaker.Transition
}

type ended struct {
	at           time.Duration
	failed, slow bool
}

type modelCall struct {
	call     breaker.Call // the real one
	period   int
	probe    bool
	start    time.Duration
	waiting  time.Duration // since when the breaker has been waiting for what it waits for
	inFlight bool          // of a probe: neither ended nor given up

	paused, responded bool
}

func newModel(c breaker.Config) *model {
	m := &model{c: c, state: c.InitialState, period: 1}
	switch m.state {
	case breaker.Open:
		m.attempt, m.openFor = 1, c.OpenFor[0]
	case breaker.ForcedOpen:
		m.attempt = 1
	case breaker.HalfOpen:
		m.attempt = 1
		m.beginProbes()
	}
	return m
}

func (m *model) beginProbes() {
	m.permits, m.probeLog, m.byProbes = m.c.HalfOpen.Calls, nil, true
	m.enough = min(m.c.MinCalls, m.c.HalfOpen.Calls)
}

// window returns what is in it.
func (m *model) window() []ended {
	if n := m.c.Window.Calls; n > 0 {
		return m.log[max(0, len(m.log)-n):]
	}
	return slices.DeleteFunc(slices.Clone(m.log), func(e ended) bool {
		return m.now-e.at >= m.c.Window.Time
	})
}

// figures counts what is in view.
func (m *model) figures() (failureRate, slowRate float64, calls, failed, slow int) {
	inView, enough := m.window(), m.c.MinCalls
	if m.byProbes {
		inView, enough = m.probeLog, m.enough
	}
	for _, e := range inView {
		if e.failed {
			failed++
		}
		if e.slow {
			slow++
		}
	}
	calls = len(inView)
	if calls < enough {
		return -1, -1, calls, failed, slow
	}
	percent := func(n int) float64 { return 100 * float64(n) / float64(calls) }
	return percent(failed), percent(slow), calls, failed, slow
}

// slot numbers the eighths of SlowCall in this period.
func (m *model) slot(at time.Duration) int { return int((at - m.since) / (m.c.SlowCall / 8)) }

func (m *model) isLate(c *modelCall) bool {
	if m.c.NoOverdue || c.period != m.period || c.paused || c.responded {
		return false
	}
	if c.probe {
		return m.now-c.waiting > m.c.SlowCall
	}
	return m.slot(m.now)-m.slot(c.waiting) > 8
}

// overdue counts for the overdue rule, one call at a time.
func (m *model) overdue() (late, prompt int) {
	if m.c.NoOverdue {
		return 0, 0
	}
	switch m.state {
	case breaker.HalfOpen:
		for _, p := range m.probes {
			if m.isLate(p) {
				late++
			}
		}
	case breaker.Closed, breaker.MetricsOnly:
		for _, c := range m.calls {
			if m.isLate(c) {
				late++
			}
		}
		for _, r := range m.responses {
			if m.slot(m.now)-m.slot(r) <= 8 {
				prompt++
			}
		}
	}
	return late, prompt
}

func (m *model) verdict() breaker.Cause {
	failureRate, slowRate, _, _, _ := m.figures()
	if failureRate >= m.c.FailureRate {
		return breaker.CauseFailureRate
	}
	if slowRate >= m.c.SlowCallRate {
		return breaker.CauseSlowCallRate
	}
	return 0
}

func (m *model) move(to breaker.State, cause breaker.Cause, openFor time.Duration) {
	from := m.state
	failureRate, slowRate, calls, _, _ := m.figures()
	late, prompt := m.overdue()
	m.state, m.since = to, m.now
	m.period++
	m.responses = nil
	for _, p := range m.probes {
		p.inFlight = false
	}
	m.probes = nil
	switch to {
	case breaker.Open:
		m.openFor = openFor
		if openFor == 0 {
			m.attempt++
			m.openFor = m.c.OpenFor[min(m.attempt, len(m.c.OpenFor))-1]
			if m.askedUntil > m.now && m.c.MaxRetryAfter > 0 && cause != breaker.CauseForced {
				m.openFor = min(m.askedUntil-m.now, m.c.MaxRetryAfter)
			}
		}
	case breaker.HalfOpen:
		m.beginProbes()
	default:
		m.log, m.byProbes = nil, false
		if to == breaker.ForcedOpen {
			m.attempt++
		} else {
			m.attempt = 0
		}
	}
	m.askedUntil = 0
	if from == to {
		return
	}
	tr := breaker.Transition{
		From: from, To: to, Cause: cause, Attempt: m.attempt,
		FailureRate: failureRate, SlowCallRate: slowRate, Calls: calls,
		Overdue: late, Responded: prompt,
	}
	if to == breaker.Open {
		tr.OpenFor = m.openFor
	}
	m.changes = append(m.changes, tr)
	m.changes[len(m.changes)-1].At = time.Time{}.Add(m.now)
}

func (m *model) endProbe(p *modelCall, o breaker.Outcome, slow bool) {
	if !p.inFlight {
		return
	}
	p.inFlight = false
	m.probes = slices.DeleteFunc(m.probes, func(q *modelCall) bool { return q == p })
	if o == breaker.Ignored {
		m.permits++
		return
	}
	m.probeLog = append(m.probeLog, ended{m.now, o == breaker.Failure, slow})
	if cause := m.verdict(); cause != 0 {
		m.move(breaker.Open, cause, 0)
	} else if !m.reopen() && len(m.probeLog) >= m.enough {
		m.move(breaker.Closed, breaker.CauseProbes, 0)
	}
}

// reopen has the overdue probes count as slow, if that opens the breaker.
func (m *model) reopen() bool {
	late, _ := m.overdue()
	if late == 0 {
		return false
	}
	ended0 := slices.Clone(m.probeLog)
	for range late {
		m.probeLog = append(m.probeLog, ended{m.now, false, true})
	}
	switch cause := m.verdict(); cause {
	case breaker.CauseFailureRate:
		m.move(breaker.Open, cause, 0)
	case breaker.CauseSlowCallRate:
		m.move(breaker.Open, breaker.CauseOverdue, 0)
	default:
		m.probeLog = ended0
		return false
	}
	return true
}

// judge is what is done when somebody looks.
func (m *model) judge() {
	late, prompt := m.overdue()
	enough := m.c.MinCalls
	if m.c.OverdueLimit > 0 {
		enough = min(enough, m.c.OverdueLimit)
	}
	switch m.state {
	case breaker.Closed:
		if late >= enough && 100*float64(late)/float64(late+prompt) >= m.c.SlowCallRate {
			m.move(breaker.Open, breaker.CauseOverdue, 0)
		}
	case breaker.HalfOpen:
		m.reopen()
	}
}

// awaitAnew has the wait for a call begin now. Of probes whose wait is over at the
// same instant, the one that has waited since the earlier event is given up first.
func (m *model) awaitAnew(call *modelCall) {
	call.waiting, call.paused = m.now, false
	if i := slices.Index(m.probes, call); i >= 0 {
		m.probes = append(slices.Delete(m.probes, i, i+1), call)
	}
}

// tick lives through one tick.
func (m *model) tick() {
	m.now += tick
	half := m.c.HalfOpen
	switch m.state {
	case breaker.Open:
		if m.c.AutoHalfOpen && m.now-m.since == m.openFor {
			m.move(breaker.HalfOpen, breaker.CauseOpenElapsed, 0)
		}
	case breaker.HalfOpen:
		for _, p := range slices.Clone(m.probes) {
			if half.ProbeTimeout > 0 && m.now-p.waiting == half.ProbeTimeout {
				m.endProbe(p, breaker.Failure, true)
			}
		}
		if m.state == breaker.HalfOpen && half.MaxWait > 0 && m.now-m.since == half.MaxWait {
			m.move(half.MaxWaitTarget, breaker.CauseHalfOpenElapsed, 0)
		}
	}
}

// configure puts c in force. What it would have had end by now ends now.
func (m *model) configure(c breaker.Config) {
	m.judge()
	old := m.c
	m.log = m.window()
	if (old.Window.Calls > 0) != (c.Window.Calls > 0) {
		m.log = nil
	}
	m.c = c
	switch m.state {
	case breaker.Closed, breaker.MetricsOnly:
		if old.NoOverdue != c.NoOverdue || !c.NoOverdue && old.SlowCall != c.SlowCall {
			m.since, m.responses = m.now, nil
			m.period++
		}
	case breaker.HalfOpen:
		for _, p := range slices.Clone(m.probes) {
			if d := c.HalfOpen.ProbeTimeout; d > 0 && m.now-p.waiting >= d {
				m.endProbe(p, breaker.Failure, true)
			}
		}
		if d := c.HalfOpen.MaxWait; m.state == breaker.HalfOpen && d > 0 && m.now-m.since >= d {
			m.move(c.HalfOpen.MaxWaitTarget, breaker.CauseHalfOpenElapsed, 0)
		}
	case breaker.Open:
		if c.AutoHalfOpen && m.now-m.since >= m.openFor {
			m.move(breaker.HalfOpen, breaker.CauseOpenElapsed, 0)
		}
	}
	m.judge()
}

// allow returns nil if the call is refused.
func (m *model) allow() *modelCall {
	m.judge()
	if m.state == breaker.Open && m.now-m.since >= m.openFor {
		m.move(breaker.HalfOpen, breaker.CauseOpenElapsed, 0)
	}
	call := &modelCall{period: m.period, start: m.now, waiting: m.now}
	switch {
	case m.state == breaker.HalfOpen && m.permits > 0:
		m.permits--
		call.probe, call.inFlight = true, true
		m.probes = append(m.probes, call)
	case m.state == breaker.HalfOpen, m.state == breaker.Open, m.state == breaker.ForcedOpen:
		m.denied++
		return nil
	}
	m.calls = append(m.calls, call)
	return call
}

func (m *model) done(call *modelCall, o breaker.Outcome, took time.Duration) {
	slow := took > m.c.SlowCall
	m.calls = slices.DeleteFunc(m.calls, func(c *modelCall) bool { return c == call })
	if call.period == m.period && !call.responded && o != breaker.Ignored {
		m.responses = append(m.responses, m.now)
	}
	switch {
	case call.period != m.period:
	case call.probe:
		m.endProbe(call, o, slow)
	case o == breaker.Ignored || m.state == breaker.Disabled:
	default:
		m.log = append(m.log, ended{m.now, o == breaker.Failure, slow})
		if cause := m.verdict(); cause != 0 && m.state == breaker.Closed {
			m.move(breaker.Open, cause, 0)
		}
	}
	m.judge()
}

func (m *model) stale(call *modelCall) bool {
	m.judge()
	return call.period != m.period || call.probe && !call.inFlight
}

func (m *model) snapshot() breaker.Snapshot {
	m.judge()
	s := breaker.Snapshot{State: m.state, Attempt: m.attempt, Denied: m.denied}
	s.FailureRate, s.SlowCallRate, s.Calls, s.Failed, s.Slow = m.figures()
	s.Overdue, s.Responded = m.overdue()
	switch m.state {
	case breaker.Open:
		s.OpenRemaining = max(0, m.openFor-(m.now-m.since))
	case breaker.HalfOpen:
		s.ProbesLeft = m.permits
	}
	return s
}

func ticks(from, to int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * tick })
}

var configs = rapid.Custom(func(t *rapid.T) breaker.Config {
	c := breaker.Config{
		NoOverdue:    true,
		FailureRate:  rapid.SampledFrom([]float64{10, 33.34, 50, 100}).Draw(t, "failureRate"),
		SlowCallRate: rapid.SampledFrom([]float64{25, 80, 100}).Draw(t, "slowCallRate"),
		OpenFor:      rapid.SliceOfN(ticks(1, 20), 1, 3).Draw(t, "openFor"),
		HalfOpen: breaker.HalfOpenConfig{
			Calls:         rapid.IntRange(1, 4).Draw(t, "probes"),
			ProbeTimeout:  rapid.OneOf(rapid.Just(time.Duration(-1)), ticks(1, 20)).Draw(t, "probeTimeout"),
			MaxWait:       rapid.OneOf(rapid.Just(time.Duration(0)), ticks(1, 20)).Draw(t, "maxWait"),
			MaxWaitTarget: rapid.SampledFrom([]breaker.State{breaker.Open, breaker.Closed}).Draw(t, "maxWaitTarget"),
		},
		MaxRetryAfter: rapid.SampledFrom([]time.Duration{0, 5 * tick, 30 * tick}).Draw(t, "maxRetryAfter"),
		AutoHalfOpen:  rapid.Bool().Draw(t, "auto"),
		InitialState: rapid.Map(rapid.IntRange(int(breaker.Closed), int(breaker.ForcedOpen)),
			func(i int) breaker.State { return breaker.State(i) }).Draw(t, "initialState"),
	}
	if c.NoOverdue = rapid.IntRange(0, 2).Draw(t, "overdue") == 0; c.NoOverdue {
		c.SlowCall = ticks(1, 5).Draw(t, "slowCall")
	} else {
		c.SlowCall = 8 * ticks(1, 2).Draw(t, "slot")
		c.OverdueLimit = rapid.IntRange(0, 4).Draw(t, "overdueLimit")
	}
	if rapid.Bool().Draw(t, "timeWindow") {
		c.Window.Time = time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second
		c.MinCalls = rapid.IntRange(1, 6).Draw(t, "minCalls")
	} else {
		c.Window.Calls = rapid.IntRange(1, 70).Draw(t, "calls")
		c.MinCalls = rapid.IntRange(1, min(6, c.Window.Calls)).Draw(t, "minCalls")
	}
	return c
})

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs.Draw(t, "config")
		rapid.SyncTest(t, func(t *rapid.T) {
			var changes []breaker.Transition
			start := time.Now()
			c.OnTransition = func(tr breaker.Transition) {
				tr.Context, tr.At = nil, time.Time{}.Add(tr.At.Sub(start))
				changes = append(changes, tr)
			}
			b, m := breaker.New(c), newModel(c)
			ctx := context.Background()
			var out []*modelCall
			epoch, fields := b.Epoch()

			// pick takes a call out of those that have not ended; nil if there is
			// none.
			pick := func(t *rapid.T) *modelCall {
				if len(out) == 0 {
					return nil
				}
				return rapid.SampledFrom(out).Draw(t, "call")
			}
			outcome := rapid.SampledFrom([]breaker.Outcome{breaker.Success, breaker.Success, breaker.Failure, breaker.Ignored})
			advance := func(d time.Duration) {
				time.Sleep(d)
				for range d / tick {
					m.tick()
				}
			}
			allow := func(t *rapid.T) *modelCall {
				call, err := b.Allow(ctx)
				want := m.allow()
				require.Equal(t, want != nil, err == nil)
				require.Equal(t, m.state, call.State())
				if want == nil {
					require.Equal(t, m.snapshot().OpenRemaining, call.Remaining())
					return nil
				}
				require.Zero(t, call.Remaining())
				want.call = call
				return want
			}

			look := func(t *rapid.T) {
				require.Equal(t, m.snapshot(), b.Snapshot())
				require.Equal(t, m.snapshot().OpenRemaining, b.Remaining())
				// Rounds that nobody looked at are cut to 64, 128 changes.
				want := m.changes
				if cut := len(want) - 120; cut > 0 {
					want = want[cut:]
					require.Greater(t, len(changes), len(want))
					require.Less(t, len(changes), 200)
					changes = changes[len(changes)-len(want):]
				}
				require.Equal(t, want, changes)
				m.changes, changes = nil, nil
			}
			idled := false

			t.Repeat(map[string]func(*rapid.T){
				"allow": func(t *rapid.T) {
					if call := allow(t); call != nil {
						out = append(out, call)
					}
				},
				"call": func(t *rapid.T) {
					if call := allow(t); call != nil {
						took := ticks(0, 6).Draw(t, "took")
						advance(took)
						o := outcome.Draw(t, "outcome")
						call.call.Done(ctx, o)
						m.done(call, o, took)
					}
				},
				"done": func(t *rapid.T) {
					if call := pick(t); call != nil {
						o := outcome.Draw(t, "outcome")
						call.call.Done(ctx, o)
						m.done(call, o, m.now-call.start)
						out = slices.DeleteFunc(out, func(c *modelCall) bool { return c == call })
					}
				},
				"doneIn": func(t *rapid.T) {
					if call := pick(t); call != nil {
						o, took := outcome.Draw(t, "outcome"), ticks(-1, 10).Draw(t, "took")
						call.call.DoneIn(ctx, o, took)
						m.done(call, o, took)
						out = slices.DeleteFunc(out, func(c *modelCall) bool { return c == call })
					}
				},
				"restart": func(t *rapid.T) {
					if call := pick(t); call != nil {
						call.call = call.call.Restart(context.Background())
						m.awaitAnew(call)
						call.start, call.responded = m.now, false
						m.judge()
					}
				},
				"pause": func(t *rapid.T) {
					if call := pick(t); call != nil {
						call.call = call.call.Pause(context.Background())
						if !call.responded {
							call.paused = true
							m.judge()
						}
					}
				},
				"responded": func(t *rapid.T) {
					if call := pick(t); call != nil {
						call.call = call.call.Responded(ctx)
						if !call.responded {
							m.awaitAnew(call)
							call.responded = true
							if call.period == m.period {
								m.responses = append(m.responses, m.now)
							}
						}
						m.judge()
					}
				},
				"retryAfter": func(t *rapid.T) {
					if call := pick(t); call != nil {
						wait := ticks(-1, 50).Draw(t, "wait")
						call.call.RetryAfter(wait)
						if m.c.MaxRetryAfter > 0 && wait > 0 {
							m.judge()
							if call.period == m.period {
								m.askedUntil = m.now + wait
							}
						}
					}
				},
				"limit": func(t *rapid.T) {
					limit := rapid.IntRange(0, 4).Draw(t, "limit")
					b.SetOverdueLimit(limit)
					m.c.OverdueLimit = limit
					m.judge()
				},
				"configure": func(t *rapid.T) {
					if rapid.IntRange(0, 2).Draw(t, "often not") == 0 {
						c := configs.Draw(t, "config")
						b.Configure(c)
						m.configure(c)
					}
				},
				"many": func(t *rapid.T) {
					for range rapid.IntRange(1, 6).Draw(t, "calls") {
						if call := allow(t); call != nil {
							out = append(out, call)
						}
					}
				},
				"quick": func(t *rapid.T) {
					for range rapid.IntRange(1, 20).Draw(t, "calls") {
						if call := allow(t); call != nil {
							o := outcome.Draw(t, "outcome")
							call.call.Done(ctx, o)
							m.done(call, o, 0)
						}
					}
				},
				"stale": func(t *rapid.T) {
					if call := pick(t); call != nil {
						require.Equal(t, m.stale(call), call.call.Stale())
					}
				},
				"advance": func(t *rapid.T) { advance(ticks(1, 25).Draw(t, "by")) },
				"idle": func(t *rapid.T) {
					look(t) // and afterwards, since of the changes the first may be missing
					advance(ticks(1000, 20000).Draw(t, "by"))
					idled = true
				},
				"reset": func(t *rapid.T) {
					if rapid.IntRange(0, 5).Draw(t, "often not") == 0 {
						b.Reset()
						m.judge()
						m.move(breaker.Closed, breaker.CauseReset, 0)
					}
				},
				"transition": func(t *rapid.T) {
					if rapid.IntRange(0, 5).Draw(t, "often not") > 0 {
						return
					}
					to := breaker.State(rapid.IntRange(int(breaker.Closed), int(breaker.ForcedOpen)).Draw(t, "to"))
					openFor := ticks(0, 20).Draw(t, "openFor")
					err := b.Transition(to, openFor)
					m.judge()
					if illegal[[2]breaker.State{m.state, to}] {
						require.ErrorIs(t, err, breaker.ErrIllegalTransition)
						return
					}
					require.NoError(t, err)
					m.move(to, breaker.CauseForced, openFor)
				},
				"": func(t *rapid.T) {
					// Whatever the gate stands for has changed with its epoch.
					if e, f := b.Epoch(); e == epoch {
						require.Equal(t, fields, f)
					} else {
						epoch, fields = e, f
					}
					// Looking empties the gate, and makes the changes that were due.
					if idled || rapid.IntRange(0, 3).Draw(t, "look") == 0 {
						look(t)
					}
					idled = false
				},
			})
		})
	})
}
