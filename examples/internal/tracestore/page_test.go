package tracestore_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

func TestPage(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	tr := tracerOf(s)
	one := record(tr, "one", "wait")
	record(tr, "two")
	record(tr, "three", "wait")

	for _, tt := range []struct {
		name   string
		query  url.Values
		status int
		want   []string // the traces, in order
	}{
		{"all", nil, 200, []string{"three", "two", "one"}},
		{"count", url.Values{"n": {"2"}}, 200, []string{"three", "two"}},
		{"span", url.Values{"span": {"wait"}}, 200, []string{"three", "one"}},
		{"count of those with the span", url.Values{"span": {"wait"}, "n": {"1"}}, 200, []string{"three"}},
		{"no such span", url.Values{"span": {"trip"}}, 200, nil},
		{"one trace", url.Values{"trace": {one.String()}}, 200, []string{"one"}},
		{"no such trace", url.Values{"trace": {strings.Repeat("1", 32)}}, 404, nil},
		{"bad trace", url.Values{"trace": {"x"}}, 400, nil},
		{"bad count", url.Values{"n": {"0"}}, 400, nil},
		{"no count", url.Values{"n": {"many"}}, 400, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/?"+tt.query.Encode(), nil))
			require.Equal(t, tt.status, rec.Code)
			assert.Equal(t, "text/plain; charset=utf-8", rec.Header().Get("Content-Type"))
			var got []string
			previous := ""
			for line := range strings.Lines(rec.Body.String()) {
				if strings.HasPrefix(previous, "trace ") && tt.status == 200 {
					got = append(got, strings.Fields(line)[0])
				}
				previous = line
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
