package watertight_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// The naive table: a slice of compartments, searched and judged anew for each
// question. Every breaker trips at the first failure, is open for modelOpen and
// lets one probe in.
const (
	modelMax   = 3
	modelIdle  = 20 * time.Second
	modelLimit = 2
	modelOpen  = 5 * time.Second
)

var modelPolicies = policy.Config{
	Defaults: policy.Defaults{MaxCompartments: modelMax, Idle: modelIdle},
	Policies: []policy.Policy{{
		Name:     "hosts",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: modelLimit},
		Breaker:  &policy.Breaker{MinCalls: 1, Window: policy.Window{Calls: 1}, OpenFor: modelOpen, HalfOpen: policy.HalfOpen{Calls: 1, ProbeTimeout: -1}},
	}},
}

type modelTable struct {
	g        *watertight.Guard
	byUse    []*modelCompartment // those with a key of their own, the least recently left first
	overflow *modelCompartment
	calls    []*modelCall
}

type modelCompartment struct {
	key     string
	inside  int
	left    time.Time // when the last call left it, or was refused
	granted uint64
	full    uint64
	open    uint64

	state   string
	period  int
	until   time.Time // in open
	probing bool      // in half-open: the probe is out
}

type modelCall struct {
	watertight.Call
	in     *modelCompartment
	period int
}

func (c *modelCompartment) atRest() bool { return c.inside == 0 && c.state == "closed" }

func (c *modelCompartment) enter(state string) {
	c.state, c.probing = state, false
	c.period++
	if state == "open" {
		c.until = time.Now().Add(modelOpen)
	}
}

func (m *modelTable) find(key string) *modelCompartment {
	for _, c := range m.byUse {
		if c.key == key {
			return c
		}
	}
	m.byUse = slices.DeleteFunc(m.byUse, func(c *modelCompartment) bool {
		return c.atRest() && time.Since(c.left) > modelIdle
	})
	if len(m.byUse) == modelMax {
		if i := slices.IndexFunc(m.byUse, (*modelCompartment).atRest); i >= 0 {
			m.byUse = slices.Delete(m.byUse, i, i+1)
		}
	}
	c := &modelCompartment{key: key, state: "closed"}
	switch {
	case len(m.byUse) < modelMax:
		m.byUse = append(m.byUse, c)
		return c
	case m.overflow == nil:
		c.key = "(overflow)"
		m.overflow = c
	}
	return m.overflow
}

// touch is what every call does to its compartment's turn when it leaves.
func (m *modelTable) touch(c *modelCompartment) {
	c.left = time.Now()
	if i := slices.Index(m.byUse, c); i >= 0 {
		m.byUse = append(slices.Delete(m.byUse, i, i+1), c)
	}
}

func (m *modelTable) arrive(t *rapid.T, key string) {
	in := m.find(key)
	call, err := m.g.Admit(context.Background(), to(key))
	if in.state == "open" && !time.Now().Before(in.until) {
		in.enter("half_open")
	}
	switch {
	case in.state == "open", in.state == "half_open" && in.probing:
		require.ErrorIs(t, err, breaker.ErrOpen)
		in.open++
		m.touch(in)
	case in.inside == modelLimit:
		require.ErrorIs(t, err, bulkhead.ErrFull)
		in.full++
		m.touch(in)
	default:
		require.NoError(t, err)
		in.inside++
		in.granted++
		in.probing = in.state == "half_open"
		m.calls = append(m.calls, &modelCall{call, in, in.period})
	}
}

func (m *modelTable) leave(t *rapid.T, outcome string) {
	if len(m.calls) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.calls)-1).Draw(t, "call")
	c := m.calls[i]
	m.calls = slices.Delete(m.calls, i, i+1)
	switch outcome {
	case "success":
		c.SettleStatus(200)
	case "failure":
		c.SettleFailure()
	}
	c.Release()

	in := c.in
	in.inside--
	m.touch(in)
	if c.period != in.period {
		return // a late result moves nothing
	}
	switch {
	case outcome == "failure":
		in.enter("open")
	case in.state == "half_open" && outcome == "success":
		in.enter("closed")
	case in.state == "half_open":
		in.probing = false
	}
}

func (m *modelTable) check(t *rapid.T) {
	var want []*modelCompartment
	want = append(want, m.byUse...)
	if m.overflow != nil {
		want = append(want, m.overflow)
	}
	slices.SortFunc(want, func(a, b *modelCompartment) int { return strings.Compare(a.key, b.key) })
	got := m.g.Snapshot().Compartments
	keys := make([]string, len(got))
	for i, c := range got {
		keys[i] = strings.TrimSuffix(strings.TrimPrefix(c.Key, "http://"), ":80")
	}
	wantKeys := make([]string, len(want))
	for i, c := range want {
		wantKeys[i] = c.key
	}
	require.Equal(t, wantKeys, keys)
	for i, w := range want {
		g := got[i]
		require.Equal(t, w.state, g.Breaker.State, "state of %s", w.key)
		require.EqualValues(t, w.inside, g.Bulkhead.InFlight, "in flight in %s", w.key)
		require.Equal(t, []uint64{w.granted, w.full, w.open}, []uint64{g.Granted, g.Rejected["full"], g.Rejected["open"]}, "books of %s", w.key)
	}
}

// E53: which compartments there are, and what becomes of each call, is what a
// table without concurrency, without a list and without a clock at each turn
// says.
func TestTableModel(t *testing.T) {
	set, err := policy.New(modelPolicies)
	require.NoError(t, err)
	for range 5 { // of rapid's usual 100 runs each
		rapid.Check(t, func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) {
				m := &modelTable{g: watertight.New(set)}
				key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
				t.Repeat(map[string]func(*rapid.T){
					"arrive":                  func(t *rapid.T) { m.arrive(t, key.Draw(t, "key")) },
					"arrive, as often":        func(t *rapid.T) { m.arrive(t, key.Draw(t, "key")) },
					"success":                 func(t *rapid.T) { m.leave(t, "success") },
					"success, as often":       func(t *rapid.T) { m.leave(t, "success") },
					"failure":                 func(t *rapid.T) { m.leave(t, "failure") },
					"end without an outcome":  func(t *rapid.T) { m.leave(t, "") },
					"time passes":             func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 6).Draw(t, "seconds")) * time.Second) },
					"time passes, until idle": func(*rapid.T) { time.Sleep(modelIdle + 1) },
					"":                        m.check,
				})
			})
		})
	}
}
