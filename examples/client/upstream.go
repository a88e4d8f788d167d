package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A mood is how an upstream answers.
type mood int32

const (
	healthy mood = iota // in 10ms
	slow                // well, but in 600ms
	failing             // 500, at once
)

func (m mood) String() string { return [...]string{"healthy", "slow", "failing"}[m] }

// An upstream is a service behind the server, whose mood can be changed.
type upstream struct {
	server *http.Server
	url    string
	mood   atomic.Int32
}

func startUpstream() (*upstream, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{url: "http://" + ln.Addr().String()}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go u.server.Serve(ln)
	return u, nil
}

func (u *upstream) set(m mood) { u.mood.Store(int32(m)) }

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch mood(u.mood.Load()) {
	case failing:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case slow:
		pause(r.Context(), 600*time.Millisecond)
	default:
		pause(r.Context(), 10*time.Millisecond)
	}
}

func (u *upstream) close() { u.server.Close() }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
