package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/transport"
)

// A gateway forwards /upstream/NAME/REST to the service of that name, as /REST.
type gateway struct {
	proxies map[string]*httputil.ReverseProxy
	base    *http.Transport
}

const upstreamPrefix = "/upstream/"

func newGateway(upstreams map[string]*url.URL, timeout time.Duration, wt *watertight.Guard, tp trace.TracerProvider, log *slog.Logger) *gateway {
	switch {
	case timeout == 0:
		timeout = 30 * time.Second
	case timeout < 0:
		timeout = 0
	}
	g := &gateway{
		proxies: make(map[string]*httputil.ReverseProxy, len(upstreams)),
		base: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:   5 * time.Second,
			ResponseHeaderTimeout: timeout,
			ExpectContinueTimeout: time.Second,
			IdleConnTimeout:       90 * time.Second,
			// The limits are the policies' to set. Here it only matters that
			// connections are kept for as many calls as they allow.
			MaxIdleConns:        0,
			MaxIdleConnsPerHost: 512,
			// Bodies pass as they are.
			DisableCompression: true,
		},
	}
	propagator := telemetry.Propagator()
	// otelhttp beneath watertight: its span is the call on the wire, under
	// bulkhead.grant, and a refused call has none. Upgrades go round it, since
	// the bodies that it hands out can not close their sending half.
	traced := otelhttp.NewTransport(g.base,
		otelhttp.WithTracerProvider(tp),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(propagator),
		otelhttp.WithFilter(func(r *http.Request) bool { return r.Header.Get("Upgrade") == "" }))
	guarded := transport.New(traced, wt)
	for name, base := range upstreams {
		g.proxies[name] = &httputil.ReverseProxy{
			Rewrite:        rewrite(base, propagator),
			Transport:      guarded,
			ModifyResponse: early,
			FlushInterval:  -1,
			ErrorHandler:   failed,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
	}
	return g
}

func (g *gateway) close() { g.base.CloseIdleConnections() }

// ServeHTTP forwards r.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _ := splitPath(r.URL)
	proxy, ok := g.proxies[name]
	if !ok {
		problem(w, r, http.StatusNotFound, "No such upstream", "The server was not started with an upstream of this name.")
		return
	}
	if r.Body == nil || r.Body == http.NoBody {
		proxy.ServeHTTP(w, r)
		return
	}
	// Without this, the answer of an upstream that does not want all of the
	// body would have to wait until the client has sent it. HTTP/2 needs no
	// leave, and says so.
	_ = http.NewResponseController(w).EnableFullDuplex()

	ctx, broken := context.WithCancelCause(r.Context())
	defer broken(nil)
	body := &upload{ReadCloser: r.Body, broken: broken, reading: make(chan struct{}, 1)}
	r = r.WithContext(context.WithValue(ctx, uploadKey{}, body))
	r.Body = body
	proxy.ServeHTTP(w, r)
	if r.ProtoMajor == 1 && !body.ended.Load() {
		body.settle()
	}
}

// An upload is a request body that ends the request's context when it cannot be
// read. net/http does so if the client is gone, but not if what it sends makes no
// sense. The transport would report either as its own failure, which would be
// held against the upstream: a few such clients could open its breaker.
type upload struct {
	io.ReadCloser
	broken  context.CancelCauseFunc
	ended   atomic.Bool   // all of it has been read
	reading chan struct{} // full while Read is under way
}

// uploadKey is the key of the *upload in the context of a request with a body.
type uploadKey struct{}

// errUnreadable is why the context ends if what the client sends makes no sense.
// If the client is gone, net/http has ended the context before, for its own reason.
var errUnreadable = errors.New("app: the request's body cannot be read")

func (u *upload) Read(p []byte) (int, error) {
	u.reading <- struct{}{}
	defer func() { <-u.reading }()
	n, err := u.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		u.ended.Store(true)
	case err != nil:
		u.broken(errUnreadable)
	}
	return n, err
}

// settle lets a Read that is under way come to its end. Cut short by the end of
// the handler, it would leave net/http unable to read the rest, and closing a
// connection with unread bytes makes TCP drop the answer that is on its way. A
// client that sends nothing has no such bytes, so the wait is short.
func (u *upload) settle() {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case u.reading <- struct{}{}:
		<-u.reading
	case <-t.C:
	}
}

// early closes an HTTP/1 connection after a response that came before the end of
// the request's body. In full duplex net/http reads what is left of the body only
// after the handler has returned, and panics when it then goes on to the next
// request.
func early(resp *http.Response) error {
	r := resp.Request // with the protocol version of the client's
	body, ok := r.Context().Value(uploadKey{}).(*upload)
	if ok && r.ProtoMajor == 1 && !body.ended.Load() && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Header.Set("Connection", "close")
	}
	return nil
}

// splitPath takes the path of a request to the gateway apart. What is left for
// the upstream stays escaped as it came.
func splitPath(u *url.URL) (name, rest string) {
	name, rest, _ = strings.Cut(strings.TrimPrefix(escapedPath(u), upstreamPrefix), "/")
	if s, err := url.PathUnescape(name); err == nil {
		name = s
	}
	return name, "/" + rest
}

// escapedPath returns the path as it came, but for bytes that may not stand in a
// path, such as "|": these are escaped. The method EscapedPath would give up on
// all of a path with such a byte, and escape it anew, without its %2F.
func escapedPath(u *url.URL) string {
	if u.RawPath == "" {
		return u.EscapedPath()
	}
	var b strings.Builder
	for i := range len(u.RawPath) {
		c := u.RawPath[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/%-._~!$&'()*+,;=:@[]", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// rewrite turns a request to the gateway into one to the upstream at base.
func rewrite(base *url.URL, propagator propagation.TextMapPropagator) func(*httputil.ProxyRequest) {
	prefix := strings.TrimSuffix(base.EscapedPath(), "/")
	return func(r *httputil.ProxyRequest) {
		_, rest := splitPath(r.In.URL)
		escaped := prefix + rest
		path, err := url.PathUnescape(escaped)
		if err != nil {
			panic("app: an escaped path is not escaped: " + err.Error())
		}
		r.Out.URL = &url.URL{
			Scheme:  base.Scheme,
			Host:    base.Host,
			Path:    path,
			RawPath: escaped,
			// As it came: ReverseProxy has dropped what a form parser would
			// not take, such as semicolons, but the upstream may want them.
			RawQuery:   r.In.URL.RawQuery,
			ForceQuery: r.In.URL.ForceQuery,
		}
		r.Out.Host = "" // the upstream's
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} {
			if v, ok := r.In.Header[name]; ok {
				r.Out.Header[name] = v
			}
		}
		r.SetXForwarded()
		// For upgrades; otelhttp overwrites it with its own span for the rest.
		propagator.Inject(r.In.Context(), propagation.HeaderCarrier(r.Out.Header))
	}
}

// failed answers for a call that got no response.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	var rejected *watertight.RejectedError
	var timeout net.Error
	switch {
	case errors.As(err, &rejected):
		middleware.WriteRejection(w, r, rejected)
	case errors.Is(context.Cause(r.Context()), errUnreadable):
		problem(w, r, http.StatusBadRequest, "Unreadable body", "The body of the request makes no sense.")
	case errors.Is(r.Context().Err(), context.Canceled):
		problem(w, r, http.StatusServiceUnavailable, "Client left", "The client left, or the server stopped, before the upstream answered.")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		problem(w, r, http.StatusGatewayTimeout, "Upstream too slow", "The upstream did not answer in time.")
	default:
		problem(w, r, http.StatusBadGateway, "Upstream unreachable", "The upstream could not be reached, or broke off before it answered.")
	}
}

// problem answers with a problem document (RFC 9457) that is the gateway's own.
func problem(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", title, status, detail})
	if err != nil { // strings and an int cannot fail
		panic("app: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.Header().Set("Cache-Control", "no-store")
	if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		// The rest of the body may never come.
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // as in text
}
