//go:build !race

package bulkhead_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/bulkhead"
)

// A task that need not wait costs its future, if it has one; a refusal costs
// nothing.
func TestPoolAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	free := bulkhead.NewPool(bulkhead.PoolConfig{Core: 1, Max: 1})
	defer free.Close()
	full := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	h := submitHeld(t, ctx, full)
	defer h.finish()
	atDoor := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1, OnFull: bulkhead.WaitForRoom(time.Hour, 1)})
	h = submitHeld(t, ctx, atDoor)
	a := submitAsync(ctx, atDoor, nothing)
	for atDoor.Snapshot().WaitingForRoom == 0 {
		runtime.Gosched()
	}
	closed := bulkhead.NewPool(bulkhead.PoolConfig{Max: 1})
	closed.Close()

	refused := func(p *bulkhead.Pool, ctx context.Context, want error) func() {
		return func() {
			if _, err := bulkhead.Submit(p, ctx, nothing); err != want {
				t.Error(err)
			}
			if err := p.Do(ctx, func(context.Context) error { return nil }); err != want {
				t.Error(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		want float64
		run  func()
	}{
		"submit and wait": {1, func() {
			f, err := bulkhead.Submit(free, ctx, nothing)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := f.Wait(ctx); err != nil {
				t.Error(err)
			}
		}},
		"submit, nobody waits": {1, func() {
			if _, err := bulkhead.Submit(free, ctx, nothing); err != nil {
				t.Error(err)
			}
			for free.Snapshot().Active > 0 {
				runtime.Gosched()
			}
		}},
		"do": {0, func() {
			if err := free.Do(ctx, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}},
		"refused, full":      {0, refused(full, ctx, bulkhead.ErrFull)},
		"refused, full door": {0, refused(atDoor, ctx, bulkhead.ErrFull)},
		"refused, closed":    {0, refused(closed, ctx, bulkhead.ErrClosed)},
		"refused, dead":      {0, refused(free, dead, context.Canceled)},
		"snapshot":           {0, func() { _ = free.Snapshot() }},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, testing.AllocsPerRun(100, tc.run))
		})
	}
	h.finish()
	<-a.done
	assert.NoError(t, a.err)
}
