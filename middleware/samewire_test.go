package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
)

// sameAnswers are handlers that use what net/http offers; each request to each of
// them has to be answered as it is without the middleware.
func sameAnswers(t *testing.T) map[string]http.Handler {
	dir := t.TempDir()
	name := filepath.Join(dir, "file.txt")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("ghijklmnop", 10_000)), 0o600))
	modified := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(name, modified, modified))

	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Method, r.URL, r.Host, r.ContentLength, err, string(body), r.Trailer)
	}
	return map[string]http.Handler{
		"nothing": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"text":    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "text") }),
		"html, sniffed": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>")
			io.WriteString(w, "</html>")
		}),
		"echo":  http.HandlerFunc(echo),
		"large": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 100_000)) }),
		"in pieces": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Write(make([]byte, 100))
			}
		}),
		"of a length": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			io.WriteString(w, "four")
		}),
		"too long": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, err := io.WriteString(w, "four")
			fmt.Fprint(w, err)
		}),
		"too short": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "four")
		}),
		"flushed": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			io.WriteString(w, "b")
		}),
		"flushed first": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set("Late", "1")
			io.WriteString(w, "b")
		}),
		"200": status(200, ""),
		"204": status(204, ""),
		"204 with a body": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			_, err := w.Write([]byte("x"))
			assert.Equal(t, http.ErrBodyNotAllowed, err)
		}),
		"205":             status(205, ""),
		"304":             status(304, ""),
		"304 with a body": status(304, "body"),
		"404":             http.NotFoundHandler(),
		"418":             status(418, "short and stout"),
		"500":             http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wrong", 500) }),
		"599":             status(599, "what?"),
		"redirect":        http.RedirectHandler("/elsewhere", http.StatusFound),
		"hints": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a>")
			w.WriteHeader(103)
			w.WriteHeader(103)
			w.WriteHeader(201)
			io.WriteString(w, "made")
		}),
		"hints only": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Link", "</a>"); w.WriteHeader(103) }),
		"trailers": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "A")
			echo(w, r)
			w.Header().Set("A", "1")
			w.Header().Set(http.TrailerPrefix+"B", "2")
		}),
		"abort": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "ab")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}),
		"abort before": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"closes": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, "bye")
		}),
		"own headers": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["X-a"] = []string{"1", "2"}
			io.WriteString(w, "<html>")
		}),
		"body unread": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "unread") }),
		"ServeContent": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"tag"`)
			http.ServeContent(w, r, "a.txt", modified, strings.NewReader(strings.Repeat("content ", 1000)))
		}),
		"FileServer": http.FileServer(http.Dir(dir)),
		"ReadFrom": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(name)
			if err != nil {
				panic(err)
			}
			defer f.Close()
			io.Copy(w, f)
		}),
		"ReadFrom, little": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "x")
			io.Copy(w, io.LimitReader(strings.NewReader("yz"), 2))
		}),
		"TimeoutHandler":  http.TimeoutHandler(http.HandlerFunc(echo), time.Hour, "too slow"),
		"times out":       http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-ended }), time.Nanosecond, "too slow"),
		"StripPrefix":     http.StripPrefix("/file", http.FileServer(http.Dir(dir))),
		"MaxBytesHandler": http.MaxBytesHandler(http.HandlerFunc(echo), 1<<20),
		"AllowQuery":      http.AllowQuerySemicolons(http.HandlerFunc(echo)),
		"CrossOrigin":     http.NewCrossOriginProtection().Handler(http.HandlerFunc(echo)),
	}
}

// asked are the heads and bodies of the requests.
var asked = []struct {
	method, path string
	header       []string
	body         string
}{
	{"GET", "/file.txt", nil, ""},
	{"HEAD", "/file.txt", nil, ""},
	{"GET", "/file.txt", []string{"Range: bytes=10-19"}, ""},
	{"GET", "/file.txt", []string{"Range: bytes=0-0,5-9,-3"}, ""},
	{"GET", "/file.txt", []string{"Range: bytes=999999-"}, ""},
	{"GET", "/file.txt", []string{"If-Modified-Since: Thu, 29 Feb 2024 12:00:00 GMT"}, ""},
	{"GET", "/file.txt", []string{`If-None-Match: "tag"`}, ""},
	{"GET", "/", []string{"Accept-Encoding: gzip", "X-Odd: \t odd value "}, ""},
	{"POST", "/?a=1;b=2", []string{"Content-Length: 4", "Sec-Fetch-Site: cross-site"}, "body"},
	{"POST", "/file.txt", []string{"Transfer-Encoding: chunked", "Trailer: Sum"}, "4\r\nbody\r\n0\r\nSum: 42\r\n\r\n"},
	{"PUT", "/file/file.txt", []string{"Content-Length: 4", "Expect: 100-continue"}, "body"},
	{"DELETE", "/", nil, ""},
	{"OPTIONS", "/", nil, ""},
	{"BREW", "/%2F//..;a/", nil, ""},
}

// questions are the places in asked that a test goes through: the race detector,
// which makes each ten times as long, need not see them all.
func questions() (places []int) {
	for i := range asked {
		if !raceEnabled || i%3 == 0 {
			places = append(places, i)
		}
	}
	return places
}

var (
	dates      = regexp.MustCompile(`(?m)^Date: .*\r\n`)
	boundaries = regexp.MustCompile(`[0-9a-f]{60}`)
)

// wire sends a request and what else fits on its connection, and returns every byte
// that comes back, but for the time of day and what is drawn at random.
func wire(t *testing.T, s *server, r int) string {
	client := s.dial(t)
	defer client.Close()
	client.send(append([]string{asked[r].method + " " + asked[r].path + " HTTP/1.1", "Host: here"}, asked[r].header...)...)
	_, err := io.WriteString(client, asked[r].body+"GET /last HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	got, _ := io.ReadAll(client.r) // the server may reset what it did not read
	return boundaries.ReplaceAllString(dates.ReplaceAllString(string(got), ""), "BOUNDARY")
}

// Every byte on an HTTP/1 connection is the same with and without the middleware,
// whatever the handler does and the client asks, and the connection lives as long.
func TestSameBytesOnTheWire(t *testing.T) {
	for name, h := range sameAnswers(t) {
		t.Run(name, func(t *testing.T) {
			plain := serve(t, h)
			want := make([]string, len(asked))
			for _, i := range questions() {
				want[i] = wire(t, plain, i)
			}
			answered := slices.ContainsFunc(want, func(s string) bool { return s != "" })
			require.Equal(t, name != "abort before", answered)
			eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
				s := serve(t, wrap(h))
				for _, i := range questions() {
					request := asked[i]
					require.Equal(t, want[i], wire(t, s, i), "%s %s %v", request.method, request.path, request.header)
				}
				requireRest(t, g)
				assert.Equal(t, plain.log.String(), s.log.String())
			})
		})
	}
}

// The same for HTTP/2, of what its client can tell.
func TestSameAnswersOnHTTP2(t *testing.T) {
	type answer struct {
		status          int
		header, trailer http.Header
		length          int64
		body, err       string
		hints           []int
	}
	ask := func(t *testing.T, s *server, i int) answer {
		var a answer
		ctx := httptrace.WithClientTrace(bounded(t), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				a.hints = append(a.hints, code)
				return nil
			},
		})
		var body io.Reader
		if asked[i].body != "" {
			body = strings.NewReader("body")
		}
		r, err := http.NewRequestWithContext(ctx, asked[i].method, s.URL+asked[i].path, body)
		require.NoError(t, err)
		r.Host = "here"
		for _, line := range asked[i].header {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "Content-Length":
			case "Transfer-Encoding":
				r.ContentLength = -1
			case "Trailer":
				r.Trailer = http.Header{"Sum": {"42"}}
			default:
				r.Header.Set(name, strings.TrimSpace(value))
			}
		}
		resp, err := s.Client().Transport.RoundTrip(r)
		if err != nil {
			a.err = streams.ReplaceAllString(err.Error(), "")
			return a
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			a.err = streams.ReplaceAllString(err.Error(), "")
		}
		resp.Header.Del("Date")
		if kind := resp.Header.Get("Content-Type"); kind != "" {
			resp.Header.Set("Content-Type", boundaries.ReplaceAllString(kind, "BOUNDARY"))
		}
		a.status, a.header, a.trailer, a.length = resp.StatusCode, resp.Header, resp.Trailer, resp.ContentLength
		a.body = boundaries.ReplaceAllString(string(got), "BOUNDARY")
		return a
	}
	for _, protocol := range []string{"HTTP/2", "h2c"} {
		start := protocols[protocol]
		for name, h := range sameAnswers(t) {
			t.Run(protocol+", "+name, func(t *testing.T) {
				plain := start(t, h)
				want := make([]answer, len(asked))
				for _, i := range questions() {
					want[i] = ask(t, plain, i)
				}
				eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
					s := start(t, wrap(h))
					for _, i := range questions() {
						request := asked[i]
						require.Equal(t, want[i], ask(t, s, i), "%s %s %v", request.method, request.path, request.header)
					}
					requireRest(t, g)
				})
			})
		}
	}
}

var streams = regexp.MustCompile(`stream ID \d+; `)

// What a writer of one's own cannot keep, as the package's documentation says. Only
// a breaker needs one.
func TestWhatABreakerCosts(t *testing.T) {
	tooLarge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1))
		if errors.As(err, new(*http.MaxBytesError)) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	superfluous := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		w.WriteHeader(500)
	})
	eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
		watched := g.Policies().Rules()[0].Breaker != nil

		s := serve(t, wrap(tooLarge))
		client := s.dial(t)
		client.send("POST / HTTP/1.1", "Host: here", "Content-Length: 4")
		_, err := io.WriteString(client, "body")
		require.NoError(t, err)
		resp := client.receive("POST")
		assert.Equal(t, 413, resp.StatusCode)
		assert.Equal(t, !watched, resp.Close, "the connection is closed")

		s = serve(t, wrap(superfluous))
		assert.Equal(t, 200, s.get(t, "/").StatusCode)
		assert.Contains(t, s.log.String(), "superfluous response.WriteHeader call")
		assert.Equal(t, watched, strings.Contains(s.log.String(), "recorder"), "where the call came from: %s", s.log)
	})
}

// However large what http.MaxBytesReader cuts off is: the server gives up on the
// connection by itself, and does not read it.
func TestMaxBytesReaderStopsAnEndlessUpload(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
				assert.ErrorAs(t, err, new(*http.MaxBytesError))
				http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			})))
			endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
			r, err := http.NewRequestWithContext(bounded(t), "POST", s.URL, endless)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			if err == nil { // else the server was quicker to close than the client to read
				assert.Equal(t, http.StatusRequestEntityTooLarge, readAll(t, resp).StatusCode)
			}
			require.NoError(t, r.Context().Err())
			requireRest(t, g)
		})
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
