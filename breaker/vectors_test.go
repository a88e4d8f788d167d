package breaker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// vectors is testdata/breaker.json: what resilience4j does, and in expect_strict
// what this package does instead.
type vectors struct {
	About     string          `json:"about"`
	Semantics []string        `json:"semantics"`
	Defaults  json.RawMessage `json:"defaults"`
	Vectors   []vector        `json:"vectors"`
}

type vector struct {
	ID          string       `json:"id"`
	Title       string       `json:"title"`
	Covers      []string     `json:"covers"`
	Class       string       `json:"class"`
	Note        string       `json:"note"`
	Granularity string       `json:"granularity"`
	Config      vectorConfig `json:"config"`
	Steps       []vectorStep `json:"steps"`
}

type vectorConfig struct {
	WindowType           string  `json:"window_type"`
	WindowSize           int     `json:"window_size"`
	MinCalls             int     `json:"min_calls"`
	FailureRateThreshold float64 `json:"failure_rate_threshold"`
	SlowRateThreshold    float64 `json:"slow_rate_threshold"`
	SlowCallDurationMs   int     `json:"slow_call_duration_ms"`
	PermittedHalfOpen    int     `json:"permitted_half_open"`
	WaitOpenMs           []int   `json:"wait_open_ms"`
	MaxWaitHalfOpenMs    int     `json:"max_wait_half_open_ms"`
	MaxWaitTarget        string  `json:"max_wait_half_open_target"`
	AutoHalfOpen         bool    `json:"auto_half_open"`
	InitialState         string  `json:"initial_state"`
	StartEpochMs         int64   `json:"start_epoch_ms"`
}

type vectorStep struct {
	Op           string        `json:"op"`
	ID           string        `json:"id"`
	Outcome      string        `json:"outcome"`
	Ms           int           `json:"ms"`
	To           string        `json:"to"`
	WaitMs       int           `json:"wait_ms"`
	Expect       *vectorExpect `json:"expect"`
	ExpectStrict *vectorExpect `json:"expect_strict"`
}

type vectorExpect struct {
	State           string   `json:"state"`
	FailureRate     float64  `json:"failure_rate"`
	SlowRate        float64  `json:"slow_rate"`
	Calls           int      `json:"calls"`
	Failed          int      `json:"failed"`
	Slow            int      `json:"slow"`
	DeniedTotal     uint64   `json:"denied_total"`
	OpenRemainingMs *int64   `json:"open_remaining_ms"`
	Attempt         *int     `json:"attempt"`
	PermitsLeft     *int     `json:"permits_left"`
	Permitted       *bool    `json:"permitted"`
	Transitions     []string `json:"transitions"`
	Error           *string  `json:"error"`
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/breaker.json")
	require.NoError(t, err)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // a field not looked at is a rule not tested
	var file vectors
	require.NoError(t, dec.Decode(&file))
	require.GreaterOrEqual(t, len(file.Vectors), 52)
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { v.run(t) })
		})
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func stateNamed(t *testing.T, name string) breaker.State {
	for s := breaker.Closed; s <= breaker.ForcedOpen; s++ {
		if s.String() == name {
			return s
		}
	}
	require.Failf(t, "unknown state", "%q", name)
	return 0
}

func outcomeNamed(t *testing.T, name string) breaker.Outcome {
	outcomes := map[string]breaker.Outcome{
		"ok": breaker.Success, "err_as_success": breaker.Success,
		"err": breaker.Failure, "bad_result": breaker.Failure,
		"ignored": breaker.Ignored,
	}
	o, ok := outcomes[name]
	require.Truef(t, ok, "unknown outcome %q", name)
	return o
}

func (c vectorConfig) config(t *testing.T) breaker.Config {
	conf := breaker.Config{
		FailureRate:  c.FailureRateThreshold,
		SlowCall:     ms(c.SlowCallDurationMs),
		SlowCallRate: c.SlowRateThreshold,
		MinCalls:     c.MinCalls,
		NoOverdue:    true, // resilience4j has no such rule
		HalfOpen: breaker.HalfOpenConfig{
			Calls:         c.PermittedHalfOpen,
			ProbeTimeout:  -1, // resilience4j has none
			MaxWait:       ms(c.MaxWaitHalfOpenMs),
			MaxWaitTarget: stateNamed(t, c.MaxWaitTarget),
		},
		AutoHalfOpen: c.AutoHalfOpen,
		InitialState: stateNamed(t, c.InitialState),
	}
	switch c.WindowType {
	case "count":
		conf.Window.Calls = c.WindowSize
	case "time":
		conf.Window.Time = time.Duration(c.WindowSize) * time.Second
	default:
		require.Failf(t, "unknown window type", "%q", c.WindowType)
	}
	for _, wait := range c.WaitOpenMs {
		conf.OpenFor = append(conf.OpenFor, ms(wait))
	}
	return conf
}

func (v vector) run(t *testing.T) {
	time.Sleep(time.Until(time.UnixMilli(v.Config.StartEpochMs)))
	var published []string
	conf := v.Config.config(t)
	conf.OnTransition = func(tr breaker.Transition) {
		published = append(published, tr.From.String()+">"+tr.To.String())
	}
	b := breaker.New(conf)
	calls := map[string]breaker.Call{}

	for i, step := range v.Steps {
		published = nil
		var permitted *bool
		var failure error
		acquire := func() breaker.Call {
			call, err := b.Allow(t.Context())
			ok := err == nil
			require.True(t, ok || errors.Is(err, breaker.ErrOpen))
			permitted = &ok
			return call
		}
		switch step.Op {
		case "call":
			if call := acquire(); *permitted {
				time.Sleep(ms(step.Ms))
				call.Done(t.Context(), outcomeNamed(t, step.Outcome))
			}
		case "acquire":
			calls[step.ID] = acquire()
		case "finish":
			calls[step.ID].Done(t.Context(), outcomeNamed(t, step.Outcome))
		case "release":
			calls[step.ID].Cancel()
		case "advance":
			time.Sleep(ms(step.Ms))
		case "transition":
			failure = b.Transition(stateNamed(t, step.To), ms(step.WaitMs))
		case "reset":
			b.Reset()
		case "observe":
		default:
			require.Failf(t, "unknown op", "%q", step.Op)
		}

		want := step.Expect
		if step.ExpectStrict != nil {
			want = step.ExpectStrict
		}
		require.NotNil(t, want)
		got := b.Snapshot()
		where := []any{"step %d: %s %s", i, step.Op, step.ID}
		assert.Equal(t, want.State, got.State.String(), where...)
		assert.InDelta(t, want.FailureRate, got.FailureRate, 0.001, where...)
		assert.InDelta(t, want.SlowRate, got.SlowCallRate, 0.001, where...)
		assert.Equal(t, want.Calls, got.Calls, where...)
		assert.Equal(t, want.Failed, got.Failed, where...)
		assert.Equal(t, want.Slow, got.Slow, where...)
		assert.Equal(t, want.DeniedTotal, got.Denied, where...)
		assert.Equal(t, want.Transitions, published, where...)
		assert.Equal(t, want.Permitted, permitted, where...)
		assert.Equal(t, want.Error != nil, errors.Is(failure, breaker.ErrIllegalTransition), where...)
		if want.OpenRemainingMs != nil {
			assert.Equal(t, *want.OpenRemainingMs, got.OpenRemaining.Milliseconds(), where...)
		}
		if want.Attempt != nil {
			assert.Equal(t, *want.Attempt, got.Attempt, where...)
		}
		if want.PermitsLeft != nil {
			assert.Equal(t, *want.PermitsLeft, got.ProbesLeft, where...)
		}
	}
}
