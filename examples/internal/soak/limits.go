package soak

import (
	"fmt"

	"github.com/watertight-go/watertight/policy"
)

// limits are what changes: how many calls may be in flight to each upstream, in the one
// route that all upstreams have, and by Do.
type limits struct{ hosts, routes, queue int }

func limitsAt(n int) limits { return limits{hosts: n, routes: 2*n + 2, queue: max(1, n/4)} }

// policies are the Guard's, with these limits. Only the limits differ from one to the
// next, so the compartments stay, and their counts go on.
func policies(l limits) (*policy.Set, error) {
	return policy.Parse("soak.yaml", fmt.Appendf(nil, `
version: 1
policies:
  - name: queue
    side: client
    match: [{method: [DO]}]
    bulkhead: {maxConcurrent: %d, maxQueue: 20, maxWait: 5ms}
    breaker: {window: {calls: 20}, failureRate: 90, openFor: 50ms, halfOpen: {calls: 2}}
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: %d, maxQueue: 50, maxWait: 20ms}
    breaker: {window: {calls: 50}, failureRate: 50, slowCall: 200ms, openFor: {initial: 100ms, max: 1s}, halfOpen: {calls: 3, probeTimeout: 1s}}
  - name: routes
    side: server
    bulkhead: {maxConcurrent: %d, maxQueue: 10, maxWait: 10ms}
    breaker: {window: {calls: 200}, failureRate: 95, openFor: 20ms, halfOpen: {calls: 2}}
`, l.queue, l.hosts, l.routes))
}

// reload puts limits in force.
func (s *soak) reload(l limits) error {
	set, err := policies(l)
	if err != nil {
		return err
	}
	s.guard.Reload(set)
	s.reloads++
	return nil
}
