package watertightresty

import (
	"net/http"

	"github.com/go-resty/resty/v2"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/transport"
)

// Configure makes the client send through wt, and returns it. The client's
// present transport stays beneath, with its TLS, proxy and dialer; call
// Configure last, see the package's documentation. It changes the http.Client
// that the client was made with, and so every clone of the client.
//
// A client that goes through wt already is not wrapped again, unless a RoundTripper
// of another kind, such as otelhttp's, stands around the Guard and hides it: then each
// call needs two permits, and at a limit of one all are refused. Two Guards both
// count. The retries of a client are settled when it is configured first. It
// panics if c or wt is nil. Like resty's own setters it must not run while the
// client is in use.
func Configure(c *resty.Client, wt *watertight.Guard, opts ...Option) *resty.Client {
	if c == nil {
		panic("watertightresty: Configure needs a client, got nil")
	}
	if wt == nil {
		panic("watertightresty: Configure needs a Guard, got nil; make one with watertight.New")
	}
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	if base := c.GetClient().Transport; !goesThrough(base, wt) {
		c.SetTransport(transport.New(base, wt, o.transport...))
	}
	if !settled(c) {
		settle(c, o.retryWaitTimeouts)
	}
	return c
}

// goesThrough reports whether rt asks wt, maybe as one of several Guards.
func goesThrough(rt http.RoundTripper, wt *watertight.Guard) bool {
	for {
		t, ok := rt.(*transport.Transport)
		if !ok {
			return false
		}
		if t.Guard() == wt {
			return true
		}
		rt = t.Base()
	}
}
