package metrics_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// A trip by calls that hang says how many, and against how many answers.
func TestOverdueTripTellsTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
version: 1
policies:
  - {name: up, side: client, per: policy, bulkhead: {maxConcurrent: 2}, breaker: {slowCall: 800ms}}
`)
		req := &policy.Request{Side: policy.Client, Method: "GET", Scheme: "http", Host: "up", EscapedPath: "/"}
		for range 2 {
			_, err := r.guard.Admit(t.Context(), req)
			require.NoError(t, err)
		}
		time.Sleep(900 * time.Millisecond)
		_, err := r.guard.Admit(t.Context(), req)
		require.ErrorIs(t, err, breaker.ErrOpen)

		trip := attributesOf(r.only("breaker.trip"))
		assert.Equal(t, "overdue", trip["watertight.breaker.cause"])
		assert.Equal(t, int64(2), trip["watertight.breaker.overdue"])
		assert.Equal(t, int64(0), trip["watertight.breaker.responded"])
		assert.NotContains(t, trip, "watertight.breaker.failure_rate", "two calls are no window")
	})
}
