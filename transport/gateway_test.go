package transport_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// A gateway's handler passes the context of its request on to the calls that it
// makes. The mark in it, by which the server side knows a request that it meets
// twice, says nothing to the client side.
func TestGateway(t *testing.T) {
	g := guard(t, `  - {name: p, per: policy, bulkhead: {maxConcurrent: 1}}`)
	g.Wrapped()
	g.Wrapped() // two handlers, so that requests are marked
	incoming := &policy.Request{Side: policy.Server, Method: "GET", Host: "here", EscapedPath: "/"}
	call, err := g.Admit(t.Context(), incoming)
	require.NoError(t, err)
	ctx, marked := call.MarkedContext()
	require.True(t, marked)

	rt := transport.New(base(streaming), g)
	var closes []func() error
	send := func(ctx context.Context) error {
		resp, err := rt.RoundTrip(get(t, "http://up/").WithContext(ctx))
		if err == nil {
			closes = append(closes, resp.Body.Close)
		}
		return err
	}
	require.NoError(t, send(ctx), "the server's permit is not the client's")
	require.ErrorIs(t, send(ctx), bulkhead.ErrFull, "nor does the mark spare it one")

	inner, err := g.Admit(ctx, incoming)
	require.NoError(t, err, "a second handler around the same request")
	inner.Release()
	for _, side := range g.Snapshot().Compartments {
		assert.Equal(t, 1, side.Bulkhead.InFlight, side.Side)
		assert.EqualValues(t, 1, side.Granted, side.Side)
	}
	call.Release()
	for _, c := range closes {
		require.NoError(t, c())
	}
}
