// Package dashboard is the live page of a [watertight.Guard]: which compartment is full,
// which breaker is open, since when and why, when it will try again, and what to do.
//
// Everything is embedded. The page reads what it shows from the same handler, as JSON,
// and so can programs: see docs/dashboard.md for the shape of it.
//
// Serve it on a listener of its own, not behind the Guard it shows: there it would be
// shed in the very incident it is for. And not to the public: it shows routes, hosts and
// keys.
package dashboard

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/watertight-go/watertight"
)

// Handler returns the page of wt and its JSON. It reads only: GET and HEAD are all that
// it answers. It works under any prefix, stripped or not; the last element of the path
// decides:
//
//	PREFIX/               the page
//	PREFIX/snapshot.json  what wt looks like now
//	PREFIX/events         the same as server-sent events, and then what changes of it
//
// The handler starts no goroutine and looks at wt only while somebody watches: one look
// a second, however many they are. Each stream ends with its request, and all of them
// when wt is closed; until then they keep an [http.Server.Shutdown] waiting, as all long
// requests do.
func Handler(wt *watertight.Guard, opts ...Option) http.Handler {
	o := options{interval: defaultInterval, watchers: defaultWatchers}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return &handler{sampler: newSampler(wt, o)}
}

type handler struct {
	sampler *sampler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setPolicy(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page only shows: GET and HEAD are all that it answers", http.StatusMethodNotAllowed)
		return
	}
	if to := missingSlash(r); to != "" {
		// Relative, since only the browser knows the whole prefix.
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	_, name := path.Split(r.URL.Path)
	switch name {
	case "snapshot.json":
		h.sampler.serveSnapshot(w, r)
	case "events":
		h.sampler.serveEvents(w, r)
	default:
		serveAsset(w, r, name)
	}
}

// setPolicy allows the page what it needs, which is its own files, and nothing else:
// whatever a hostile key might contain, a browser would not run it.
func setPolicy(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// missingSlash returns where the page is, seen from the URL that the browser shows, if
// that lacks the slash at the end; there, its files could not be found. Of a path that a
// router has stripped or was registered for as it is, this is known.
func missingSlash(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.HasSuffix(asked, "/") || asked == "" {
		return ""
	}
	_, pattern, ok := strings.Cut(r.Pattern, "/")
	if r.URL.Path != "" && (!ok || "/"+pattern != r.URL.Path || strings.HasSuffix(pattern, "/") || isAsset(path.Base(pattern))) {
		return ""
	}
	to := "./" + asked[strings.LastIndexByte(asked, '/')+1:] + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	if _, err := url.Parse(to); err != nil {
		return ""
	}
	return to
}
