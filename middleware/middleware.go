package middleware

import (
	"net/http"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// New returns a middleware that admits requests through wt. What it returns
// may wrap any number of handlers, and what that returns serves any number of
// requests at once; there is nothing to close. New panics if wt is nil, the
// middleware if the handler to wrap is.
func New(wt *watertight.Guard, opts ...Option) func(http.Handler) http.Handler {
	if wt == nil {
		panic("middleware: New needs a Guard, got nil; make one with watertight.New")
	}
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("middleware: the handler to wrap is nil")
		}
		wt.Wrapped()
		if o.reentrant {
			wt.Wrapped()
		}
		h := &handler{guard: wt, next: next, route: o.route, reject: o.reject}
		if h.route == nil {
			switch next := next.(type) {
			case Router:
				h.route = routeOf(next)
			case *handler:
				// One that knows no more than this one, or has been told.
				h.route = next.route
			}
		}
		return h
	}
}

type handler struct {
	guard  *watertight.Guard
	next   http.Handler
	route  func(*http.Request) string // nil: no router is known
	reject rejectHandler              // nil: WriteRejection
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Field by field: a literal with a call in it is made elsewhere and copied, which
	// takes longer than all the rest of this function.
	var req policy.Request
	req.Side = policy.Server
	req.Method = r.Method
	req.Host = r.Host
	req.EscapedPath = r.URL.EscapedPath()
	req.Path = r.URL.Path
	req.RawQuery = r.URL.RawQuery
	req.Header = r.Header
	if h.route != nil {
		req.Route, req.RouteKnown = h.route(r), true
	}
	call, err := h.guard.Admit(r.Context(), &req)
	if err != nil {
		// Not errors.As: what is in the error of a caller's context is the caller's.
		rejected, refused := err.(*watertight.RejectedError)
		if !refused {
			// The caller left. It may have closed only its sending half, and
			// must not take an empty answer for a success.
			rejected = call.Left(err)
		}
		if req.Route != "" {
			r.Pattern = req.Route // as if the router had seen it: who measures by route reads it
		}
		h.refuse(w, r, rejected)
		return
	}
	if call.Watched() {
		h.serveWatched(w, r, &call)
		return
	}
	defer call.Release()
	h.serve(w, r, &call)
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
	if h.reject == nil {
		WriteRejection(w, r, rejected)
		return
	}
	prepare(w, r, rejected)
	h.reject(w, r, rejected)
}

// serveWatched serves a request whose outcome a breaker waits for.
func (h *handler) serveWatched(w http.ResponseWriter, r *http.Request, admitted *watertight.Call) {
	rec := &recorder{ResponseWriter: w, call: *admitted, sniffed: sniffed}
	if r.TLS != nil {
		rec.sniffed = buffered + 1
	}
	call := &rec.call
	// No recover: a panic, http.ErrAbortHandler and runtime.Goexit go on to
	// whom they are meant for, as if nobody had stood between.
	returned := false
	defer func() {
		if returned {
			call.SettleStatus(rec.final())
		} else {
			call.SettleFailure()
		}
		call.Release()
	}()
	h.serve(rec.writer(), r, call)
	returned = true
}

// serve calls the next handler under the call's context, with the very same
// request if that context is the request's own.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, call *watertight.Call) {
	ctx, derived := call.MarkedContext()
	if !derived {
		h.next.ServeHTTP(w, r)
		return
	}
	if r.Trailer == nil && r.ContentLength < 0 && r.ProtoMajor == 1 {
		// Trailers that the client did not announce are put on the server's
		// request; where there is a map already, on the copy as well.
		r.Trailer = make(http.Header)
	}
	inner := r.WithContext(ctx)
	// What routers and form parsers leave on the request that they were given
	// belongs on the one that others see: a handler further out reads Pattern and
	// path values, and the server removes the files of MultipartForm.
	outer := r.Context()
	defer func() { *r = *inner.WithContext(outer) }()
	h.next.ServeHTTP(w, inner)
}
