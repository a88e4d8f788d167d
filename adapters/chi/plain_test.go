package watertightchi_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/adapters/chi"
)

// E23: what is whole segments only is found without chi, but comes no sooner than it
// would with chi.
func TestPlainRoutesTakeNoOthersPlace(t *testing.T) {
	sub := func() http.Handler {
		r := chi.NewRouter()
		r.Get("/", func(http.ResponseWriter, *http.Request) {})
		return r
	}
	for _, c := range []struct {
		name   string
		gets   []string
		posts  []string
		mount  string
		path   string
		served string
	}{
		{name: "a literal before a name", gets: []string{"/{x}", "/a"}, path: "/a", served: "/a"},
		{name: "a name where the literal has no such method", gets: []string{"/{x}"}, posts: []string{"/a"}, path: "/a", served: "/{x}"},
		{name: "back from a literal", gets: []string{"/a/b", "/{x}/c"}, path: "/a/c", served: "/{x}/c"},
		{name: "an expression before a name", gets: []string{"/{x}", "/{y:[ab]+}"}, path: "/a", served: "/{y:[ab]+}"},
		{name: "an expression below a literal", gets: []string{"/a/{x:[ab]+}", "/{y}/{z}"}, path: "/a/b", served: "/a/{x:[ab]+}"},
		{name: "a wildcard below a literal", gets: []string{"/a/*", "/{x}/b"}, path: "/a/b", served: "/a/*"},
		{name: "a name before a wildcard", gets: []string{"/a/*", "/a/{x}"}, path: "/a/b", served: "/a/{x}"},
		{name: "text with a name in it", gets: []string{"/{x}", "/v{y}"}, path: "/v1", served: "/v{y}"},
		{name: "a mount before a name", gets: []string{"/{x}"}, mount: "/a", path: "/a", served: "/a"},
		{name: "a mount, and what is beside it", gets: []string{"/{x}"}, mount: "/a", path: "/b", served: "/{x}"},
		{name: "a name before a slash", gets: []string{"/{x}/b"}, path: "//b", served: "/{x}/b"},
		{name: "no name before the end", gets: []string{"/a/{x}", "/a/"}, path: "/a/", served: "/a"},
		{name: "more literals than a few", gets: []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/{x}"}, path: "/h", served: "/h"},
		{name: "none of many literals", gets: []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/{x}"}, path: "/i", served: "/{x}"},
	} {
		g := guard(t, roomy)
		r := chi.NewRouter()
		r.Use(watertightchi.Middleware(g))
		served := ""
		note := func(_ http.ResponseWriter, r *http.Request) { served = chi.RouteContext(r.Context()).RoutePattern() }
		for _, p := range c.gets {
			r.Get(p, note)
		}
		for _, p := range c.posts {
			r.Post(p, note)
		}
		if c.mount != "" {
			r.Mount(c.mount, sub())
			served = c.mount
		}
		do(r, request("GET", c.path))
		assert.Equal(t, c.served, served, "%s, as chi serves it", c.name)
		assert.Equal(t, []string{c.served}, keys(g, "routes"), c.name)
	}
}
