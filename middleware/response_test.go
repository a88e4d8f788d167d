package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// requireSeen serves h to the one request that ask sends, under a breaker that
// trips at an answer of the given status, and fails unless it tripped. It returns
// what the server logged.
func requireSeen(t testing.TB, start func(testing.TB, http.Handler) *server, status int, h http.Handler, ask func(*server)) string {
	t.Helper()
	g := guard(t, fmt.Sprintf(`
version: 1
policies:
  - {name: all, side: server, per: policy, breaker: {failureRate: 100, minCalls: 1, window: {calls: 1}, failureStatus: [%d]}}
`, status))
	limited := middleware.New(g)(h)
	returned := make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		limited.ServeHTTP(w, r)
	}))
	ask(s)
	<-returned // which may be after the client has its answer
	require.Equal(t, "open", compartment(t, g, "all", "").Breaker.State, "status %d was seen", status)
	return s.log.String()
}

// both runs a test without and with a recorder in the way.
func both(t *testing.T, test func(t *testing.T, yaml string)) {
	t.Run("bulkhead", func(t *testing.T) { test(t, withPermits) })
	t.Run("breaker", func(t *testing.T) { test(t, withBreaker) })
}

// E05: http.ResponseController reaches the server.
func TestResponseController(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		result := make(chan error, 1)
		s := serve(t, middleware.New(guard(t, yaml))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			result <- errors.Join(
				c.EnableFullDuplex(),
				c.SetReadDeadline(time.Now().Add(time.Hour)),
				c.SetWriteDeadline(time.Now().Add(time.Hour)),
				c.Flush(),
				c.SetWriteDeadline(time.Now().Add(-time.Hour)),
			)
			_, err := w.Write(make([]byte, 1<<20))
			result <- err
			result <- c.Flush()
		})))
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		assert.NoError(t, <-result)
		assert.ErrorIs(t, <-result, os.ErrDeadlineExceeded, "the deadline is the connection's")
		assert.ErrorIs(t, <-result, os.ErrDeadlineExceeded, "and Flush tells")
		_, err = io.ReadAll(resp.Body)
		assert.Error(t, err)
		resp.Body.Close()
	})
}

// E06: informational answers are not the final one.
func TestEarlyHints(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "made")
	})
	for name, start := range map[string]func(testing.TB, http.Handler) *server{"HTTP/1": serve, "HTTP/2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			var hints []int
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					hints = append(hints, code)
					return nil
				},
			})
			assert.Empty(t, requireSeen(t, start, 201, h, func(s *server) {
				r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
				require.NoError(t, err)
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				assert.Equal(t, 201, resp.StatusCode)
				assert.Equal(t, "made", readAll(t, resp).Body.(nopCloser).String())
			}))
			assert.Equal(t, []int{103, 102, 103}, hints)
		})
	}
}

// E07: whatever makes the server send 200 counts as 200, and a status that came
// too late does not.
func TestImplicitStatus(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(big, make([]byte, 1<<20), 0o600))

	for name, h := range map[string]http.HandlerFunc{
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"Flush":       func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"FlushError":  func(w http.ResponseWriter, _ *http.Request) { http.NewResponseController(w).Flush() },
		"Write":       func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) },
		"empty Write": func(w http.ResponseWriter, _ *http.Request) { w.Write(nil) },
		"WriteString": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") },
		"ReadFrom": func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(big)
			if err != nil {
				panic(err)
			}
			defer f.Close()
			n, err := w.(io.ReaderFrom).ReadFrom(f)
			if n != 1<<20 || err != nil {
				panic(fmt.Sprint(n, err))
			}
		},
		"ServeFile": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, big) },
		"1xx only":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) },
	} {
		t.Run(name, func(t *testing.T) {
			log := requireSeen(t, serve, 200, h, func(s *server) { assert.Equal(t, 200, s.get(t, "/").StatusCode) })
			assert.Empty(t, log, "no superfluous WriteHeader")
		})
	}
}

// What the breaker hears is what is on the wire.
func TestStatusIsTheOneOnTheWire(t *testing.T) {
	broken := func() io.Reader { return iotest.ErrReader(errors.New("upstream is gone")) }
	for name, test := range map[string]struct {
		status int
		h      http.HandlerFunc
	}{
		"the first counts": {502, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
		}},
		// A copy that fails before its first byte has written nothing.
		"a source that fails at once": {502, func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, broken()); err != nil {
				w.WriteHeader(502)
			}
		}},
		"a source that fails later": {200, func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, io.MultiReader(strings.NewReader("some"), broken()))
		}},
		"an empty source": {404, func(w http.ResponseWriter, _ *http.Request) {
			if n, _ := io.Copy(w, iotest.OneByteReader(new(bytes.Buffer))); n == 0 {
				w.WriteHeader(404)
			}
		}},
		"no content": {204, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, requireSeen(t, serve, test.status, test.h, func(s *server) {
				assert.Equal(t, test.status, s.get(t, "/").StatusCode)
			}))
		})
	}
}

// A status that comes after the first byte is not sent, and does not count.
func TestStatusThatCameTooLate(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"Write":       func(w http.ResponseWriter) { w.Write([]byte("x")) },
		"empty Write": func(w http.ResponseWriter) { w.Write(nil) },
		"WriteString": func(w http.ResponseWriter) { io.WriteString(w, "x") },
		"ReadFrom":    func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"FlushError":  func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(200) },
	} {
		t.Run(name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				write(w)
				w.WriteHeader(500)
			})
			log := requireSeen(t, serve, 200, h, func(s *server) { assert.Equal(t, 200, s.get(t, "/").StatusCode) })
			assert.Contains(t, log, "superfluous")
		})
	}
}

// Server-sent events arrive one by one.
func TestServerSentEvents(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		next := make(chan struct{})
		s := serve(t, middleware.New(guard(t, yaml))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n", i)
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
				}
			}
		})))
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			require.True(t, lines.Scan())
			assert.Equal(t, fmt.Sprintf("data: %d", i), lines.Text())
			next <- struct{}{}
		}
		assert.False(t, lines.Scan())
	})
}

// Trailers, of the request and of the response, declared and not.
func TestTrailers(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		for name, start := range map[string]func(testing.TB, http.Handler) *server{"HTTP/1": serve, "HTTP/2": serveHTTP2} {
			t.Run(name, func(t *testing.T) {
				s := start(t, middleware.New(guard(t, yaml), middleware.Reentrant())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "Sum")
					body, _ := io.ReadAll(r.Body)
					w.Write(body)
					w.Header().Set("Sum", r.Trailer.Get("Sum"))
					w.Header().Set(http.TrailerPrefix+"Late", "yes")
				})))
				r, err := http.NewRequest("POST", s.URL, io.MultiReader(strings.NewReader("body")))
				require.NoError(t, err)
				r.Trailer = http.Header{"Sum": {"42"}}
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				assert.Equal(t, "body", readAll(t, resp).Body.(nopCloser).String())
				assert.Equal(t, http.Header{"Sum": {"42"}, "Late": {"yes"}}, resp.Trailer)
			})
		}
	})
}

// The server removes the temporary files of a form although a hook made us copy
// the request on whose copy it was parsed. E29: Pattern comes back, too.
func TestWhatIsLeftOnTheCopyIsCopiedBack(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	derive := watertight.WithHooks(watertight.Hooks{Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
		return context.WithValue(ctx, ctxKey{}, "derived")
	}})
	both(t, func(t *testing.T, yaml string) {
		var stored string
		mux := http.NewServeMux()
		mux.HandleFunc("POST /upload/{id}", func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "derived", r.Context().Value(ctxKey{}))
			assert.Equal(t, "7", r.PathValue("id"))
			if !assert.NoError(t, r.ParseMultipartForm(1)) {
				return
			}
			files, err := filepath.Glob(filepath.Join(os.TempDir(), "multipart-*"))
			if assert.NoError(t, err) && assert.Len(t, files, 1) {
				stored = files[0]
			}
		})
		limited := middleware.New(guard(t, yaml, derive))(mux)
		outside := make(chan *http.Request, 1)
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limited.ServeHTTP(w, r)
			assert.Nil(t, r.Context().Value(ctxKey{}))
			outside <- r
		}))

		var form bytes.Buffer
		form.WriteString("--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" +
			"--x\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n" + strings.Repeat("x", 20<<20) + "\r\n--x--\r\n")
		resp, err := s.Client().Post(s.URL+"/upload/7", "multipart/form-data; boundary=x", &form)
		require.NoError(t, err)
		require.Equal(t, 200, readAll(t, resp).StatusCode)
		r := <-outside
		assert.Equal(t, "POST /upload/{id}", r.Pattern)
		assert.Equal(t, []string{"1"}, r.MultipartForm.Value["a"])
		assert.Equal(t, []string{"1"}, r.Form["a"])
		assert.Equal(t, []string{"1"}, r.PostForm["a"])

		s.Close() // the server tidies up after it has answered
		require.NotEmpty(t, stored)
		assert.NoFileExists(t, stored)
	})
}

type ctxKey struct{}

// Without hooks and with one handler the request is passed on as it is.
func TestRequestIsTheSame(t *testing.T) {
	both(t, func(t *testing.T, yaml string) {
		r := httptest.NewRequest("GET", "/", nil)
		ran := false
		do(middleware.New(guard(t, yaml))(http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
			ran = true
			assert.Same(t, r, inner)
		})), r)
		assert.True(t, ran)
	})
}
