package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

// privileged lets requests of one port's listener past the server's limits: what
// decides is the program's, and cannot come over the wire.
func privileged(side policy.Side, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(watertight.WithoutLimits(r.Context(), side)))
	})
}

// A request that a middleware further out lets past the limits of the server is
// not past those of the upstreams that its handler calls.
func TestAnUnlimitedRequestHasLimitedCalls(t *testing.T) {
	for _, test := range []struct {
		side  policy.Side
		calls int // that get through beside the one that holds the only permit
	}{{policy.Server, 0}, {policy.Both, 1}} {
		t.Run(test.side.String(), func(t *testing.T) {
			g := guard(t, `
version: 1
policies: [{name: all, per: policy, bulkhead: {maxConcurrent: 1}}]
`)
			upstream := policy.Request{Side: policy.Client, Scheme: "http", Host: "upstream"}
			calls := 0
			router := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				call, err := g.Admit(r.Context(), &upstream)
				if err == nil {
					calls++
					call.Release()
				}
			}))
			inside, err := g.Admit(t.Context(), &policy.Request{Side: policy.Server})
			require.NoError(t, err)
			defer inside.Release()
			outside, err := g.Admit(t.Context(), &upstream)
			require.NoError(t, err)
			defer outside.Release()

			rec := httptest.NewRecorder()
			router.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
			assert.Equal(t, http.StatusServiceUnavailable, rec.Code, "full")

			rec = httptest.NewRecorder()
			privileged(test.side, router).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
			assert.Equal(t, http.StatusOK, rec.Code)
			assert.Equal(t, test.calls, calls)
			for _, c := range g.Snapshot().Compartments {
				if c.Policy == "(exempt)" {
					assert.Zero(t, c.InFlight)
					assert.EqualValues(t, 1, c.Granted)
				}
			}
		})
	}
}
