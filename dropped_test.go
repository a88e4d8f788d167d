package watertight_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
)

// No count is lost, nor there twice, when compartments are dropped to make room: at each
// moment the sum is at least what it was.
func TestDroppedCountsStayInTheSum(t *testing.T) {
	g := guard(t, "version: 1\ndefaults: {maxCompartments: 2}\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1}}]\n")
	sum := func() (granted, full uint64) {
		s := g.Snapshot()
		for _, c := range append(s.Compartments, s.Dropped...) {
			granted += c.Granted
			full += c.Rejected["full"]
		}
		return granted, full
	}
	assert.Empty(t, g.Snapshot().Dropped)

	var granted, full atomic.Uint64 // as the callers count
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			var calls []*watertight.Call
			for n := range 1000 {
				if c, err := g.Admit(t.Context(), on(fmt.Sprintf("/%d/%d", i, n%6/2))); err == nil {
					granted.Add(1)
					calls = append(calls, &c)
				} else {
					full.Add(1)
				}
				if n%2 == 1 {
					for _, c := range calls {
						c.Release()
					}
					calls = nil
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for last := uint64(0); ; {
		now, _ := sum()
		require.GreaterOrEqual(t, now, last)
		last = now
		select {
		case <-done:
			gotGranted, gotFull := sum()
			assert.Equal(t, granted.Load(), gotGranted)
			assert.Equal(t, full.Load(), gotFull)
			assert.EqualValues(t, 4*1000, gotGranted+gotFull)
			d := g.Snapshot().Dropped
			require.Len(t, d, 1)
			assert.Equal(t, watertight.CompartmentSnapshot{
				Policy: "p", Side: "server", Per: "route", Granted: d[0].Granted, Rejected: d[0].Rejected, Evicted: d[0].Evicted,
			}, d[0])
			assert.Positive(t, d[0].Evicted)
			return
		default:
		}
	}
}

// Whatever a compartment has counted, all of it stays.
func TestDroppedCountsAreWhatTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "version: 1\ndefaults: {maxCompartments: 1}\npolicies: [{name: p, side: server, bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 1s}}]\n")
		inside := admit(t, g, on("/a"))
		waits := queued(t, g, on("/a"), 1)
		refused(t, g, on("/a"), bulkhead.ErrFull)
		time.Sleep(time.Second)
		<-waits
		refused(t, g, on("/a"), bulkhead.ErrWaitTimeout)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Admit(ctx, on("/a"))
		require.Equal(t, context.Canceled, err)
		inside.Leak()

		want := compartment(t, g, "p", "/a")
		require.Equal(t, map[string]uint64{"full": 1, "wait_timeout": 2, "open": 0, "draining": 0}, want.Rejected)
		require.EqualValues(t, 1, want.Left)
		require.EqualValues(t, 1, want.Leaked)
		require.NotEmpty(t, want.Waits)
		admit(t, g, on("/b")).Release()
		want.Key, want.Bulkhead, want.Evicted = "", nil, 1
		assert.Equal(t, []watertight.CompartmentSnapshot{want}, g.Snapshot().Dropped)
	})
}
