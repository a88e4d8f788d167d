package watertightresty_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/transport"
)

// secret starts a TLS server whose certificate nobody knows but ca.
func secret(t *testing.T) (url, ca string) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }))
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// E57: what was set before stays.
func TestSettingsMadeBeforeAreKept(t *testing.T) {
	url, ca := secret(t)
	var proxied, dialed atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		io.WriteString(w, "proxy "+r.URL.Host)
	}))
	t.Cleanup(proxy.Close)
	config := func() *tls.Config {
		c := resty.New().SetRootCertificateFromString(ca)
		rt, err := c.Transport()
		require.NoError(t, err)
		return rt.TLSClientConfig
	}
	for name, test := range map[string]struct {
		client   *resty.Client
		url, got string
	}{
		"root certificate": {resty.New().SetRootCertificateFromString(ca), url, "secret"},
		"TLS config":       {resty.New().SetTLSClientConfig(config()), url, "secret"},
		"transport":        {resty.New().SetTransport(&http.Transport{TLSClientConfig: config()}), url, "secret"},
		"http.Client":      {resty.NewWithClient(&http.Client{Transport: &http.Transport{TLSClientConfig: config()}}), url, "secret"},
		"proxy":            {resty.New().SetProxy(proxy.URL), "http://nowhere.invalid/", "proxy nowhere.invalid"},
		"dialer": {resty.New().SetTransport(&http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(proxy.URL, "http://"))
		}}), "http://nowhere.invalid/", "proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, onePermit)
			base := test.client.GetClient().Transport
			watertightresty.Configure(test.client, g)
			assert.Same(t, base, test.client.GetClient().Transport.(*transport.Transport).Base())
			resp, err := test.client.R().Get(test.url)
			require.NoError(t, err)
			assert.Equal(t, test.got, resp.String())
			assert.EqualValues(t, 1, hosts(t, g).Granted)
			test.client.GetClient().CloseIdleConnections()
		})
	}
	assert.EqualValues(t, 2, proxied.Load())
	assert.EqualValues(t, 1, dialed.Load())
}

// E57: resty cannot set afterwards what belongs to the transport. It says so,
// and the documented way reaches through.
func TestSettingsMadeAfterwards(t *testing.T) {
	url, ca := secret(t)
	g := guard(t, onePermit)
	logged := new(log)
	c := watertightresty.Configure(resty.New().SetLogger(logged), g)
	c.SetRootCertificateFromString(ca)
	require.Len(t, logged.errors, 1)
	_, err := c.R().Get(url)
	require.ErrorContains(t, err, "certificate")

	pool := resty.New().SetRootCertificateFromString(ca)
	rt, err := pool.Transport()
	require.NoError(t, err)
	c.GetClient().Transport.(*transport.Transport).Base().(*http.Transport).TLSClientConfig = rt.TLSClientConfig
	resp, err := c.R().Get(url)
	require.NoError(t, err)
	assert.Equal(t, "secret", resp.String())

	before := hosts(t, g).Granted
	u := always(200)
	c.SetTransport(u)
	_, err = c.R().Get("http://up/")
	require.NoError(t, err)
	assert.Equal(t, before, hosts(t, g).Granted, "SetTransport throws the Guard out")
	watertightresty.Configure(c, g)
	_, err = c.R().Get("http://up/")
	require.NoError(t, err)
	assert.Len(t, g.Snapshot().Compartments, 2)
}

// E57, E27: one permit is enough, however often a Guard is installed; and two
// Guards both count.
func TestConfiguringTwiceWrapsOnce(t *testing.T) {
	g, other := guard(t, onePermit), guard(t, onePermit)
	c := client(always(200))
	watertightresty.Configure(c, g)
	hooks := len(c.RetryHooks)
	for _, again := range []func(){
		func() { watertightresty.Configure(c, g) },
		func() { watertightresty.Configure(c.Clone(), g) },
		func() { c.SetTransport(transport.New(c.GetClient().Transport, g)) },
	} {
		installed := c.GetClient().Transport
		again()
		assert.Same(t, installed, c.GetClient().Transport)
	}
	assert.Len(t, c.RetryHooks, hooks)
	_, err := c.R().Get("http://up/")
	require.NoError(t, err)
	assert.EqualValues(t, 1, hosts(t, g).Granted)

	watertightresty.Configure(c, other)
	both := c.GetClient().Transport
	watertightresty.Configure(c, g)
	assert.Same(t, both, c.GetClient().Transport, "g is the inner one")
	assert.Len(t, c.RetryHooks, hooks)
	_, err = c.R().Get("http://up/")
	require.NoError(t, err)
	assert.EqualValues(t, 2, hosts(t, g).Granted)
	assert.EqualValues(t, 1, hosts(t, other).Granted)

	already := client(transport.New(always(200), g))
	watertightresty.Configure(already, g)
	assertNotRetried(t, already)
}

// A transport of another kind around the Guard is no reason to configure the client
// again: Configure cannot see what it hides.
func TestTransportAroundTheGuard(t *testing.T) {
	g := guard(t, onePermit)
	c := watertightresty.Configure(client(always(200)), g)
	c.SetTransport(struct{ http.RoundTripper }{c.GetClient().Transport})
	_, err := c.R().Get("http://up/")
	require.NoError(t, err)
	assert.EqualValues(t, 1, hosts(t, g).Granted)
	assertNotRetried(t, c)

	watertightresty.Configure(c, g)
	_, err = c.R().Get("http://up/")
	require.ErrorIs(t, err, bulkhead.ErrFull, "two permits for one call")
}

// assertNotRetried fills the only permit and calls once more.
func assertNotRetried(t *testing.T, c *resty.Client) {
	t.Helper()
	after := holdOne(t, nil, c)
	r := c.R()
	_, err := r.Get("http://up/")
	require.ErrorIs(t, err, bulkhead.ErrFull)
	assert.Equal(t, 1, r.Attempt)
	after()
}

// Clones and other resty clients of one http.Client share the Guard; each has
// retries of its own.
func TestClonesAndSharedClients(t *testing.T) {
	g := guard(t, onePermit)
	c := watertightresty.Configure(client(always(200)), g)
	clone := c.Clone().SetRetryAfter(nil)
	assertNotRetried(t, c)
	assertNotRetried(t, clone)
	assertNotRetried(t, clone.Clone().AddRetryCondition(onError))

	shared := &http.Client{Transport: always(200)}
	for range 2 {
		assertNotRetried(t, watertightresty.Configure(resty.NewWithClient(shared).SetLogger(&log{}).SetRetryCount(3), g))
	}
	assert.EqualValues(t, 5, hosts(t, g).Granted)
	assert.EqualValues(t, 5, hosts(t, g).Rejected["full"])
}

// SetDigestAuth must come after: it swaps the transport at each request, and its
// own two calls are guarded one after the other.
func TestDigestAuth(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", `Digest realm="r", nonce="n", algorithm=MD5, qop="auth"`)
			w.WriteHeader(401)
			io.WriteString(w, "who are you?")
		}
	}))
	t.Cleanup(s.Close)
	for name, test := range map[string]struct {
		configure func(c *resty.Client, g *watertight.Guard)
		granted   int
	}{
		"after": {func(c *resty.Client, g *watertight.Guard) {
			watertightresty.Configure(c, g).SetDigestAuth("me", "secret")
		}, 4},
		"before": {func(c *resty.Client, g *watertight.Guard) {
			watertightresty.Configure(c.SetDigestAuth("me", "secret"), g)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			g := guard(t, onePermit)
			c := resty.New().SetLogger(&log{})
			test.configure(c, g)
			for range 2 {
				resp, err := c.R().Get(s.URL)
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode())
			}
			assert.EqualValues(t, 4, requests.Load())
			granted := uint64(0)
			for _, c := range g.Snapshot().Compartments {
				granted += c.Granted
				assert.Zero(t, c.InFlight)
			}
			assert.EqualValues(t, test.granted, granted)
		})
	}
}

// Options of the transport reach it.
func TestWithTransport(t *testing.T) {
	g := guard(t, onePermit)
	c := watertightresty.Configure(client(always(200)), g, watertightresty.WithTransport(transport.ReleaseAtHeaders()))
	after := holdOne(t, nil, c)
	assert.Zero(t, hosts(t, g).InFlight)
	after()
}

func TestConfigureWantsAClientAndAGuard(t *testing.T) {
	assert.PanicsWithValue(t, "watertightresty: Configure needs a client, got nil", func() {
		watertightresty.Configure(nil, guard(t, onePermit))
	})
	assert.PanicsWithValue(t, "watertightresty: Configure needs a Guard, got nil; make one with watertight.New", func() {
		watertightresty.Configure(resty.New(), nil)
	})
}
