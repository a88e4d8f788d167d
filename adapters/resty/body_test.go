package watertightresty_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	watertightresty "github.com/watertight-go/watertight/adapters/resty"
)

// E59: a raw response that is retried must not keep its permit from the next
// attempt. The last one is the caller's.
func TestRawModeDoesNotStarveItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 1, maxWait: 200ms}}]}")
		u := always(503)
		var pauses int
		c := watertightresty.Configure(client(u).SetRetryAfter(pause(time.Second, &pauses)), g).AddRetryCondition(on503)
		start := time.Now()
		resp, err := c.R().SetDoNotParseResponse(true).Get("http://up/")
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(start), "no attempt waited for a permit")
		assert.EqualValues(t, 4, u.calls.Load())
		assert.EqualValues(t, 1, u.open.Load())
		assert.EqualValues(t, 1, hosts(t, g).InFlight)
		text, err := io.ReadAll(resp.RawBody())
		require.NoError(t, err)
		assert.Equal(t, "body", string(text))
		require.NoError(t, resp.RawBody().Close())
		assert.Zero(t, u.open.Load())
		assert.Zero(t, hosts(t, g).InFlight)
	})
}

// E59, on the wire: no connection is left to a body that nobody will read.
func TestRawModeGivesConnectionsBack(t *testing.T) {
	var open atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "sorry")
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the body does not end by itself
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	g := guard(t, onePermit)
	c := watertightresty.Configure(resty.New().SetLogger(&log{}).SetRetryCount(3).SetRetryWaitTime(1).SetRetryMaxWaitTime(1), g).
		AddRetryCondition(on503)
	resp, err := c.R().SetDoNotParseResponse(true).Get(s.URL)
	require.NoError(t, err)
	assert.Equal(t, 503, resp.StatusCode())
	assert.EqualValues(t, 4, hosts(t, g).Granted)
	assert.EqualValues(t, 1, hosts(t, g).InFlight)
	require.NoError(t, resp.RawBody().Close())
	assert.Zero(t, hosts(t, g).InFlight)
	s.Close() // returns when the last handler has
	assert.Zero(t, open.Load())
}

// E59: a body that the caller forgets shows as in flight until the context of
// its request ends.
func TestForgottenRawBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, onePermit)
		c := watertightresty.Configure(client(always(200)), g)
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := c.R().SetContext(ctx).SetDoNotParseResponse(true).Get("http://up/")
		require.NoError(t, err)
		synctest.Wait()
		assert.EqualValues(t, 1, hosts(t, g).InFlight)
		cancel()
		synctest.Wait()
		assert.Zero(t, hosts(t, g).InFlight)
		assert.NotNil(t, resp.RawBody())
	})
}

// E62: resty forgets a response that it cannot save.
func TestFailedOutputGivesThePermitBack(t *testing.T) {
	g := guard(t, onePermit)
	u := always(200)
	for _, retries := range []int{0, 3} {
		c := watertightresty.Configure(client(u).SetRetryCount(retries).SetRetryWaitTime(1).SetRetryMaxWaitTime(1), g).
			AddRetryCondition(onError)
		_, err := c.R().SetOutput(filepath.Join(t.TempDir(), "no\x00name")).Get("http://up/")
		require.Error(t, err)
		assert.Zero(t, u.open.Load())
		assert.Zero(t, hosts(t, g).InFlight)
	}
	assert.EqualValues(t, 1+4, u.calls.Load())

	c := watertightresty.Configure(client(u), g)
	file := filepath.Join(t.TempDir(), "saved")
	_, err := c.R().SetOutput(file).Get("http://up/")
	require.NoError(t, err)
	assert.FileExists(t, file)
	assert.Zero(t, hosts(t, g).InFlight)
}
