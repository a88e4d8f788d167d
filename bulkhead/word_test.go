package bulkhead_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// The word holds but some bits of the count of grants, next to the limit. They
// are moved in time, and nothing is lost or spilled.
func TestManyGrants(t *testing.T) {
	const n = 100_000
	b := bulkhead.New(bulkhead.Config{Limit: 3})
	for range n {
		p, err := b.Acquire(t.Context())
		require.NoError(t, err)
		p.Release()
	}
	assert.Equal(t, bulkhead.Snapshot{Limit: 3, Peak: 1, Granted: n}, b.Snapshot())
}

func TestHighestLimit(t *testing.T) {
	for _, limit := range []int{bulkhead.MaxLimit - 1, bulkhead.MaxLimit, bulkhead.MaxLimit + 1} {
		b := bulkhead.New(bulkhead.Config{Limit: limit})
		want := min(limit, bulkhead.MaxLimit)
		assert.Equal(t, bulkhead.Snapshot{Limit: want}, b.Snapshot())
		b.Resize(1)
		b.Resize(limit)
		var info bulkhead.Info
		_, err := b.AcquireInfo(t.Context(), &info)
		require.NoError(t, err)
		assert.Equal(t, bulkhead.Info{Limit: want, InFlight: 1}, info)
	}
}

// When the limit grows, the permits of those who wait are not for a newcomer,
// also before they are handed over.
func TestNewcomerNeverOvertakesWhileGrowing(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	held := hold(t, b)[0]
	var stop atomic.Bool
	newcomer := make(chan int)
	go func() {
		n := 0
		for !stop.Load() {
			if _, err := b.TryAcquire(); err == nil {
				n++
			}
		}
		newcomer <- n
	}()
	for range histories {
		granted := make(chan bulkhead.Permit)
		go func() {
			p, _ := b.Acquire(context.Background())
			granted <- p
		}()
		for b.Snapshot().Queued == 0 {
			runtime.Gosched()
		}
		b.Resize(2)
		p := <-granted
		b.Resize(1)
		p.Release()
	}
	stop.Store(true)
	assert.Zero(t, <-newcomer)
	held.Release()
	assert.Zero(t, b.Snapshot().InFlight)
}

// A waiter that is woken for two reasons at once reads one message. The other
// must not reach whoever waits next in its place.
func TestNoMessageIsLeftBehind(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	for range 100 {
		held := hold(t, b)[0]
		inner, cancel := context.WithCancel(t.Context())
		asked := 0
		ctx := hookedContext{inner, func() error {
			asked++
			if asked == 1 {
				return nil // on arrival
			}
			held.Release() // to the caller, who has left already
			return context.Canceled
		}}
		go func() {
			for b.Snapshot().Queued == 0 {
				runtime.Gosched()
			}
			cancel()
		}()
		_, err := b.Acquire(ctx)
		require.Equal(t, context.Canceled, err)

		held = hold(t, b)[0]
		go func() {
			for b.Snapshot().Queued == 0 {
				runtime.Gosched()
			}
			held.Release()
		}()
		p, err := b.Acquire(t.Context())
		require.NoError(t, err)
		p.Release()
	}
}
