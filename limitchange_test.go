package watertight_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

func TestHooksHearOfLimitsThatAReloadChanges(t *testing.T) {
	parse := func(policies string) *policy.Set {
		set, err := policy.Parse("f", []byte("version: 1\npolicies:\n"+policies))
		require.NoError(t, err)
		return set
	}
	var told []string
	g := watertight.New(parse(`
  - {name: one, per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: many, bulkhead: {maxConcurrent: 1}}
  - {name: same, bulkhead: {maxConcurrent: 1}}
  - {name: loses, side: client, bulkhead: {maxConcurrent: 1}, breaker: {}}
  - {name: gains, side: server, breaker: {}}
  - {name: divides, side: server, per: route, bulkhead: {maxConcurrent: 1}}
  - {name: goes, bulkhead: {maxConcurrent: 1}}
`), watertight.WithHooks(watertight.Hooks{
		LimitChange: func(ctx context.Context, e watertight.LimitChangeEvent) {
			assert.Equal(t, context.Background(), ctx)
			assert.Empty(t, e.Key)
			told = append(told, fmt.Sprint(e.Policy, " ", e.Side, " ", e.Per, " ", e.From, " ", e.To, " ", e.Cause))
		},
		Reload: func(watertight.ReloadEvent) { told = append(told, "reload") },
	}))
	for _, key := range []string{"/a", "/b"} {
		admit(t, g, on(key)).Release()
	}
	require.Empty(t, told)
	next := parse(`
  - {name: comes, bulkhead: {maxConcurrent: 9}}
  - {name: gains, side: server, breaker: {}, bulkhead: {maxConcurrent: 5}}
  - {name: many, bulkhead: {maxConcurrent: 3}}
  - {name: one, per: policy, bulkhead: {maxConcurrent: 2}}
  - {name: same, bulkhead: {maxConcurrent: 1, maxWait: 1s}}
  - {name: loses, side: client, breaker: {}}
  - {name: divides, side: server, per: policy, bulkhead: {maxConcurrent: 4}}
`)
	g.Reload(next)
	assert.Equal(t, []string{
		"gains server route 0 5 reload",
		"many server route 1 3 reload",
		"one server policy 1 2 reload",
		"many client host 1 3 reload",
		"one client policy 1 2 reload",
		"loses client host 1 0 reload",
		"reload",
	}, told)
	g.Reload(next)
	g.ReloadFailed(assert.AnError)
	assert.Equal(t, []string{"reload", "reload"}, told[7:])
}
