package app

import (
	"encoding/json"
	"net/http"
)

// handler puts the pages for operators beside the service and not behind the
// Guard: whoever looks at an overloaded or draining server must not be turned
// away by it. They are matched by hand, because http.ServeMux would clean the
// paths that the gateway has to pass on as they are.
func (a *App) handler() http.Handler {
	pages := map[string]http.HandlerFunc{
		"/healthz":               a.healthz,
		"/readyz":                a.readyz,
		"/debug/watertight.json": a.snapshot,
		"/debug/traces":          a.traces,
	}
	service := a.service()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		switch {
		case !ok:
			service.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Cache-Control", "no-store")
			page(w, r)
		}
	})
}

func (a *App) healthz(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") }

func (a *App) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.guard.Ready() {
		text(w, http.StatusOK, "ready")
	} else {
		text(w, http.StatusServiceUnavailable, "draining")
	}
}

func (a *App) snapshot(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(a.guard.Snapshot(), "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(body, '\n'))
}

func (a *App) traces(w http.ResponseWriter, r *http.Request) {
	if store := a.Traces(); store != nil {
		store.ServeHTTP(w, r)
		return
	}
	text(w, http.StatusNotFound, "spans go to the collector; look there")
}
