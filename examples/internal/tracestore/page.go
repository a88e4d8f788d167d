package tracestore

import (
	"fmt"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

// pageTraces is how many traces a page shows unless it is told.
const pageTraces = 50

// ServeHTTP shows the latest traces as text, the latest first. Parameters:
// span=NAME for those that have a span of that name, n=COUNT for how many, and
// trace=ID for one alone.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n := pageTraces
	if text := q.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			http.Error(w, "n: want a number from 1", http.StatusBadRequest)
			return
		}
	}
	var traces []Trace
	if text := q.Get("trace"); text != "" {
		id, err := trace.TraceIDFromHex(text)
		if err != nil {
			http.Error(w, "trace: "+err.Error(), http.StatusBadRequest)
			return
		}
		t, ok := s.Trace(id)
		if !ok {
			http.Error(w, "no such trace is kept", http.StatusNotFound)
			return
		}
		traces = []Trace{t}
	} else {
		traces = s.Traces()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	span := q.Get("span")
	for _, t := range traces {
		if n == 0 {
			return
		}
		if span != "" && !t.has(span) {
			continue
		}
		n--
		if _, err := fmt.Fprintln(w, t); err != nil {
			return // the client is gone
		}
	}
}

func (t Trace) has(name string) bool {
	for _, s := range t.Spans {
		if s.Name == name {
			return true
		}
	}
	return false
}
