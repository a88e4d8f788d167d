package metrics_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/transport"
)

// Many callers at once, with all kinds of ends. Afterwards every span has ended,
// once, and there are as many of each kind as the Guard has counted.
func TestHammer(t *testing.T) {
	const policies = `
version: 1
policies:
  - name: broken
    side: client
    match: [{host: broken.internal}]
    bulkhead: {maxConcurrent: 4}
    breaker: {minCalls: 5, window: {calls: 10}, openFor: 1ms, halfOpen: {calls: 3}}
  - name: rest
    bulkhead: {maxConcurrent: 3, maxQueue: 4, maxWait: 500us}
`
	r := newRig(t, policies)
	rt := transport.New(baseFunc(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "broken.internal" && rand.IntN(2) == 0 {
			return nil, errors.New("connection refused")
		}
		return answer(http.StatusOK, "body")(req)
	}), r.guard)
	h := r.server(func(w http.ResponseWriter, req *http.Request) {
		host := "http://up.internal/"
		if rand.IntN(2) == 0 {
			host = "http://broken.internal/"
		}
		ctx, leave := context.WithCancel(req.Context())
		defer leave()
		if resp, err := rt.RoundTrip(get(ctx, host)); err == nil {
			switch rand.IntN(3) {
			case 0:
				resp.Body.Close()
			case 1:
				go resp.Body.Close() // races with leave
			}
		}
		if rand.IntN(10) == 0 {
			panic(http.ErrAbortHandler)
		}
	})

	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 150 {
				func() {
					defer func() { _ = recover() }()
					ctx, caller := r.begin(context.Background(), "caller")
					defer caller.End()
					if rand.IntN(10) == 0 {
						var leave func()
						ctx, leave = context.WithTimeout(ctx, time.Duration(rand.IntN(500))*time.Microsecond)
						defer leave()
					}
					serve(h, get(ctx, "/items/7"))
				}()
			}
		})
	}
	callers.Wait()
	// Bodies may still be closing.
	require.NoError(t, r.guard.Drain(t.Context()))

	want := map[string]int{}
	for _, c := range r.guard.Snapshot().Compartments {
		want["bulkhead.grant"] += int(c.Granted)
		for reason, n := range c.Rejected {
			if reason == "open" {
				want["breaker.reject"] += int(n)
			} else {
				want["bulkhead.reject"] += int(n)
			}
		}
	}
	got := map[string]int{}
	once := map[string]bool{}
	turns := 0
	for _, s := range r.recorder.Ended() {
		id := s.SpanContext().SpanID().String()
		assert.False(t, once[id], "%s ended twice", s.Name())
		once[id] = true
		switch s.Name() {
		case "breaker.trip":
			turns++
		case "breaker.half_open", "breaker.close", "bulkhead.wait", "caller":
		default:
			got[s.Name()]++
		}
	}
	assert.Equal(t, want, got)
	assert.Len(t, r.recorder.Ended(), len(r.recorder.Started()))
	assert.Positive(t, turns)
}
