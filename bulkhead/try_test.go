package bulkhead_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// TryAcquireInfo never waits, and tells what the bulkhead looked like.
func TestTryAcquireInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 2, Backlog: 5, MaxWait: time.Minute})
		try := func(want error) bulkhead.Info {
			t.Helper()
			info := bulkhead.Info{Position: 7, Waited: 7, Arrived: time.Now()} // overwritten
			p, err := b.TryAcquireInfo(&info)
			require.Equal(t, want, err)
			if err != nil {
				p.Release() // holds nothing
			}
			return info
		}
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 1}, try(nil))
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2}, try(nil))
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2}, try(bulkhead.ErrFull))
		for range 3 {
			go func() {
				_, err := b.Acquire(t.Context())
				assert.Equal(t, bulkhead.ErrClosed, err)
			}()
		}
		synctest.Wait()
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2, Queued: 3}, try(bulkhead.ErrFull))
		b.Close()
		synctest.Wait()
		assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2}, try(bulkhead.ErrClosed))

		s := b.Snapshot()
		assert.EqualValues(t, 2, s.Granted)
		assert.EqualValues(t, 2, s.Full)
		assert.EqualValues(t, 4, s.Closed)
		assert.Panics(t, func() { _, _ = b.TryAcquireInfo(nil) })
	})
}

// A permit that came back and one that is new are as good as each other: the
// first raises the peak and takes the lock, the second does not.
func TestTryAcquireInfoTakesWhatIsFree(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1})
	for range 100 {
		var info bulkhead.Info
		p, err := b.TryAcquireInfo(&info)
		require.NoError(t, err)
		require.Equal(t, bulkhead.Info{Limit: 1, InFlight: 1}, info)
		p.Release()
	}
	assert.Equal(t, 1, b.Snapshot().Peak)
}
