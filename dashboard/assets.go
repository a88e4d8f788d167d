package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"sync"
	"time"
)

//go:embed page
var files embed.FS

// An asset is one of the files that make the page.
type asset struct {
	content []byte
	mime    string
	tag     string
}

// assets has the files by their names in the URL.
var assets = sync.OnceValue(func() map[string]asset {
	all := make(map[string]asset)
	for _, f := range []struct{ url, file, mime string }{
		{"", "index.html", "text/html; charset=utf-8"},
		{"page.css", "page.css", "text/css; charset=utf-8"},
		{"page.js", "page.js", "text/javascript; charset=utf-8"},
		{"logic.js", "logic.js", "text/javascript; charset=utf-8"},
		{"draw.js", "draw.js", "text/javascript; charset=utf-8"},
		{"icon.svg", "icon.svg", "image/svg+xml"},
	} {
		content, err := files.ReadFile("page/" + f.file)
		if err != nil {
			panic("dashboard: " + err.Error()) // the compiler has embedded another set of files than this one
		}
		sum := sha256.Sum256(content)
		all[f.url] = asset{content, f.mime, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	}
	return all
})

// isAsset reports whether name is that of a file, or of the JSON.
func isAsset(name string) bool {
	_, ok := assets()[name]
	return ok || name == "snapshot.json" || name == "events"
}

// serveAsset answers with a file. A browser may keep it but has to ask whether it is
// still the one: what is shown and how must be of the same version.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := assets()[name]
	if !ok {
		http.Error(w, "there is no such file here; the page is at the path that ends in a slash", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", a.mime)
	h.Set("ETag", a.tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
}
