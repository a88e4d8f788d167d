package middleware

import (
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/watertight-go/watertight"
)

// An Option configures [New].
type Option interface{ apply(*options) }

type options struct {
	route     func(*http.Request) string
	reject    rejectHandler
	reentrant bool
}

type rejectHandler = func(http.ResponseWriter, *http.Request, *watertight.RejectedError)

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// A Router knows the pattern that a request will be routed to, without routing
// it: http.ServeMux is one.
type Router interface {
	// Handler returns the handler of the request and the pattern of its route,
	// which is empty if it has none. It is called by many goroutines at once.
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// WithRouter names the router behind the middleware, for when something stands
// between the two and [New] cannot see it. The last of WithRouter and
// [WithRoute] wins; nil changes nothing.
func WithRouter(router Router) Option {
	return optionFunc(func(o *options) {
		if router != nil {
			o.route = routeOf(router)
		}
	})
}

// WithRoute sets the function that finds a request's route: the pattern as the
// router reports it, or "" if no route matches. It is called once for each
// request before anything is decided, by many goroutines at once, and must leave
// the request as it was. The last of [WithRouter] and WithRoute wins; nil
// changes nothing.
func WithRoute(route func(*http.Request) string) Option {
	return optionFunc(func(o *options) {
		if route != nil {
			o.route = route
		}
	})
}

// WithRejectHandler has refusals answered by f, with a page of your own or an
// answer that needs no permit; the default is [WriteRejection]. The last one given
// wins, and nil changes nothing.
//
// When f is called, Retry-After, unless it is unknown, and Cache-Control: no-store
// are set, and on HTTP/1 Connection: close if the request has a body, which f should
// not wait for; f may change them. It sets the status, for which rejected.StatusCode
// is what the policy wants, and the body; if it writes nothing, the caller gets
// an empty 200. Policy and Key of what it gets name what is the operator's, and Key
// may come from the caller: neither belongs in the answer. f is also called for a
// caller that left while it waited (policy.ReasonCanceled), who may have closed
// only its sending half. It runs without a permit, as many at once as there are
// refusals, so it must be cheap.
func WithRejectHandler(f func(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError)) Option {
	return optionFunc(func(o *options) {
		if f != nil {
			o.reject = f
		}
	})
}

// Reentrant is for handlers that send a request through the same middleware a
// second time, as by calling the router's ServeHTTP with another path. With it
// such a request is counted once in each compartment; without it, at a limit
// of one, it would wait for itself. It costs a context and a copy of the
// request for each request.
func Reentrant() Option {
	return optionFunc(func(o *options) { o.reentrant = true })
}

func routeOf(router Router) func(*http.Request) string {
	_, mux := router.(*http.ServeMux)
	return func(r *http.Request) string {
		if mux && r.RequestURI == "*" {
			// ServeMux answers it by itself, with an error, whatever pattern it reports.
			return ""
		}
		h, pattern := router.Handler(r)
		if isRedirect(h) && pattern == withSlash(r.URL.Path) {
			// ServeMux sends /tree to /tree/ and may report as pattern not the
			// one that is registered but the path that it redirects to: for
			// /users/{id}/ any path of that shape, made up by the client. A
			// redirect of the router's own is nobody's route.
			return ""
		}
		return pattern
	}
}

var redirect = reflect.TypeOf(http.RedirectHandler("/", http.StatusFound))

func isRedirect(h http.Handler) bool { return reflect.TypeOf(h) == redirect }

// withSlash returns where ServeMux redirects a path that lacks the slash at its
// end. It has one nevertheless if that was written %2F; it keeps that one.
func withSlash(p string) string {
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean + "/"
}
