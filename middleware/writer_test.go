package middleware_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// calls notes which optional method of a stub was called last.
type calls struct{ last string }

var errStub = errors.New("from the writer beneath")

type (
	stubFlusher  struct{ *calls }
	stubFlushErr struct{ *calls }
	stubHijacker struct{ *calls }
	stubPusher   struct{ *calls }
	stubReadFrom struct{ *calls }
)

func (s stubFlusher) Flush()             { s.last = "Flush" }
func (s stubFlushErr) Flush()            { s.last = "Flush" }
func (s stubFlushErr) FlushError() error { s.last = "FlushError"; return errStub }
func (s stubHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	s.last = "Hijack"
	return nil, nil, errStub
}
func (s stubPusher) Push(string, *http.PushOptions) error { s.last = "Push"; return errStub }
func (s stubReadFrom) ReadFrom(r io.Reader) (int64, error) {
	s.last = "ReadFrom"
	n, err := io.Copy(io.Discard, r)
	return n, errors.Join(err, errStub)
}

// bare has the three methods and nothing else, unlike a ResponseRecorder.
type bare struct{ http.ResponseWriter }

// stubs are writers with every subset of the optional interfaces, by bits:
// 1 Flusher, 2 Hijacker, 4 Pusher, 8 io.ReaderFrom.
func stubs(c *calls) [16]http.ResponseWriter {
	b := bare{httptest.NewRecorder()}
	f, h, p, r := stubFlusher{c}, stubHijacker{c}, stubPusher{c}, stubReadFrom{c}
	return [16]http.ResponseWriter{
		0: b,
		1: struct {
			bare
			http.Flusher
		}{b, f},
		2: struct {
			bare
			http.Hijacker
		}{b, h},
		3: struct {
			bare
			http.Flusher
			http.Hijacker
		}{b, f, h},
		4: struct {
			bare
			http.Pusher
		}{b, p},
		5: struct {
			bare
			http.Flusher
			http.Pusher
		}{b, f, p},
		6: struct {
			bare
			http.Hijacker
			http.Pusher
		}{b, h, p},
		7: struct {
			bare
			http.Flusher
			http.Hijacker
			http.Pusher
		}{b, f, h, p},
		8: struct {
			bare
			io.ReaderFrom
		}{b, r},
		9: struct {
			bare
			http.Flusher
			io.ReaderFrom
		}{b, f, r},
		10: struct {
			bare
			http.Hijacker
			io.ReaderFrom
		}{b, h, r},
		11: struct {
			bare
			http.Flusher
			http.Hijacker
			io.ReaderFrom
		}{b, f, h, r},
		12: struct {
			bare
			http.Pusher
			io.ReaderFrom
		}{b, p, r},
		13: struct {
			bare
			http.Flusher
			http.Pusher
			io.ReaderFrom
		}{b, f, p, r},
		14: struct {
			bare
			http.Hijacker
			http.Pusher
			io.ReaderFrom
		}{b, h, p, r},
		15: struct {
			bare
			http.Flusher
			http.Hijacker
			http.Pusher
			io.ReaderFrom
		}{b, f, h, p, r},
	}
}

// can names the optional interfaces of w.
func can(w http.ResponseWriter) (names []string) {
	if _, ok := w.(http.Flusher); ok {
		names = append(names, "Flush")
	}
	if _, ok := w.(http.Hijacker); ok {
		names = append(names, "Hijack")
	}
	if _, ok := w.(http.Pusher); ok {
		names = append(names, "Push")
	}
	if _, ok := w.(io.ReaderFrom); ok {
		names = append(names, "ReadFrom")
	}
	return names
}

const (
	unlimited   = "{version: 1, policies: [{name: other, side: server, match: [{path: /other}], bulkhead: {maxConcurrent: 1}}]}"
	withPermits = "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}}]}"
	withBreaker = "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, window: {calls: 1}}}]}"
)

// E04: without a breaker the handler gets the very same writer.
func TestWriterIsTheSameWithoutABreaker(t *testing.T) {
	for name, yaml := range map[string]string{"unlimited": unlimited, "bulkhead": withPermits} {
		for i, stub := range stubs(new(calls)) {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				ran := false
				h := middleware.New(guard(t, yaml))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ran = true
					assert.True(t, w == stub)
				}))
				h.ServeHTTP(stub, httptest.NewRequest("GET", "/", nil))
				assert.True(t, ran)
			})
		}
	}
}

// E04: with a breaker it gets a writer of the same abilities, none lost, none
// invented, and each reaches the writer beneath.
func TestWriterHasTheSameAbilitiesWithABreaker(t *testing.T) {
	c := new(calls)
	seen := map[string]bool{}
	for i, stub := range stubs(c) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			want := can(stub)
			seen[strings.Join(want, " ")] = true
			ran := false
			h := middleware.New(guard(t, withBreaker))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				ran = true
				assert.False(t, w == stub, "somebody has to watch the status")
				assert.Equal(t, want, can(w))
				_, ok := w.(interface{ FlushError() error })
				assert.Equal(t, i&1 != 0, ok)
				assert.True(t, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap() == stub)
				for _, name := range want {
					var err error
					switch name {
					case "Flush":
						w.(http.Flusher).Flush()
						err = errStub // which Flush cannot return
					case "Hijack":
						_, _, err = w.(http.Hijacker).Hijack()
					case "Push":
						err = w.(http.Pusher).Push("/", nil)
					case "ReadFrom":
						var n int64
						n, err = w.(io.ReaderFrom).ReadFrom(strings.NewReader("12345"))
						assert.EqualValues(t, 5, n)
					}
					assert.ErrorIs(t, err, errStub, name)
					assert.Equal(t, name, c.last)
				}
			}))
			h.ServeHTTP(stub, httptest.NewRequest("GET", "/", nil))
			assert.True(t, ran)
		})
	}
	assert.Len(t, seen, 16)
}

// FlushError's error comes through, and Flush uses it where there is one.
func TestFlushErrorComesThrough(t *testing.T) {
	c := new(calls)
	stub := struct {
		bare
		stubFlushErr
	}{bare{httptest.NewRecorder()}, stubFlushErr{c}}
	h := middleware.New(guard(t, withBreaker))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.Equal(t, errStub, http.NewResponseController(w).Flush())
		assert.Equal(t, "FlushError", c.last)
		c.last = ""
		w.(http.Flusher).Flush()
		assert.Equal(t, "FlushError", c.last)
	}))
	h.ServeHTTP(stub, httptest.NewRequest("GET", "/", nil))
}

// hiding is a writer as access loggers have it: no abilities, but Unwrap.
type hiding struct{ http.ResponseWriter }

func (h hiding) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// A Hijacker further out that only http.ResponseController can find stays hidden
// from type assertions, and is found by the controller; one that is not there is
// not invented on that way either.
func TestHiddenAbilitiesStayHidden(t *testing.T) {
	c := new(calls)
	for i, stub := range stubs(c) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			h := middleware.New(guard(t, withBreaker))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				assert.Empty(t, can(w))
				_, _, err := http.NewResponseController(w).Hijack()
				if i&2 != 0 {
					assert.Equal(t, errStub, err)
				} else {
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
				c.last = ""
				err = http.NewResponseController(w).Flush()
				if i&1 != 0 {
					assert.NoError(t, err)
					assert.Equal(t, "Flush", c.last)
				} else {
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
				_, err = io.WriteString(w, "written")
				require.NoError(t, err)
				beneath := w
				for {
					deeper, ok := beneath.(interface{ Unwrap() http.ResponseWriter })
					if !ok {
						break
					}
					beneath = deeper.Unwrap()
				}
				assert.True(t, beneath == stub)
			}))
			h.ServeHTTP(hiding{hiding{stub}}, httptest.NewRequest("GET", "/", nil))
		})
	}
}
