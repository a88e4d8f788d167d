package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
)

// A site serves the page, at /ops/watertight/ and nowhere else.
type site struct {
	testing.TB
	srv     *httptest.Server
	home    string
	handler atomic.Pointer[http.Handler]
	down    atomic.Bool

	mu     sync.Mutex
	strays []string // guarded by mu
}

const prefix = "/ops/watertight/"

// often is how often the tests have the page updated, so that they need not wait.
const often = 100 * time.Millisecond

// show serves the page of a Guard.
func show(t testing.TB, wt *watertight.Guard, opts ...dashboard.Option) *site {
	t.Helper()
	s := &site{TB: t}
	s.of(wt, opts...)
	s.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path+"/", prefix) {
			s.mu.Lock()
			s.strays = append(s.strays, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
			http.NotFound(w, r)
			return
		}
		if s.down.Load() {
			panic(http.ErrAbortHandler)
		}
		http.StripPrefix(strings.TrimSuffix(prefix, "/"), *s.handler.Load()).ServeHTTP(w, r)
	}))
	s.home = s.srv.URL + prefix
	t.Cleanup(func() {
		s.srv.CloseClientConnections()
		s.srv.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.strays {
			t.Errorf("the page asked for what is not its own: %s", r)
		}
	})
	return s
}

// of serves the page of another Guard from now on, as a program does that starts anew.
func (s *site) of(wt *watertight.Guard, opts ...dashboard.Option) {
	h := dashboard.Handler(wt, append([]dashboard.Option{dashboard.WithInterval(often)}, opts...)...)
	s.handler.Store(&h)
}

// cut ends what is being sent, and answers nothing more until mend.
func (s *site) cut() {
	s.down.Store(true)
	s.srv.CloseClientConnections()
}

func (s *site) mend() { s.down.Store(false) }

// A mount is a server that has the page in another place.
type mount struct {
	name string
	base string // of the URLs
	urls []string
}

// mounts serves the page in all ways in which people mount handlers.
func mounts(t testing.TB, wt *watertight.Guard) []mount {
	h := dashboard.Handler(wt, dashboard.WithInterval(often))
	start := func(h http.Handler) string {
		srv := httptest.NewServer(h)
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
		return srv.URL
	}
	below := http.NewServeMux()
	below.Handle("/debug/watertight/", h)
	stripped := http.NewServeMux()
	stripped.Handle("/a/b/", http.StripPrefix("/a/b", h))
	root, under, strip := start(h), start(below), start(stripped)
	return []mount{
		{"alone on a listener", root, []string{root, root + "/", root + "/?from=pager#sort=name"}},
		{"under a mux", under, []string{under + "/debug/watertight/", under + "/debug/watertight"}},
		{"with the prefix stripped", strip, []string{strip + "/a/b/", strip + "/a/b"}},
	}
}
