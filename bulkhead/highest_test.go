//go:build !race

package bulkhead_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// Sixteen million permits fill their field of the word to the last bit. Under
// the race detector, which has nothing to see here, it takes ten seconds.
func TestEveryPermitOfTheHighestLimit(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: bulkhead.MaxLimit})
	var p bulkhead.Permit
	for range bulkhead.MaxLimit {
		p, _ = b.TryAcquire()
	}
	_, err := b.TryAcquire()
	require.ErrorIs(t, err, bulkhead.ErrFull)
	want := bulkhead.Snapshot{
		Limit: bulkhead.MaxLimit, InFlight: bulkhead.MaxLimit, Peak: bulkhead.MaxLimit,
		Granted: bulkhead.MaxLimit, Full: 1,
	}
	require.Equal(t, want, b.Snapshot())
	for range bulkhead.MaxLimit {
		p.Release()
	}
	require.Zero(t, b.Snapshot().InFlight)
}
