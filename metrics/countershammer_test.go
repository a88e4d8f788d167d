package metrics_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// Whoever collects while keys come and go and policies are reloaded never sees a counter
// fall, nor one that is ahead of what happened; in the end it is what happened.
func TestSharedCountersHammer(t *testing.T) {
	const file = "version: 1\ndefaults: {maxCompartments: %d}\npolicies: [{name: p, side: server, per: header:X-Key, bulkhead: {maxConcurrent: %d}}]\n"
	m := newMeters(t, fmt.Sprintf(file, 3, 1))
	var granted, refused, begun atomic.Int64
	var callers, others sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for n := range 1000 {
				begun.Add(1)
				c, err := m.guard.Admit(t.Context(), &policy.Request{
					Side: policy.Server, EscapedPath: "/", Header: http.Header{"X-Key": {fmt.Sprint((n + i) % 7)}},
				})
				if err != nil {
					refused.Add(1)
				} else {
					granted.Add(1)
				}
				c.Release()
			}
		})
	}
	stop := make(chan struct{})
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				set, err := policy.Parse("test.yaml", fmt.Appendf(nil, file, 2+n%3, 1+n%2))
				if !assert.NoError(t, err) {
					return
				}
				m.guard.Reload(set)
			}
		}
	})
	calls := func() (g, r float64) {
		got := m.read()
		for name := range got {
			if strings.Contains(name, "key=") && !strings.Contains(name, "key=(overflow)") {
				assert.Fail(t, "a series tells of a tenant", name)
			}
		}
		of := func(result string) float64 {
			return got["calls{policy=p,result="+result+",side=server}"] + got["calls{key=(overflow),policy=p,result="+result+",side=server}"]
		}
		return of("granted"), of("full")
	}
	others.Go(func() {
		var lastGranted, lastRefused float64
		for {
			select {
			case <-stop:
				return
			default:
			}
			before := granted.Load() + refused.Load()
			g, r := calls()
			if !assert.GreaterOrEqual(t, g, lastGranted) || !assert.GreaterOrEqual(t, r, lastRefused) ||
				!assert.GreaterOrEqual(t, int64(g+r), before) || !assert.LessOrEqual(t, int64(g+r), begun.Load()) {
				return
			}
			lastGranted, lastRefused = g, r
		}
	})
	callers.Wait()
	close(stop)
	others.Wait()
	g, r := calls()
	require.EqualValues(t, granted.Load(), g)
	require.EqualValues(t, refused.Load(), r)
	require.Positive(t, m.read()["evicted_compartments{policy=p,side=server}"])
	m.guard.Close()
	require.NotContains(t, m.read(), "calls{policy=p,result=granted,side=server}")
}
