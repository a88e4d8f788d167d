package watertight_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
)

// A wait of exactly the end of a bucket is in it; nobody who did not wait is counted.
func TestSnapshotTellsTheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "bulkhead: {maxConcurrent: 1, maxWait: 8ms}"))
		waits := func() []watertight.WaitSnapshot { return compartment(t, g, "p", "/a").Waits }
		for _, wait := range []time.Duration{1, time.Millisecond, time.Millisecond + 1, 4 * time.Millisecond} {
			c := admit(t, g, on("/a"))
			fared := queued(t, g, on("/a"), 1)
			time.Sleep(wait)
			c.Release()
			(<-fared).call.Release()
		}
		assert.Equal(t, []watertight.WaitSnapshot{{1, 2}, {2, 1}, {4, 1}}, waits())

		c := admit(t, g, on("/a"))
		refused(t, g, on("/a"), bulkhead.ErrWaitTimeout)
		c.Release()
		assert.Equal(t, []watertight.WaitSnapshot{{1, 2}, {2, 1}, {4, 1}, {8, 1}}, waits(), "who waits in vain has waited")
	})
}

func TestSnapshotTellsTheLongestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "bulkhead: {maxConcurrent: 1, maxWait: 1h}"))
		c := admit(t, g, on("/a"))
		fared := queued(t, g, on("/a"), 1)
		time.Sleep(10 * time.Minute)
		c.Release()
		(<-fared).call.Release()
		waits := compartment(t, g, "p", "/a").Waits
		require.Len(t, waits, 20)
		assert.Equal(t, watertight.WaitSnapshot{UpToMs: 262144}, waits[18])
		assert.Equal(t, watertight.WaitSnapshot{Count: 1}, waits[19])
	})
}

// The latest transitions are kept, with hooks and without, and no more than that.
func TestSnapshotTellsTheTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := watertight.New(set(t, "breaker: {minCalls: 1, openFor: 1s, halfOpen: {calls: 1}}"))
		assert.NotNil(t, g.Snapshot().Transitions)
		settle := func(status int) {
			c := admit(t, g, on("/a"))
			c.SettleStatus(status)
			c.Release()
		}
		settle(500)
		for range 100 {
			time.Sleep(time.Second)
			settle(500) // half-open, and open again
		}
		got := g.Snapshot().Transitions
		require.Len(t, got, 200)
		first := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)
		for i, s := range got {
			assert.Equal(t, []string{"open", "half_open"}[i%2], s.From)
			assert.WithinDuration(t, first.Add(time.Duration(i/2)*time.Second), s.Time, 0)
		}
	})
}
