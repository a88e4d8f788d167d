package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/metrics"
)

// shown returns the key as a span shows it.
func shown(key string) string {
	recorder := tracetest.NewSpanRecorder()
	metrics.New(metrics.WithTracerProvider(newProvider(recorder))).
		Reject(context.Background(), watertight.RejectEvent{Compartment: watertight.Compartment{Key: key}})
	return attributesOf(recorder.Ended()[0])["watertight.key"].(string)
}

func TestKeyText(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct{ name, key, want string }{
		{"route", "GET /items/{id}", "GET /items/{id}"},
		{"host", "https://up.internal:443", "https://up.internal:443"},
		{"64 bytes", long, long},
		{"65 bytes", long + "x", long},
		{"letters beyond ASCII", "/grüße/世界", "/grüße/世界"},
		{"control characters", "a\x00b\r\nc\x7f\t", "a?b??c??"},
		{"delete alone", "a\x7f", "a?"},
		{"bad UTF-8", "a\xff\xc3", "a??"},
		{"replacement character", "a\uFFFDb", "a?b"},
		{"bidirectional override", "a\u202eb", "a?b"},
		{"non-breaking space", "a\u00a0b", "a?b"},
		{"a rune across the cut", long[:63] + "é", long[:63]},
		{"a rune before the cut", long[:62] + "éx", long[:62] + "é"},
		{"cut after replacing", strings.Repeat("\u202e", 65), strings.Repeat("?", 64)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, shown(tt.key))
		})
	}
}

func TestKeyTextProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 100), func(b []byte) string { return string(b) }),
			rapid.StringMatching(`[ -~]{50,70}`),
		).Filter(func(s string) bool { return s != "" }).Draw(t, "key")

		// Rune by rune, with each bad one replaced; then the longest prefix that
		// is whole runes and fits.
		var replaced []rune
		for _, r := range key {
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				r = '?'
			}
			replaced = append(replaced, r)
		}
		want := string(replaced)
		for len(want) > 64 {
			replaced = replaced[:len(replaced)-1]
			want = string(replaced)
		}
		assert.Equal(t, want, shown(key))
	})
}

// E65: whatever callers make up, names and attributes stay within bounds.
func TestNamesAndAttributesStayBounded(t *testing.T) {
	r := newRig(t, `
version: 1
defaults: {maxCompartments: 20}
policies:
  - name: by-host
    match: [{path: /items/9}]
    per: host
    bulkhead: {maxConcurrent: 1}
  - name: by-route
    bulkhead: {maxConcurrent: 1}
`)
	h := r.server(nop)
	for i := range 1000 {
		req := get(t.Context(), fmt.Sprintf("/items/%d", i%10))
		req.Method = []string{http.MethodGet, fmt.Sprintf("X%d", i)}[i%7%2]
		req.Host = fmt.Sprintf("%d.%s\xff.example", i, strings.Repeat("h", i%100))
		req.Header.Set("User-Agent", fmt.Sprintf("agent-%d", i))
		serve(h, req)
	}
	names := map[string]bool{}
	routes := map[string]bool{}
	for _, s := range r.recorder.Ended() {
		names[s.Name()] = true
		a := attributesOf(s)
		key := a["watertight.key"].(string)
		assert.LessOrEqual(t, len(key), 64)
		assert.True(t, utf8.ValidString(key))
		if a["watertight.policy"] == "by-route" {
			routes[key] = true
		}
		for name, v := range a {
			assert.NotContains(t, fmt.Sprint(v), "agent-", name)
			assert.NotContains(t, fmt.Sprint(v), "/items/9", name)
		}
	}
	assert.Equal(t, map[string]bool{"bulkhead.grant": true}, names)
	assert.Equal(t, map[string]bool{"GET /items/{id}": true}, routes)
}
