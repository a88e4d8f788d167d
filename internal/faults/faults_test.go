package faults

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
)

// A fault is one way in which a network misbehaves.
type fault struct {
	name     string
	toxics   []string
	down     bool          // there is no listener
	patience time.Duration // of each caller; 0: as much as it takes
	uses     []use         // nil: all
	breaker  string        // strict: it has to open the breaker; patient: every call has to end well
}

const enough = time.Minute

var faults = []fault{
	{name: "latency and jitter", breaker: patient,
		toxics: []string{`{"type": "latency", "attributes": {"latency": 20, "jitter": 15}}`, `{"type": "latency", "stream": "upstream", "attributes": {"latency": 5}}`}},
	{name: "latency beyond slowCall", breaker: strict,
		toxics: []string{`{"type": "latency", "attributes": {"latency": 350, "jitter": 30}}`}},
	{name: "connections that close slowly", breaker: patient,
		toxics: []string{`{"type": "slow_close", "attributes": {"delay": 200}}`, `{"type": "slow_close", "stream": "upstream", "attributes": {"delay": 200}}`}},
	{name: "packets cut up", breaker: patient,
		toxics: []string{`{"type": "slicer", "attributes": {"average_size": 512, "size_variation": 256, "delay": 50}}`}},
	{name: "reset before an answer", breaker: strict,
		toxics: []string{`{"type": "reset_peer", "attributes": {"timeout": 0}}`}},
	{name: "reset a while after the request", breaker: strict,
		toxics: []string{`{"type": "reset_peer", "attributes": {"timeout": 50}}`}},
	{name: "reset while sending", breaker: strict,
		toxics: []string{`{"type": "reset_peer", "stream": "upstream", "attributes": {"timeout": 0}}`}},
	{name: "answers truncated in their headers", breaker: strict,
		toxics: []string{`{"type": "limit_data", "attributes": {"bytes": 20}}`}},
	{name: "answers truncated in their bodies", breaker: strictAtBody, uses: []use{download, download, download},
		toxics: []string{`{"type": "limit_data", "attributes": {"bytes": 4000}}`}},
	{name: "requests truncated", breaker: strict,
		toxics: []string{`{"type": "limit_data", "stream": "upstream", "attributes": {"bytes": 30}}`}},
	{name: "connection refused", breaker: strict, down: true},
	{name: "connections closed at once", breaker: strict,
		toxics: []string{`{"type": "timeout", "attributes": {"timeout": 1}}`}},
	{name: "a black hole, and callers that wait", breaker: strict, patience: 500 * time.Millisecond,
		toxics: []string{`{"type": "timeout", "attributes": {"timeout": 0}}`}},
	{name: "a black hole, and callers that do not", breaker: strict, patience: 50 * time.Millisecond,
		toxics: []string{`{"type": "timeout", "attributes": {"timeout": 0}}`}},
	{name: "a black hole for uploads", breaker: strict, patience: 500 * time.Millisecond,
		toxics: []string{`{"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`}},
	{name: "a few bytes a second", breaker: strict, patience: 500 * time.Millisecond,
		toxics: []string{`{"type": "slicer", "attributes": {"average_size": 1, "size_variation": 0, "delay": 200000}}`}},
	{name: "a few bytes a second, upwards", breaker: strict, patience: 500 * time.Millisecond,
		toxics: []string{`{"type": "slicer", "stream": "upstream", "attributes": {"average_size": 1, "size_variation": 0, "delay": 200000}}`}},
	{name: "bandwidth of a modem", breaker: strictAtBody, patience: 500 * time.Millisecond, uses: []use{download, download, download},
		toxics: []string{`{"type": "bandwidth", "attributes": {"rate": 5}}`}},
}

// After every fault nothing is in flight or queued, no goroutine and no memory is
// left, the limit is exact, and the breaker closes again. While it lasts, no more calls
// are out than the limit allows, and each ends.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		for _, w := range wires {
			t.Run(f.name+"/"+w.name, func(t *testing.T) {
				goroutines := goroutinesReturn(t)
				r := newRig(t, w, f.breaker)
				defer goroutines()
				defer r.close()
				r.requireExact(t)
				r.endure(t, f)
				requireNoGrowth(t, func() { r.endure(t, f) })
			})
		}
	}
}

// endure goes through the fault and out of it.
func (r *rig) endure(t *testing.T, f fault) {
	t.Helper()
	if f.down {
		r.proxy.Stop()
	} else {
		r.reconnect(t, f.toxics...)
	}
	r.suffer(t, f)
	r.requireIdle(t)
	r.reconnect(t)
	r.recover(t)
	r.requireExact(t)
}

// suffer makes calls until the fault has done what it does.
func (r *rig) suffer(t *testing.T, f fault) {
	t.Helper()
	trips := len(r.tripped())
	for range 50 {
		results := r.wave(f.uses, cmp.Or(f.patience, enough))
		if f.breaker == patient {
			for _, res := range results {
				require.NoError(t, res.err)
				require.Equal(t, http.StatusOK, res.status)
			}
			require.Empty(t, r.tripped())
			return
		}
		if len(r.tripped()) > trips {
			return
		}
	}
	require.Fail(t, "the breaker stays closed")
}

// An upstream that takes requests and says nothing trips the breaker by the calls that
// hang, long before any of them ends.
func TestBlackHoleTripsWhileTheCallsHang(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			goroutines := goroutinesReturn(t)
			r := newRig(t, w, strict)
			defer goroutines()
			defer r.close()
			r.requireExact(t)
			r.reconnect(t, `{"type": "timeout", "attributes": {"timeout": 0}}`)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			results := make(chan result, limit)
			var wg sync.WaitGroup
			for range limit {
				wg.Go(func() { results <- download(ctx, r) })
			}
			eventually(t, "the breaker stays closed", func() bool { return r.snapshot(t).Breaker.State == "open" })
			assert.Empty(t, results, "none has ended")
			assert.Equal(t, limit, r.snapshot(t).Bulkhead.InFlight)
			assert.Equal(t, []breaker.Cause{breaker.CauseOverdue}, r.tripped())
			require.ErrorIs(t, download(ctx, r).err, breaker.ErrOpen)

			cancel()
			wg.Wait()
			for range limit {
				require.ErrorIs(t, (<-results).err, context.Canceled)
			}
			r.requireIdle(t)
			r.reconnect(t)
			r.recover(t)
			r.requireExact(t)
		})
	}
}

// Connections that all break at once, in the middle of everything, give everything
// back, again and again.
func TestConnectionsThatBreakUnderCalls(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			goroutines := goroutinesReturn(t)
			r := newRig(t, w, strict)
			defer goroutines()
			defer r.close()
			r.requireExact(t)
			for range 10 {
				var wg sync.WaitGroup
				opened := make(chan struct{}, limit)
				for range limit {
					wg.Go(func() {
						resp, err := r.do(t.Context(), "GET", "/hold", nil)
						opened <- struct{}{}
						if err != nil {
							return
						}
						_, err = resp.Body.Read(make([]byte, 1))
						assert.Error(t, err)
						_ = resp.Body.Close()
					})
				}
				for range limit {
					<-opened
				}
				r.reconnect(t)
				wg.Wait()
				r.requireIdle(t)
			}
			r.recover(t)
			r.requireExact(t)
		})
	}
}
