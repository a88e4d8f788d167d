package soak

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/middleware"
)

// A mood is how an upstream behaves.
type mood int32

const (
	well mood = iota
	sluggish
	failing
	aborting // breaks off in the middle of its answers
	hanging
	trickling
	cutting // breaks connections, now and then
	refusing
	moods
)

// nextMood is well as often as not.
func nextMood() mood {
	if rand.IntN(2) == 0 {
		return well
	}
	return mood(rand.IntN(int(moods)))
}

var silent = slog.New(slog.DiscardHandler)

// An upstream is a server behind the Guard's server side.
type upstream struct {
	url  string
	addr string
	mood atomic.Int32
	h    http.Handler

	mu     sync.Mutex   // guards the fields below
	server *http.Server // nil: refusing
	conns  map[net.Conn]struct{}
}

func startUpstream(g *watertight.Guard, b *books) (*upstream, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: ln.Addr().String(), conns: make(map[net.Conn]struct{})}
	u.url = "http://" + u.addr
	mux := http.NewServeMux()
	mux.HandleFunc("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		b.handled.Add(1)
		u.answer(w, r)
	})
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		b.handled.Add(1)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	guarded := middleware.New(g)(mux)
	u.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.received.Add(1)
		guarded.ServeHTTP(w, r)
	})
	u.serve(ln)
	return u, nil
}

func (u *upstream) serve(ln net.Listener) {
	u.server = &http.Server{
		Handler: u.h, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnState: u.track,
	}
	go u.server.Serve(ln)
}

func (u *upstream) key() string { return u.url }

func (u *upstream) track(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state {
	case http.StateNew:
		u.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(u.conns, c)
	}
}

// turn changes the mood. Every connection breaks with it.
func (u *upstream) turn(m mood) error {
	u.mu.Lock()
	server := u.server
	if m == refusing {
		u.server = nil
	}
	for c := range u.conns {
		_ = c.Close()
	}
	u.mu.Unlock()
	u.mood.Store(int32(m))
	switch {
	case m == refusing && server != nil:
		return server.Close()
	case m != refusing && server == nil:
		ln, err := net.Listen("tcp", u.addr)
		if err != nil {
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.serve(ln)
	}
	return nil
}

func (u *upstream) close() {
	u.mu.Lock()
	server := u.server
	u.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

func (u *upstream) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if rand.IntN(500) == 0 {
		panic("a bug that turns up now and then")
	}
	switch mood(u.mood.Load()) {
	case sluggish:
		wait(r, 50*time.Millisecond)
	case failing:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	case aborting:
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "only this")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case hanging:
		<-r.Context().Done()
		return
	case trickling:
		for range 100 {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			wait(r, 10*time.Millisecond)
		}
		return
	case cutting:
		if rand.IntN(10) == 0 {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		}
	}
	wait(r, time.Duration(rand.IntN(int(2*time.Millisecond))))
	_, _ = io.WriteString(w, strings.Repeat("well ", 1+rand.IntN(1000)))
}

func wait(r *http.Request, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
