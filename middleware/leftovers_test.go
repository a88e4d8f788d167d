package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// E70: ten thousand requests that queue, with an hour to wait, and are let in at once
// leave no timer, no goroutine (the bubble would not end) and no memory.
func TestWaitsOfRequestsLeaveNothingBehind(t *testing.T) {
	inEachWay(t, func(t *testing.T, way int) {
		f := limited(t, way, 4, 100, ok, nil)
		h := f.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) }))
		wave := func() {
			for range 100 {
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
						if w.Code != 200 {
							t.Error(w.Code)
						}
					})
				}
				wg.Wait()
			}
			synctest.Wait()
		}
		wave()
		before := heap()
		wave()
		assert.Less(t, heap()-before, int64(10*10_000), "less than ten bytes for each")
		f.requireRest(20_000)
	})
}

// E70: a Guard and its middleware need no clean-up, whatever went through them.
func TestMiddlewareIsGarbageLikeAnythingElse(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	var guards []weak.Pointer[watertight.Guard]
	for range 1000 {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, bulkhead: {maxConcurrent: 1, maxWait: 10s}, breaker: {slowCall: 1h}}]}")
		wrap := middleware.New(g)
		assert.Equal(t, 200, get(wrap(wrap(ok)), "/").Code)
		guards = append(guards, weak.Make(g))
	}
	runtime.GC()
	runtime.GC()
	alive := 0
	for _, g := range guards {
		if g.Value() != nil {
			alive++
		}
	}
	assert.LessOrEqual(t, alive, 1, "the last may still be on the stack")
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}
