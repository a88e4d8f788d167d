package transport

import (
	"errors"
	"net/http"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// A Transport is an http.RoundTripper that admits each call through a Guard.
// Make one with [New]. It is safe for concurrent use and needs no clean-up
// beyond that of its base.
type Transport struct {
	base      http.RoundTripper
	guard     *watertight.Guard
	atHeaders bool
	classify  func(*http.Response, error) breaker.Outcome                            // nil: as the policy says
	key       func(*http.Request) string                                             // nil: the host
	fallback  func(*http.Request, *watertight.RejectedError) (*http.Response, error) // nil: none
}

// New returns a Transport that sends through base what wt admits. A nil base
// means http.DefaultTransport. A base that is a *Transport of the same Guard
// already is returned as it is, without the options, since its calls would
// need two permits each; anything between the two hides it. New panics if wt
// is nil.
func New(base http.RoundTripper, wt *watertight.Guard, opts ...Option) *Transport {
	if wt == nil {
		panic("transport: New needs a Guard, got nil; make one with watertight.New")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if t, ok := base.(*Transport); ok && t.guard == wt {
		return t
	}
	t := &Transport{base: base, guard: wt}
	for _, opt := range opts {
		opt.apply(t)
	}
	return t
}

// Base returns the RoundTripper that the Transport sends through.
func (t *Transport) Base() http.RoundTripper { return t.base }

// Guard returns the Guard that the Transport asks.
func (t *Transport) Guard() *watertight.Guard { return t.guard }

// CloseIdleConnections passes the call of http.Client.CloseIdleConnections on to a
// base that has that method. One that has not, such as otelhttp's, ends it there: then
// keep the *http.Transport beneath, and call its own.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper. See the package's documentation for
// the errors that it adds to those of its base.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil {
		closeBody(r)
		return nil, errors.New("transport: Request.URL is nil")
	}
	// Field by field: a literal with a call in it is made elsewhere and copied, which
	// stalls on the stores just made.
	var req policy.Request
	req.Side = policy.Client
	req.Method = r.Method
	req.Scheme = r.URL.Scheme
	req.Host = r.URL.Host
	req.EscapedPath = r.URL.EscapedPath()
	req.Path = r.URL.Path
	req.RawQuery = r.URL.RawQuery
	req.Header = r.Header
	decided := false
	defer func() {
		if !decided { // the key function panicked, or a hook ended the goroutine
			closeBody(r)
		}
	}()
	if t.key != nil {
		req.Key = t.key(r)
	}
	call, err := t.guard.Admit(r.Context(), &req)
	decided = true
	if err != nil {
		if refused, ok := err.(*watertight.RejectedError); ok && t.fallback != nil {
			return t.fallBack(r, refused)
		}
		closeBody(r)
		return nil, err
	}
	return t.send(r, &call)
}

// send makes the admitted call. From here on base owns the request's body.
func (t *Transport) send(r *http.Request, call *watertight.Call) (resp *http.Response, err error) {
	// No recover: a panic of base goes on to the caller, as does
	// runtime.Goexit; both leave handed false.
	handed := false
	defer func() {
		if !handed {
			call.SettleFailure()
			call.Release()
		}
	}()
	sent := r
	ctx, derived := call.Context()
	if derived {
		sent = r.WithContext(ctx)
	}
	resp, err = t.base.RoundTrip(sent)
	if err == http.ErrSkipAltProtocol {
		call.SettleIgnored() // no answer, but how a base leaves the call to the http.Transport that it is registered with
	}
	if err != nil || resp == nil {
		// A response beside an error is none: whoever gets it must not look.
		if t.classify != nil && err != nil {
			t.judge(call, nil, err)
		}
		return resp, err
	}
	if derived && resp.Request == sent {
		resp.Request = r
	}
	if t.classify != nil {
		t.judge(call, resp, nil)
	}
	if call.Watched() {
		call.RetryAfter(retryAfter(resp))
	}
	handed = true
	if t.atHeaders || bodiless(r, resp) {
		call.SettleStatus(resp.StatusCode)
		call.Release()
		return resp, nil
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		call.SettleStatus(resp.StatusCode) // a session, which tells nothing of the host by its end
	} else {
		call.Responded(resp.StatusCode)
	}
	return hold(r.Context(), resp, call), nil
}

// bodiless reports whether the response has no body by protocol. The clients
// of HTTP/1 say http.NoBody then, those of HTTP/2 have an empty body of their
// own, and nobody need close either.
func bodiless(r *http.Request, resp *http.Response) bool {
	switch {
	case resp.Body == nil, resp.Body == http.NoBody:
		return true
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return false // has a length of 0, and no end
	case r.Method == http.MethodHead,
		resp.StatusCode == http.StatusNoContent,
		resp.StatusCode == http.StatusNotModified:
		return true
	}
	return resp.ContentLength == 0 && r.Method != http.MethodConnect
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		// The call did not happen, and why is what the caller needs to hear.
		_ = r.Body.Close()
	}
}
