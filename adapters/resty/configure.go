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
// Configure does nothing for a client that it has configured with the same
// Guard before. It panics if wt is nil. Like resty's own setters it must not
// run while the client is in use.
func Configure(c *resty.Client, wt *watertight.Guard, opts ...Option) *resty.Client {
	if wt == nil {
		panic("watertightresty: Configure needs a Guard, got nil; make one with watertight.New")
	}
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	base := c.GetClient().Transport
	if t, ok := base.(*transport.Transport); ok && t.Guard() == wt {
		if _, ok := t.Base().(*configured); ok {
			return c
		}
		// Guarded by somebody else's hand. The retries still need ours.
	} else {
		if base == nil {
			base = http.DefaultTransport
		}
		c.SetTransport(transport.New(&configured{base}, wt, o.transport...))
	}
	r := &retries{next: c.RetryAfter, waitTimeouts: o.retryWaitTimeouts}
	c.AddRetryHook(r.judge)
	c.SetRetryAfter(r.after)
	c.OnError(closeFailed)
	return c
}

// configured marks the transport of a client that Configure has seen.
type configured struct{ http.RoundTripper }

func (c *configured) CloseIdleConnections() {
	if t, ok := c.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
