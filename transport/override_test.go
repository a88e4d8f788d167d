package transport_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// counts returns how many calls each policy has granted.
func counts(g *watertight.Guard) map[string]uint64 {
	n := make(map[string]uint64)
	for _, c := range g.Snapshot().Compartments {
		n[c.Policy] += c.Granted
	}
	return n
}

// A request whose context says so passes what is full and what is open, on every hop
// of its redirects, and files no outcome; its body counts as in flight until it ends.
func TestRequestWithoutLimits(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			http.Redirect(w, r, "/second", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "there")
	}))
	defer srv.Close()
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1}}`)
	asked := false
	rt := transport.New(srv.Client().Transport, g, transport.WithClassifier(func(*http.Response, error) breaker.Outcome {
		asked = true
		return breaker.Success
	}))
	defer rt.CloseIdleConnections()
	client := &http.Client{Transport: rt}
	held := open(t, transport.New(base(streaming), g), get(t, srv.URL))
	_, err := client.Do(get(t, srv.URL+"/first"))
	require.ErrorIs(t, err, bulkhead.ErrFull)

	free := get(t, srv.URL+"/first")
	free = free.WithContext(watertight.WithoutLimits(free.Context(), policy.Client))
	resp, err := client.Do(free)
	require.NoError(t, err)
	assert.Equal(t, 500, resp.StatusCode)
	exempt := g.Snapshot().Compartments[1]
	assert.Equal(t, "(exempt)", exempt.Policy)
	assert.EqualValues(t, 2, exempt.Granted, "both hops")
	assert.EqualValues(t, 1, exempt.InFlight, "the open body")
	require.NoError(t, resp.Body.Close())
	assert.Zero(t, g.Snapshot().Compartments[1].InFlight)
	assert.False(t, asked)
	limited := g.Snapshot().Compartments[0]
	assert.EqualValues(t, 1, limited.Granted)
	assert.Equal(t, "closed", limited.Breaker.State)
	require.NoError(t, held.Body.Close())
}

// A request may name the policy that limits it; the key stays its host's, or that of
// the key function.
func TestRequestWithPolicy(t *testing.T) {
	g := guard(t, `  - {name: nightly, match: [{method: [NIGHTLY]}], bulkhead: {maxConcurrent: 1}}
  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(streaming), g)
	named := func(ctx context.Context) context.Context {
		return watertight.WithPolicy(ctx, policy.Client, "nightly")
	}
	ordinary := open(t, rt, get(t, "http://up/"))
	r := get(t, "http://up/")
	nightly := open(t, rt, r.WithContext(named(r.Context())))
	for ctx, refusedBy := range map[context.Context]string{r.Context(): "p", named(r.Context()): "nightly"} {
		_, err := rt.RoundTrip(r.WithContext(ctx))
		var refused *watertight.RejectedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, refusedBy, refused.Policy)
		assert.Equal(t, "http://up:80", refused.Key)
	}
	byKey := open(t, transport.New(base(streaming), g, transport.WithKey(func(*http.Request) string { return "shard" })),
		r.WithContext(named(r.Context())))
	assert.Equal(t, []string{"http://up:80", "shard", "http://up:80"}, keys(g))
	for _, resp := range []*http.Response{ordinary, nightly, byKey} {
		require.NoError(t, resp.Body.Close())
	}
}

// A gateway lets a request of its own past the limits of its server side. That is no
// reason to let the calls out that its handler makes with the request's context.
func TestUnlimitedRequestsMakeLimitedCalls(t *testing.T) {
	g := guard(t, `  - {name: p, side: client, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(streaming), g)
	held := open(t, rt, get(t, "http://up/"))
	r := get(t, "http://up/")
	_, err := rt.RoundTrip(r.WithContext(watertight.WithoutLimits(r.Context(), policy.Server)))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	require.NoError(t, held.Body.Close())
	assert.Equal(t, map[string]uint64{"p": 1}, counts(g))
}
