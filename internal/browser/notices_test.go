package browser

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tab that saw nothing would find nothing wrong with the page.
func TestTabNotices(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	for _, tt := range []struct {
		name   string
		script string
		wants  string
	}{
		{"an error", `console.error("oh")`, `console.error: "oh"`},
		{"a warning", `console.warn("hm")`, `console.warning: "hm"`},
		{"an exception", `setTimeout(() => { throw new Error("lost") })`, "exception: Uncaught Error: lost"},
		{"a broken promise", `Promise.reject(new Error("lost"))`, "lost"},
		{"a style from nowhere", `document.body.innerHTML = "<p style='color: red'>"`, "Content Security Policy"},
		{"a handler in the markup", `document.body.innerHTML = "<img src='data:,' onerror='1'>"`, "Content Security Policy"},
		{"a request elsewhere", `fetch("` + elsewhere.URL + `").catch(() => {})`, "request for " + elsewhere.URL},
		{"a request above the prefix", `fetch("/favicon.ico").catch(() => {})`, "/favicon.ico"},
		{"a missing file", `fetch("missing").catch(() => {})`, "404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /page/{$}", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src *; img-src data:")
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>t</title><link rel="icon" href="data:,"><body><script src="s.js"></script>`))
			})
			mux.HandleFunc("GET /page/s.js", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = w.Write([]byte(tt.script))
			})
			srv := httptest.NewServer(mux)
			defer srv.Close()
			tb := blank(t, srv.URL+"/page/", desk)
			tb.load(tb.home)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				tb.mu.Lock()
				defer tb.mu.Unlock()
				require.NotEmpty(c, tb.wrong)
				assert.Contains(c, tb.wrong[0], tt.wants)
			}, patience, poll)
			tb.wrongs()
		})
	}
}
