package watertightchi_test

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/adapters/chi"
)

// FuzzRoute: whatever is asked for, the compartment is that of the route that chi
// serves, wherever the middleware stands; what it serves by no route has none.
func FuzzRoute(f *testing.F) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET /users/7 HTTP/1.1\r\nHost: here\r\n\r\n",
		"POST /users/a%2Fb HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET /api/x/7/ HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET /api HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET /api//x/../deep/%00/y HTTP/1.1\r\nHost: here\r\n\r\n",
		"DELETE /files/a/b/c.txt HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET /dates/2024-02-29 HTTP/1.1\r\nHost: here\r\n\r\n",
		"BREW /plain/sub HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: here\r\n\r\n",
		"CONNECT here:443 HTTP/1.1\r\nHost: here:443\r\n\r\n",
		"GET http://there/users/7?a=b;c HTTP/1.1\r\nHost: here\r\n\r\n",
		"GET //users//7 HTTP/1.1\r\nHost: here\r\n\r\n",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		parse := func() *http.Request {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
			if err != nil {
				return nil
			}
			return r
		}
		if parse() == nil {
			return
		}
		for place, put := range map[string]func(m func(http.Handler) http.Handler, root, sub chi.Router) chi.Router{
			"root": func(m func(http.Handler) http.Handler, root, sub chi.Router) chi.Router { root.Use(m); return sub },
			"both": func(m func(http.Handler) http.Handler, root, sub chi.Router) chi.Router {
				root.Use(m)
				sub.Use(m)
				return sub.With(m)
			},
		} {
			g := guard(t, "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 1}}]}")
			served := ""
			note := func(_ http.ResponseWriter, r *http.Request) { served = chi.RouteContext(r.Context()).RoutePattern() }
			root, sub := chi.NewRouter(), chi.NewRouter()
			subs := put(watertightchi.Middleware(g), root, sub)
			subs.Get("/", note)
			subs.HandleFunc("/x/{id}", note)
			subs.Route("/deep/{a}", func(r chi.Router) { r.Get("/{b}", note); r.Post("/*", note) })
			root.Get("/", note)
			root.Get("/users/{id}", note)
			root.Post("/users/{id}", note)
			root.HandleFunc("/files/*", note)
			root.Get("/dates/{y:[0-9]{4}}-{m:[0-9]+}-{d}", note)
			root.Mount("/api", sub)

			w := do(root, parse())
			if served == "" {
				require.Contains(t, []int{404, 405}, w.Code, place)
				require.Empty(t, keys(g, "routes"), place)
				continue
			}
			require.Equal(t, []string{served}, keys(g, "routes"), place)
			require.EqualValues(t, 1, compartment(t, g, "routes", served).Granted, place)
		}
	})
}
