package middleware_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// bounded keeps a test that hangs from hanging for long.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// requireRest fails unless every request that came has left, at last: an answer may
// be read before its handler has returned.
func requireRest(t testing.TB, g *watertight.Guard) {
	t.Helper()
	ctx := bounded(t)
	for {
		busy := ""
		for _, c := range g.Snapshot().Compartments {
			if c.InFlight != 0 || c.Bulkhead != nil && c.Bulkhead.Queued != 0 {
				busy = c.Policy
			}
		}
		if busy == "" {
			return
		}
		require.NoError(t, ctx.Err(), "policy %q is still busy", busy)
		runtime.Gosched()
	}
}

// Both directions stream at once, in each protocol: the handler answers each line
// before the next is sent.
func TestFullDuplex(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				if r.ProtoMajor == 1 {
					assert.NoError(t, c.EnableFullDuplex())
				}
				assert.NoError(t, c.Flush())
				lines := bufio.NewScanner(r.Body)
				for lines.Scan() {
					fmt.Fprintln(w, "echo", lines.Text())
					assert.NoError(t, c.Flush())
				}
			})))
			body, fed := io.Pipe()
			r, err := http.NewRequestWithContext(bounded(t), "POST", s.URL, body)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			defer resp.Body.Close()
			answers := bufio.NewScanner(resp.Body)
			for i := range 100 {
				fmt.Fprintln(fed, i)
				require.True(t, answers.Scan())
				require.Equal(t, fmt.Sprint("echo ", i), answers.Text())
			}
			assert.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)
			require.NoError(t, fed.Close())
			require.False(t, answers.Scan())
			require.NoError(t, answers.Err())
			requireRest(t, g)
			assert.Empty(t, s.log.String())
		})
	})
}

// A client that breaks off a stream gives the permit back, and the handler learns
// of it, in each protocol.
func TestClientBreaksOffAStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			ended := make(chan error, 1)
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "data: 1\n\n")
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
				ended <- r.Context().Err()
			})))
			ctx, cancel := context.WithCancel(bounded(t))
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			defer resp.Body.Close()
			_, err = io.ReadFull(resp.Body, make([]byte, 9))
			require.NoError(t, err)
			cancel()
			require.Equal(t, context.Canceled, <-ended)
			requireRest(t, g)
		})
	})
}

// 10 MiB in and out, of a length that is known or not.
func TestLargeBodies(t *testing.T) {
	size := 10 << 20
	if raceEnabled {
		size = 1 << 20 // which looks at every byte
	}
	noise := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(noise)
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sum := sha256.New()
				n, err := io.Copy(sum, r.Body)
				if assert.NoError(t, err) && assert.EqualValues(t, size, n) {
					fmt.Fprintf(w, "%x", sum.Sum(nil))
					w.Write(noise)
				}
			})))
			for _, length := range []int{size, -1} {
				r, err := http.NewRequestWithContext(bounded(t), "PUT", s.URL, strings.NewReader(string(noise)))
				require.NoError(t, err)
				r.ContentLength = int64(length)
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.True(t, fmt.Sprintf("%x", sha256.Sum256(noise))+string(noise) == string(body))
			}
			requireRest(t, g)
		})
	})
}

// Expect: 100-continue: the body is invited when the handler reads it, and not when
// the request is refused.
func TestExpectContinue(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
				eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
					gate := newGate()
					mux := http.NewServeMux()
					mux.Handle("/held", gate)
					mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
						body, err := io.ReadAll(r.Body)
						assert.NoError(t, err)
						w.Write(body)
					})
					limited := wrap(mux)
					if refused {
						for range 2 {
							gate.hold(limited, "/held")
						}
						defer close(gate.open)
					}
					s := start(t, limited)
					s.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Hour

					invited := false
					ctx := httptrace.WithClientTrace(bounded(t), &httptrace.ClientTrace{Got100Continue: func() { invited = true }})
					body := &countingReader{r: strings.NewReader("body")}
					r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/upload", body)
					require.NoError(t, err)
					r.ContentLength = 4
					r.Header.Set("Expect", "100-continue")
					resp, err := s.Client().Do(r)
					require.NoError(t, err)
					resp = readAll(t, resp)
					assert.Equal(t, !refused, invited)
					if refused {
						assert.Equal(t, 503, resp.StatusCode)
						assert.Equal(t, "full", reason(t, resp.Body))
						assert.Zero(t, body.n, "nothing was sent")
					} else {
						assert.Equal(t, 200, resp.StatusCode)
						assert.Equal(t, "body", resp.Body.(nopCloser).String())
					}
				})
			})
		}
	})
}

// Nor is it invited while the request waits for its permit.
func TestNoContinueFromTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, "{version: 1, policies: [{name: all, side: server, per: policy, bulkhead: {maxConcurrent: 1, maxWait: 1h}}]}")
		gate := newGate()
		mux := http.NewServeMux()
		mux.Handle("/held", gate)
		mux.HandleFunc("/upload", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
		limited := middleware.New(g)(mux)
		held := gate.hold(limited, "/held")
		client := servePipes(t, limited)()
		client.send("POST /upload HTTP/1.1", "Host: here", "Content-Length: 4", "Expect: 100-continue")
		heard := make(chan int, 2)
		go func() {
			for range 2 {
				resp, err := http.ReadResponse(client.r, nil)
				if !assert.NoError(t, err) {
					return
				}
				heard <- resp.StatusCode
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, heard)
		close(gate.open)
		<-held
		require.Equal(t, 100, <-heard)
		_, err := io.WriteString(client, "body")
		require.NoError(t, err)
		require.Equal(t, 200, <-heard)
	})
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// A CONNECT is a request like any other, which ends when its tunnel does.
func TestConnect(t *testing.T) {
	tunnel := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "CONNECT" || r.Host != "upstream.internal:443" {
			w.WriteHeader(400)
			return
		}
		if r.ProtoMajor == 1 {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
			io.Copy(conn, rw)
			return
		}
		c := http.NewResponseController(w)
		c.Flush()
		for buf := make([]byte, 100); ; {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			c.Flush()
			if err != nil {
				return
			}
		}
	})
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			s := start(t, wrap(tunnel))
			body, fed := io.Pipe()
			var answers io.Reader
			if s.URL[:5] == "http:" && s.Config.Protocols == nil {
				client := s.dial(t)
				client.send("CONNECT upstream.internal:443 HTTP/1.1", "Host: upstream.internal:443")
				resp, err := http.ReadResponse(client.r, &http.Request{Method: "CONNECT"})
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				answers = client.r
				go func() {
					io.Copy(client, body)
					client.Conn.(*net.TCPConn).CloseWrite()
				}()
			} else {
				r, err := http.NewRequestWithContext(bounded(t), "CONNECT", s.URL, body)
				require.NoError(t, err)
				r.Host = "upstream.internal:443"
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, 200, resp.StatusCode)
				answers = resp.Body
			}
			for _, word := range []string{"one", "two"} {
				fmt.Fprint(fed, word)
				got := make([]byte, len(word))
				_, err := io.ReadFull(answers, got)
				require.NoError(t, err)
				require.Equal(t, word, string(got))
			}
			assert.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)
			fed.Close()
			rest, err := io.ReadAll(answers)
			require.NoError(t, err)
			require.Empty(t, rest)
			requireRest(t, g)
		})
	})
}

// Informational answers arrive while the handler still works.
func TestEarlyHintsArriveEarly(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, g *watertight.Guard, wrap func(http.Handler) http.Handler) {
			hinted := make(chan string, 1)
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				select {
				case <-hinted: // by the client
				case <-r.Context().Done():
				}
				w.WriteHeader(http.StatusTeapot)
			})))
			ctx := httptrace.WithClientTrace(bounded(t), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
					if code != http.StatusEarlyHints {
						return errors.New("no hint")
					}
					hinted <- header.Get("Link")
					return nil
				},
			})
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			require.NoError(t, err)
			resp, err := s.Client().Do(r)
			require.NoError(t, err)
			require.Equal(t, http.StatusTeapot, readAll(t, resp).StatusCode)
			requireRest(t, g)
		})
	})
}

// E04: what is deprecated is asked for all the same, and hardly anybody looks whether
// it is there.
func TestCloseNotifierIsThere(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(testing.TB, http.Handler) *server) {
		eachWay(t, func(t *testing.T, _ *watertight.Guard, wrap func(http.Handler) http.Handler) {
			entered, told := make(chan struct{}), make(chan bool, 1)
			s := start(t, wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(entered)
				n, ok := w.(interface{ CloseNotify() <-chan bool })
				told <- ok && <-n.CloseNotify()
			})))
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-entered
				leave()
			}()
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			require.NoError(t, err)
			_, err = s.Client().Do(r)
			assert.ErrorIs(t, err, context.Canceled)
			assert.True(t, <-told)
		})
	})
}
