package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/middleware"
)

// A copier is a writer with a ReadFrom, as that of HTTP/1 is. It notes what it is
// given, and may be slow.
type copier struct {
	*httptest.ResponseRecorder
	write   func() // before each write
	sources []io.Reader
}

func (c *copier) Write(p []byte) (int, error) {
	c.write()
	return c.ResponseRecorder.Write(p)
}

func (c *copier) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

func (c *copier) ReadFrom(src io.Reader) (int64, error) {
	c.sources = append(c.sources, src)
	return io.Copy(struct{ io.Writer }{c}, src)
}

// A handler that copies its answer from somewhere has begun to answer when the
// first bytes are out, however long the copy takes: because its client is slow, or
// its source.
func TestACopyUnderWayIsNotOverdue(t *testing.T) {
	const much = 5000
	for name, test := range map[string]struct {
		hangs string
		begin func(w http.ResponseWriter, source io.Reader)
		n     int // bytes that the source has before it hangs
		state string
		url   string
	}{
		"copied, the source hangs":                  {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, much, "closed", "http://here"},
		"copied, the source hangs soon":             {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, 10, "open", "http://here"},
		"copied, the source hangs after a packet":   {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, 1000, "closed", "http://here"},
		"the same, over TLS":                        {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, 1000, "open", "https://here"},
		"copied over TLS, the source hangs":         {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, much, "closed", "https://here"},
		"copied, the source hangs at once":          {"source", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, 0, "open", "http://here"},
		"copied after some bytes, the source hangs": {"source", func(w http.ResponseWriter, s io.Reader) { w.Write(make([]byte, 4096)); io.Copy(w, s) }, 1, "closed", "http://here"},
		"copied, the client hangs":                  {"client", func(w http.ResponseWriter, s io.Reader) { io.Copy(w, s) }, 100_000, "closed", "http://here"},
		"written, the client hangs":                 {"client", func(w http.ResponseWriter, _ io.Reader) { w.Write(make([]byte, much)) }, 0, "closed", "http://here"},
		"a string, the client hangs":                {"client", func(w http.ResponseWriter, _ io.Reader) { io.WriteString(w, strings.Repeat("x", much)) }, 0, "closed", "http://here"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, breaker: {slowCall: 800ms, minCalls: 3}}]}")
				leave := make(chan struct{})
				h := middleware.New(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					source, fed := io.Pipe()
					defer source.Close()
					go func() {
						fed.Write(make([]byte, test.n))
						<-leave
						fed.Close()
					}()
					test.begin(w, source)
				}))
				for range 3 {
					written := 0
					w := &copier{ResponseRecorder: httptest.NewRecorder(), write: func() {
						// The client takes what fits into the buffers, and no more.
						if written++; test.hangs == "client" && (written > 1 || test.n == 0) {
							<-leave
						}
					}}
					go h.ServeHTTP(w, httptest.NewRequest("GET", test.url, nil))
				}
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Equal(t, test.state, compartment(t, g, "all", "").Breaker.State)
				close(leave)
				synctest.Wait()
			})
		})
	}
}

// The writer beneath gets the file itself, which the operating system can send
// without our help, and every byte of it once.
func TestFilesAreCopiedByTheWriterBeneath(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 2048, 2049, 4096, 4097, 10_000} {
		for _, before := range []int{0, 1, 2048, 2049, 4096, 4097, 6000} {
			name := filepath.Join(t.TempDir(), "file")
			content := strings.Repeat("0123456789", size/10+1)[:size]
			require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
			f, err := os.Open(name)
			require.NoError(t, err)
			defer f.Close()
			w := &copier{ResponseRecorder: httptest.NewRecorder(), write: func() {}}
			h := middleware.New(guard(t, withBreaker))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Write(make([]byte, before))
				n, err := w.(io.ReaderFrom).ReadFrom(f)
				assert.NoError(t, err)
				assert.EqualValues(t, size, n)
			}))
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			assert.Equal(t, content, w.Body.String()[before:], "%d after %d", size, before)
			require.NotEmpty(t, w.sources)
			if size > 512 {
				assert.Same(t, f, w.sources[len(w.sources)-1])
			}
		}
	}
}
