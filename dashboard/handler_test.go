package dashboard_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
)

const policies = `
version: 1
policies:
  - {name: tenants, side: server, match: [{path: /tenant}], per: "header:X-Tenant", bulkhead: {maxConcurrent: 2, maxQueue: 4, maxWait: 1s}}
  - {name: reports, side: server, per: policy, bulkhead: {maxConcurrent: 5}}
  - {name: payments, side: client, per: policy, breaker: {minCalls: 2, openFor: 5s}}
`

func guard(t *testing.T, opts ...watertight.Option) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(policies))
	require.NoError(t, err)
	return watertight.New(set, opts...)
}

// call sends a request of a tenant through the server side.
func call(g *watertight.Guard, tenant string) {
	r := httptest.NewRequest(http.MethodGet, "/tenant", nil)
	r.Header.Set("X-Tenant", tenant)
	middleware.New(g)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
}

func get(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

func TestFiles(t *testing.T) {
	h := dashboard.Handler(guard(t))
	for path, mime := range map[string]string{
		"/":         "text/html; charset=utf-8",
		"/page.css": "text/css; charset=utf-8",
		"/page.js":  "text/javascript; charset=utf-8",
		"/logic.js": "text/javascript; charset=utf-8",
		"/draw.js":  "text/javascript; charset=utf-8",
		"/icon.svg": "image/svg+xml",
	} {
		t.Run(path, func(t *testing.T) {
			resp := get(h, http.MethodGet, path)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Equal(t, mime, resp.Header.Get("Content-Type"))
			assert.Equal(t, "no-cache", resp.Header.Get("Cache-Control"))
			whole := body(t, resp)
			assert.NotEmpty(t, whole)
			assert.NotContains(t, whole, "http://www.google", "nothing from outside")

			tag := resp.Header.Get("ETag")
			require.NotEmpty(t, tag)
			again := get(h, http.MethodGet, path, "If-None-Match", tag)
			assert.Equal(t, http.StatusNotModified, again.StatusCode)
			assert.Empty(t, body(t, again))

			head := get(h, http.MethodHead, path)
			assert.Equal(t, http.StatusOK, head.StatusCode)
			assert.EqualValues(t, len(whole), head.ContentLength)
			assert.Empty(t, body(t, head))
		})
	}
}

// The page's policy has no room for what would be inline or come from elsewhere.
func TestThePageHoldsToItsOwnPolicy(t *testing.T) {
	page := body(t, get(dashboard.Handler(guard(t)), http.MethodGet, "/"))
	for _, bad := range []string{"<style", "style=", "onclick", "onload", "javascript:", "//cdn", "src=\"/", "href=\"/", "src=\"http", "href=\"http"} {
		assert.NotContains(t, page, bad)
	}
	assert.Equal(t, 1, strings.Count(page, "<script"), "and that one is a file")
	assert.Contains(t, page, `<script type="module" src="page.js"></script>`)
	script := body(t, get(dashboard.Handler(guard(t)), http.MethodGet, "/page.js"))
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
		assert.NotContains(t, script, bad, "what a key holds is text")
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	h := dashboard.Handler(guard(t))
	for _, r := range [][2]string{
		{http.MethodGet, "/"}, {http.MethodGet, "/page.js"}, {http.MethodGet, "/snapshot.json"}, {http.MethodHead, "/events"},
		{http.MethodGet, "/nothing"}, {http.MethodPost, "/"},
	} {
		resp := get(h, r[0], r[1])
		t.Run(r[0]+" "+r[1], func(t *testing.T) {
			csp := resp.Header.Get("Content-Security-Policy")
			assert.Contains(t, csp, "default-src 'none'")
			assert.Contains(t, csp, "frame-ancestors 'none'")
			assert.NotContains(t, csp, "unsafe")
			assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
			assert.Equal(t, "DENY", resp.Header.Get("X-Frame-Options"))
			assert.Equal(t, "no-referrer", resp.Header.Get("Referrer-Policy"))
			assert.Equal(t, "same-origin", resp.Header.Get("Cross-Origin-Resource-Policy"))
			assert.NotEmpty(t, resp.Header.Get("Cache-Control"))
			assert.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
		})
	}
}

func TestOnlyReading(t *testing.T) {
	h := dashboard.Handler(guard(t))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "BREW"} {
		for _, path := range []string{"/", "/snapshot.json", "/events", "/page.js"} {
			resp := get(h, method, path)
			assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", method, path)
			assert.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
		}
	}
}

func TestPrefixes(t *testing.T) {
	page := dashboard.Handler(guard(t))
	mux := func(pattern string, h http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle(pattern, h)
		return m
	}
	both := http.NewServeMux()
	both.Handle("/debug/wt", page)
	both.Handle("/debug/wt/", page)
	both.Handle("GET /debug/post", page)
	for name, c := range map[string]struct {
		h      http.Handler
		prefix string // where the page is, with a slash at the end
	}{
		"bare":                        {page, "/"},
		"bare, far down":              {page, "/a/b/"},
		"mux at the root":             {mux("/", page), "/"},
		"mux":                         {mux("/debug/wt/", page), "/debug/wt/"},
		"mux with a wildcard":         {mux("GET /{team}/wt/", page), "/red/wt/"},
		"stripped":                    {mux("/debug/wt/", http.StripPrefix("/debug/wt", page)), "/debug/wt/"},
		"stripped with its slash":     {mux("/debug/wt/", http.StripPrefix("/debug/wt/", page)), "/debug/wt/"},
		"stripped, without a mux":     {http.StripPrefix("/debug/wt", page), "/debug/wt/"},
		"registered in both spelling": {both, "/debug/wt/"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, want := range map[string]string{"": "text/html; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "snapshot.json": "application/json"} {
				resp := get(c.h, http.MethodGet, c.prefix+file)
				assert.Equal(t, http.StatusOK, resp.StatusCode, file)
				assert.Equal(t, want, resp.Header.Get("Content-Type"))
			}
			assert.Equal(t, http.StatusNotFound, get(c.h, http.MethodGet, c.prefix+"nothing.txt").StatusCode)
			assert.Equal(t, http.StatusNotFound, get(c.h, http.MethodGet, c.prefix+"favicon.ico").StatusCode)
		})
	}

	// Without the slash the browser would look for the files in the directory above.
	for name, h := range map[string]http.Handler{
		"stripped":                    http.StripPrefix("/debug/wt", page),
		"registered in both spelling": both,
	} {
		t.Run(name+", no slash", func(t *testing.T) {
			resp := get(h, http.MethodGet, "/debug/wt?x=1")
			assert.Equal(t, http.StatusPermanentRedirect, resp.StatusCode)
			assert.Equal(t, "http://admin/debug/wt/?x=1", follow(t, "http://admin/debug/wt?x=1", resp))
		})
	}
	t.Run("a proxy that has another prefix before it", func(t *testing.T) {
		// It asks for /wt here where the browser has asked for /team/wt.
		assert.Equal(t, "./wt/", get(http.StripPrefix("/wt", page), http.MethodGet, "/wt").Header.Get("Location"))
	})
	t.Run("no way out", func(t *testing.T) {
		for _, path := range []string{"//evil.example", "/%2f%2fevil.example", "/javascript:alert(1)"} {
			stripped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = ""
				page.ServeHTTP(w, r)
			})
			resp := get(stripped, http.MethodGet, path)
			assert.Equal(t, http.StatusPermanentRedirect, resp.StatusCode)
			assert.Regexp(t, "^http://admin/", follow(t, "http://admin"+path, resp))
		}
	})
}

// follow returns where a browser that has asked for from goes after resp.
func follow(t *testing.T, from string, resp *http.Response) string {
	t.Helper()
	asked, err := url.Parse(from)
	require.NoError(t, err)
	to, err := asked.Parse(resp.Header.Get("Location"))
	require.NoError(t, err)
	return to.String()
}

func TestSnapshotJSON(t *testing.T) {
	g := guard(t)
	call(g, "acme")
	call(g, "globex")
	h := dashboard.Handler(g, dashboard.WithInterval(2*time.Second))
	before := time.Now()
	resp := get(h, http.MethodGet, "/snapshot.json")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	text := body(t, resp)
	assert.EqualValues(t, len(text), resp.ContentLength)

	var shown watertight.Snapshot
	require.NoError(t, json.Unmarshal([]byte(text), &shown))
	want := g.Snapshot()
	assert.Equal(t, want.Compartments, shown.Compartments, "the snapshot's own shape")
	assert.Equal(t, 1, shown.Version)

	var more struct {
		Time         time.Time `json:"time"`
		Instance     string    `json:"instance"`
		IntervalMs   int       `json:"intervalMs"`
		Compartments []struct {
			ID string `json:"id"`
		} `json:"compartments"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &more))
	assert.False(t, more.Time.Before(before.Truncate(0)))
	assert.NotEmpty(t, more.Instance)
	assert.Equal(t, 2000, more.IntervalMs)
	require.Len(t, more.Compartments, 2)
	assert.Equal(t, "server/tenants/header/acme", more.Compartments[0].ID)
	assert.Equal(t, "server/tenants/header/globex", more.Compartments[1].ID)

	head := get(h, http.MethodHead, "/snapshot.json")
	assert.Equal(t, http.StatusOK, head.StatusCode)
	assert.Empty(t, body(t, head))
}

// Empty lists are lists, so that nobody has to look for null.
func TestSnapshotOfNothing(t *testing.T) {
	text := body(t, get(dashboard.Handler(watertight.New(nil)), http.MethodGet, "/snapshot.json"))
	assert.Contains(t, text, `"compartments":[]`)
	assert.Contains(t, text, `"transitions":[]`)
}
