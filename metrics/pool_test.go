package metrics_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
)

// The spans of a pool's tasks are those of any compartment: a task runs under
// its grant, on another goroutine than its submitter, and in the same trace.
func TestPoolSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "version: 1\npolicies: []\n")
		p, err := r.guard.Pool("reports", bulkhead.PoolConfig{Max: 1, Backlog: 1})
		require.NoError(t, err)
		ctx, caller := r.begin(t.Context(), "caller")
		var inner [2]trace.SpanContext
		for i := range inner {
			_, err := watertight.Submit(p, ctx, func(ctx context.Context) (int, error) {
				time.Sleep(time.Second)
				inner[i] = trace.SpanContextFromContext(ctx)
				return 0, nil
			})
			require.NoError(t, err)
		}
		require.ErrorIs(t, p.Do(ctx, func(context.Context) error { return nil }), bulkhead.ErrFull)
		require.NoError(t, r.guard.Drain(t.Context()))

		require.Equal(t, []string{"bulkhead.reject", "bulkhead.grant", "bulkhead.wait", "bulkhead.grant"}, r.names())
		for i, grant := range r.ended("bulkhead.grant") {
			requireParent(t, caller, grant)
			assert.Equal(t, grant.SpanContext(), inner[i])
			assert.Equal(t, time.Second, lasted(grant))
			assert.Equal(t, attrs{
				"watertight.policy": "reports", "watertight.side": "client", "watertight.key": "",
				"watertight.limit": int64(1), "watertight.in_flight": int64(1), "watertight.waited_ms": float64(1000 * i),
			}, attributesOf(grant))
		}
		wait := r.only("bulkhead.wait")
		requireParent(t, caller, wait)
		assert.Equal(t, time.Second, lasted(wait))
		assert.Equal(t, "granted", attributesOf(wait)["watertight.result"])
		reject := r.only("bulkhead.reject")
		requireParent(t, caller, reject)
		assert.Equal(t, attrs{
			"watertight.policy": "reports", "watertight.side": "client", "watertight.key": "",
			"watertight.reason": "full", "error.type": "full", "watertight.retry_after_ms": float64(1000),
			"watertight.limit": int64(1), "watertight.in_flight": int64(1), "watertight.queued": int64(1),
		}, attributesOf(reject))
	})
}

// So are those of a call by Do.
func TestDoSpans(t *testing.T) {
	r := newRig(t, "version: 1\npolicies:\n  - {name: db, side: client, match: [{method: [DO]}], bulkhead: {maxConcurrent: 1}}\n")
	ctx, caller := r.begin(t.Context(), "caller")
	var inner trace.SpanContext
	require.NoError(t, r.guard.Do(ctx, "db", func(ctx context.Context) error {
		inner = trace.SpanContextFromContext(ctx)
		return nil
	}))
	grant := r.only("bulkhead.grant")
	requireParent(t, caller, grant)
	assert.Equal(t, grant.SpanContext(), inner)
	assert.Equal(t, "db", attributesOf(grant)["watertight.policy"])
}
