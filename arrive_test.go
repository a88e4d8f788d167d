package watertight_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// What Arrive is shown is used again from call to call, also within one another, and is
// yet always the call's own.
func TestArriveIsShownTheCallsOwnRequest(t *testing.T) {
	type path struct{}
	var g *watertight.Guard
	arrive := func(ctx context.Context, r *policy.Request) context.Context {
		if r.Side == policy.Server {
			c, err := g.Admit(context.WithValue(ctx, path{}, "inner"), &policy.Request{Side: policy.Client, Host: "up", Path: "inner"})
			if assert.NoError(t, err) {
				c.Release()
			}
		}
		assert.Equal(t, ctx.Value(path{}), r.Path)
		if len(r.Header) > 0 {
			assert.Equal(t, r.Path, r.Header.Get("X-Path"), "left by another call")
		}
		if r.Header.Get("X-Panic") != "" {
			panic("Arrive")
		}
		return nil
	}
	hooks := watertight.WithHooks(watertight.Hooks{Arrive: arrive})
	g = guard(t, costly, hooks, hooks, watertight.WithLogger(slog.New(slog.DiscardHandler)))
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 200 {
				r := on("/fixed")
				r.Path = fmt.Sprint(n, "/", i)
				switch i % 10 {
				case 0:
					r.Header = http.Header{"X-Path": {r.Path}, "X-Panic": {"yes"}}
				case 1, 2, 3, 4:
					r.Header = http.Header{"X-Path": {r.Path}}
				}
				c, err := g.Admit(context.WithValue(t.Context(), path{}, r.Path), r)
				if assert.NoError(t, err) {
					c.Release()
				}
			}
		})
	}
	wg.Wait()
}
