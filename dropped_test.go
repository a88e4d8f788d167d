package watertight_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
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
				Policy: "p", Side: "server", Per: "route", Granted: d[0].Granted, Rejected: d[0].Rejected,
			}, d[0])
			return
		default:
		}
	}
}
