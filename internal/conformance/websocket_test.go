package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/middleware"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const largest = 4 << 20

// echo answers a WebSocket with its own messages, until it is closed.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		panic(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(largest)
	for {
		kind, message, err := c.Reader(context.Background())
		if err != nil {
			return // closed, in whatever way
		}
		answer, err := c.Writer(context.Background(), kind)
		if err != nil {
			return
		}
		if _, err := io.Copy(answer, message); err != nil {
			return
		}
		if answer.Close() != nil {
			return
		}
	}
})

// bounded keeps a test that hangs from hanging for long.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, s *httptest.Server, path string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	c, resp, err := websocket.Dial(bounded(t), s.URL+path, &websocket.DialOptions{
		HTTPClient:      s.Client(),
		CompressionMode: websocket.CompressionContextTakeover,
	})
	if c != nil {
		c.SetReadLimit(largest)
		t.Cleanup(func() { c.CloseNow() })
	}
	return c, resp, err
}

// requireEcho sends messages of all sizes and both kinds and wants them back.
func requireEcho(t testing.TB, c *websocket.Conn) {
	t.Helper()
	noise := make([]byte, 1<<18)
	for i := range noise {
		noise[i] = byte(rand.IntN(256))
	}
	ctx := bounded(t)
	for _, message := range [][]byte{{}, []byte("hello"), noise[:125], noise[:126], noise[:65536], noise, make([]byte, 1<<18)} {
		for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			sent := make(chan error, 1)
			go func() { sent <- c.Write(ctx, kind, message) }()
			gotKind, got, err := c.Read(ctx)
			require.NoError(t, err)
			require.NoError(t, <-sent)
			require.Equal(t, kind, gotKind)
			require.True(t, string(message) == string(got), "%d bytes came back as %d", len(message), len(got))
		}
	}
	reading := c.CloseRead(ctx)
	require.NoError(t, c.Ping(ctx), "and a ping is answered")
	require.NoError(t, reading.Err())
}

// requireFull wants a second session to be refused by a problem document.
func requireFull(t testing.TB, s *httptest.Server, path string) {
	t.Helper()
	_, resp, err := dial(t, s, path)
	require.Error(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	var problem struct{ Reason string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
	require.Equal(t, "full", problem.Reason)
}

// ends are the ways in which a session can end.
var ends = map[string]func(t testing.TB, c *websocket.Conn){
	"closed": func(t testing.TB, c *websocket.Conn) {
		require.NoError(t, c.Close(websocket.StatusNormalClosure, "bye"))
	},
	"vanished": func(t testing.TB, c *websocket.Conn) { require.NoError(t, c.CloseNow()) },
}

// E04, E12: a WebSocket lives behind the middleware as if nobody stood there. Its
// permit is held for the session and comes back however that ends; its length is
// nothing that a breaker hears of.
func TestWebSocket(t *testing.T) {
	routers := map[string]func(g *watertight.Guard) http.Handler{
		"handler": func(g *watertight.Guard) http.Handler { return middleware.New(g)(echo) },
		"ServeMux, marked": func(g *watertight.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /ws/{id}", middleware.New(g)(echo))
			return middleware.New(g)(mux)
		},
		"chi": func(g *watertight.Guard) http.Handler {
			r := chi.NewRouter()
			r.Use(watertightchi.Middleware(g))
			r.Route("/ws", func(r chi.Router) { r.Method("GET", "/{id}", echo) })
			return r
		},
	}
	for _, way := range ways {
		for name, router := range routers {
			for scheme, how := range map[string]func(*httptest.Server){"ws": (*httptest.Server).Start, "wss": (*httptest.Server).StartTLS} {
				t.Run(fmt.Sprint(way.name, ", ", name, ", ", scheme), func(t *testing.T) {
					g := way.guard(t)
					s := serve(t, router(g), how)
					for end, leave := range ends {
						c, _, err := dial(t, s.Server, "/ws/1")
						require.NoError(t, err)
						requireEcho(t, c)
						requireFull(t, s.Server, "/ws/2")
						<-s.returned
						assert.EqualValues(t, 1, compartment(g, policy.Server).InFlight)
						leave(t, c)
						<-s.returned
						requireRest(t, g)
						if b := compartment(g, policy.Server).Breaker; b != nil {
							assert.LessOrEqual(t, b.FailureRate, 0.0, end)
						}
					}
				})
			}
		}
	}
}

// E37, end to end: a WebSocket passes a gateway, behind our middleware on both
// servers and through our transport between them. One permit of each of the three
// is held for the session, and comes back whoever ends it.
func TestWebSocketThroughAGateway(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			service := way.guard(t)
			cut := make(chan struct{}, 1)
			upstream := serve(t, middleware.New(service)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/cut" {
					echo(w, r)
					return
				}
				c, err := websocket.Accept(w, r, nil)
				if assert.NoError(t, err) {
					<-cut
					c.CloseNow()
				}
			})), (*httptest.Server).Start)
			target, err := url.Parse(upstream.URL)
			require.NoError(t, err)
			gateway := way.guard(t)
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			s := serve(t, middleware.New(gateway)(&httputil.ReverseProxy{
				Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
				Transport:    transport.New(base, gateway),
				ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { t.Error("the gateway failed: ", err) },
			}), (*httptest.Server).Start)

			for end, leave := range ends {
				c, _, err := dial(t, s.Server, "/")
				require.NoError(t, err, end)
				requireEcho(t, c)
				requireFull(t, s.Server, "/")
				<-s.returned
				for _, held := range []watertight.CompartmentSnapshot{
					compartment(service, policy.Server), compartment(gateway, policy.Server), compartment(gateway, policy.Client),
				} {
					require.EqualValues(t, 1, held.InFlight, held.Side)
				}
				leave(t, c)
				<-s.returned
				<-upstream.returned
				requireRest(t, gateway)
				requireRest(t, service)
			}

			c, _, err := dial(t, s.Server, "/cut")
			require.NoError(t, err)
			cut <- struct{}{}
			_, _, err = c.Read(bounded(t))
			require.Error(t, err, "the upstream has gone")
			require.False(t, errors.Is(err, context.DeadlineExceeded))
			<-upstream.returned
			c.CloseNow()
			<-s.returned
			requireRest(t, gateway)
			requireRest(t, service)
		})
	}
}
