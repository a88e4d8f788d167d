package metrics_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The context of a call with a span is as good a parent as one of package context: what is
// made of it waits for its end without a goroutine.
func TestChildrenOfAGrantStartNoGoroutine(t *testing.T) {
	r := newRig(t, oneServerPermit)
	h := r.server(func(_ http.ResponseWriter, req *http.Request) {
		const many = 1000
		before := runtime.NumGoroutine()
		ended := make(chan struct{}, many)
		for range many / 4 {
			c, cancel := context.WithCancel(req.Context())
			defer cancel()
			d, cancel := context.WithTimeout(context.WithValue(req.Context(), t, 1), time.Hour)
			defer cancel()
			context.AfterFunc(c, func() { ended <- struct{}{} })
			context.AfterFunc(d, func() { ended <- struct{}{} })
		}
		assert.Less(t, runtime.NumGoroutine()-before, many/4)
		cancelOf(req.Context())()
		for range many / 2 {
			<-ended
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	serve(h, get(context.WithValue(ctx, cancelKey{}, cancel), "/items/7"))
	assert.NotNil(t, r.only("bulkhead.grant"))
}

type cancelKey struct{}

func cancelOf(ctx context.Context) context.CancelFunc {
	return ctx.Value(cancelKey{}).(context.CancelFunc)
}
