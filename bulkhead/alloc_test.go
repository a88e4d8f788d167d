//go:build !race

package bulkhead_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// Neither a grant nor a refusal allocates, with a context that can end and a
// configuration that could have made the call wait. The race detector allocates
// on its own account, hence the build constraint.
func TestNoAllocations(t *testing.T) {
	waits := bulkhead.Config{Limit: 1, Backlog: 0, MaxWait: time.Hour}
	free := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	full := bulkhead.New(waits)
	hold(t, full)
	closed := bulkhead.New(waits)
	closed.Close()
	dead, cancel := context.WithCancel(context.Background())
	cancel()

	for name, run := range map[string]func(*testing.T, context.Context){
		"grant": func(t *testing.T, ctx context.Context) {
			p, err := free.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			p.Release()
		},
		"grant, info": func(t *testing.T, ctx context.Context) {
			var info bulkhead.Info
			p, err := free.AcquireInfo(ctx, &info)
			if err != nil || info.InFlight != 1 {
				t.Error(err, info)
			}
			p.Release()
		},
		"try": func(t *testing.T, _ context.Context) {
			p, err := free.TryAcquire()
			if err != nil {
				t.Error(err)
			}
			p.Release()
		},
		"try, info": func(t *testing.T, _ context.Context) {
			var info bulkhead.Info
			p, err := free.TryAcquireInfo(&info)
			if err != nil || info.InFlight != 1 {
				t.Error(err, info)
			}
			p.Release()
		},
		"refused, full":   refused(full, bulkhead.ErrFull),
		"refused, closed": refused(closed, bulkhead.ErrClosed),
		"refused, dead": func(t *testing.T, _ context.Context) {
			if _, err := free.Acquire(dead); err != context.Canceled {
				t.Error(err)
			}
		},
		"snapshot": func(*testing.T, context.Context) { _ = free.Snapshot() },
	} {
		t.Run(name, func(t *testing.T) {
			// A fresh context: if Acquire asked for its Done channel, that
			// would be an allocation, but only the first time.
			var ctxs []context.Context
			for range 102 {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ctxs = append(ctxs, ctx)
			}
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				run(t, ctxs[len(ctxs)-1])
				ctxs = ctxs[:len(ctxs)-1]
			}))
		})
	}
	require.Zero(t, free.Snapshot().InFlight)
}

func refused(b *bulkhead.Bulkhead, want error) func(*testing.T, context.Context) {
	return func(t *testing.T, ctx context.Context) {
		if _, err := b.Acquire(ctx); err != want {
			t.Error(err)
		}
		if _, err := b.TryAcquire(); err != want {
			t.Error(err)
		}
	}
}
