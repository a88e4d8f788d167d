package watertightchi

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// literals are the routes that are their own paths, such as /health, as far as they
// were met. Once met, such a route is found without chi, whose look-up takes several
// times as long, and allocates if it leads through a mounted router.
//
// A path that was looked up as its own pattern leads there each time, since routes do
// not change. There are at most as many of these as there are patterns and methods,
// so nobody can make them grow from outside. Routes with parameters are looked up
// anew: to remember their paths would need a bound, and an entry for each path.
type literals struct {
	// met has the methods by pattern. A map is never changed, only replaced. To copy
	// it at each new route costs little, and is over when all routes were met.
	met atomic.Pointer[map[string][]string]
	mu  sync.Mutex // held by whoever replaces it
}

// find returns the path if it is a route that was met, else "".
func (l *literals) find(method, path string) string {
	if met := l.met.Load(); met != nil && slices.Contains((*met)[path], method) {
		return path
	}
	return ""
}

// add notes a pattern under which a request with that method and path was found.
func (l *literals) add(method, pattern string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := make(map[string][]string)
	if met := l.met.Load(); met != nil {
		maps.Copy(next, *met)
	}
	if !slices.Contains(next[pattern], method) {
		// Cut off from the old map's slice, and from the request that the text of the
		// method may be a part of.
		next[pattern] = append(slices.Clip(next[pattern]), strings.Clone(method))
		l.met.Store(&next)
	}
}
