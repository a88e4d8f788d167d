package watertight_test

import (
	"context"
	"testing"

	"github.com/watertight-go/watertight"
)

// What a hook for faults costs a call that goes well, where calls can become overdue and
// where they cannot.
func BenchmarkWatched(b *testing.B) {
	for _, slow := range []struct{ name, yaml string }{
		{"no slow calls", "breaker: {}"},
		{"slow calls", "breaker: {slowCall: 1s}"},
	} {
		for _, hooks := range []struct {
			name string
			set  watertight.Hooks
		}{
			{"no hook", watertight.Hooks{Transition: func(context.Context, watertight.TransitionEvent) {}}},
			{"fault hook", watertight.Hooks{Fault: func(context.Context, watertight.FaultEvent) any { return nil }}},
			{"fault hook that keeps nothing", watertight.Hooks{
				Fault:      func(context.Context, watertight.FaultEvent) any { return nil },
				FaultKeeps: func(context.Context) bool { return false },
			}},
		} {
			b.Run(slow.name+"/"+hooks.name, func(b *testing.B) {
				g := guard(b, "version: 1\npolicies: [{name: up, per: policy, "+slow.yaml+"}]", watertight.WithHooks(hooks.set))
				req := to("up")
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						c, err := g.Admit(context.Background(), req)
						if err != nil {
							b.Fatal(err)
						}
						c.SettleStatus(200)
						c.Release()
					}
				})
			})
		}
	}
}
