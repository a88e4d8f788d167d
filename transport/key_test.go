package transport_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// byShard is a key function of a test's own.
func byShard(r *http.Request) string { return r.Header.Get("X-Shard") }

func sharded(t testing.TB, url, shard string) *http.Request {
	r := get(t, url)
	if shard != "" {
		r.Header.Set("X-Shard", shard)
	}
	return r
}

// A key function divides what per: host would divide by the host.
func TestKey(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}, breaker: {}}`)
	rt := transport.New(base(streaming), g, transport.WithKey(byShard))
	bodies := []io.Closer{
		open(t, rt, sharded(t, "http://up/", "one")).Body,
		open(t, rt, sharded(t, "http://up/", "two")).Body,
		open(t, rt, sharded(t, "http://up/", "")).Body,
	}
	_, err := rt.RoundTrip(sharded(t, "http://elsewhere/", "one"))
	require.ErrorIs(t, err, bulkhead.ErrFull, "another host of the same shard")
	var refused *watertight.RejectedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "one", refused.Key)
	_, err = transport.New(base(streaming), g).RoundTrip(sharded(t, "http://up/", "three"))
	require.ErrorIs(t, err, bulkhead.ErrFull, "another transport, by its host")
	assert.ElementsMatch(t, []string{"one", "two", "http://up:80"}, keys(g))
	for _, b := range bodies {
		require.NoError(t, b.Close())
	}
	for _, c := range g.Snapshot().Compartments {
		assert.Zero(t, c.InFlight, c.Key)
	}
}

// per: policy has one compartment, whatever the key. A key has no say in which policy
// it is.
func TestKeyIsForHostsOnly(t *testing.T) {
	g := guard(t, `  - {name: p, match: [{host: up}], per: policy, bulkhead: {maxConcurrent: 1}}
  - {name: q, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(base(streaming), g, transport.WithKey(byShard))
	defer open(t, rt, sharded(t, "http://up/", "one")).Body.Close()
	_, err := rt.RoundTrip(sharded(t, "http://up/", "two"))
	require.ErrorIs(t, err, bulkhead.ErrFull)
	defer open(t, rt, sharded(t, "http://other/", "up")).Body.Close()
	assert.Equal(t, []string{"", "up"}, keys(g))
}

// Keys are bounded in length and, by the table, in number.
func TestKeysAreBounded(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte("version: 1\ndefaults: {maxCompartments: 10}\npolicies: [{name: p, bulkhead: {maxConcurrent: 1}}]"))
	require.NoError(t, err)
	g := watertight.New(set)
	rt := transport.New(always(200), g, transport.WithKey(byShard))
	long := strings.Repeat("k", policy.MaxKey)
	for range 100 {
		open(t, rt, sharded(t, "http://up/", long+strings.Repeat("x", len(keys(g))))) // all the same key
	}
	assert.Equal(t, []string{long}, keys(g))
	for i := range 1000 {
		open(t, rt, sharded(t, "http://up/", strings.Repeat("k", i%250)+"z"))
	}
	assert.Len(t, keys(g), 10)
}

// A key function that panics leaves nothing behind but its panic.
func TestKeyThatPanics(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	rt := transport.New(always(200), g, transport.WithKey(func(*http.Request) string { panic("key") }))
	body := &chunks{left: 1, end: io.EOF}
	assert.PanicsWithValue(t, "key", func() { _, _ = rt.RoundTrip(post(t, "http://up/", body)) })
	_, closes := body.counts()
	assert.Equal(t, 1, closes)
	assert.Empty(t, g.Snapshot().Compartments)
	assert.Equal(t, 1, capacity(t, g))
}

// Whatever a key function or a URL says, calls of the same key share a compartment,
// its name is bounded, and its permits come back.
func FuzzKey(f *testing.F) {
	f.Add("http", "up:80", "")
	f.Add("https", "[::1]", "shard 7")
	f.Add("", "UP.", "\x00\xff")
	f.Add("HTTP", strings.Repeat("a.", 200), strings.Repeat("é", 200))
	f.Fuzz(func(t *testing.T, scheme, host, key string) {
		g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
		rt := transport.New(base(streaming), g, transport.WithKey(func(*http.Request) string { return key }))
		r := get(t, "http://up/")
		r.URL.Scheme, r.URL.Host = scheme, host
		resp := open(t, rt, r)
		_, err := rt.RoundTrip(r)
		require.ErrorIs(t, err, bulkhead.ErrFull)
		require.NotEmpty(t, err.Error())
		got := only(t, g).Key
		if key == "" {
			// The key of a host names the same host again.
			again := string(policy.AppendHostKey(nil, policy.Client, scheme, host))
			require.Equal(t, again, got)
			require.LessOrEqual(t, len(got), 16+len("://")+2+policy.MaxKey+1+5)
		} else {
			require.Equal(t, key[:min(len(key), policy.MaxKey)], got)
		}
		require.NoError(t, resp.Body.Close())
		require.Zero(t, inFlight(t, g))
	})
}

// RoundTrip closes the request's body whatever ends it, also a hook that ends the
// goroutine while nothing is decided.
func TestBodyIsClosedIfAdmissionEndsTheGoroutine(t *testing.T) {
	set, err := policy.Parse("test.yaml", []byte("version: 1\npolicies: [{name: p, bulkhead: {maxConcurrent: 1}}]\n"))
	require.NoError(t, err)
	wt := watertight.New(set, watertight.WithHooks(watertight.Hooks{
		Arrive: func(context.Context, *policy.Request) context.Context { runtime.Goexit(); return nil },
	}))
	body, sent := io.Pipe()
	r := httptest.NewRequest("POST", "http://up.internal/", body)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = transport.New(nil, wt).RoundTrip(r)
	}()
	<-done
	_, err = sent.Write([]byte("x"))
	assert.Equal(t, io.ErrClosedPipe, err)
}
