package soak

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A manner is what a caller does with its call.
type manner int

const (
	readAll manner = iota
	readSome
	closeUnread
	abandon     // leaves the body open, and cancels
	cancelEarly // most likely before the headers are in
	deadline    // has little time
	head
	upload
	do     // a call that is not HTTP
	doFail // one that fails, or panics
	manners

	drop // leaves the body open under a context without an end; apart, since it costs a connection
)

// patience is what no call of this load exceeds.
const patience = 400 * time.Millisecond

// callOn makes calls until ctx ends.
func (s *soak) callOn(ctx context.Context) {
	for ctx.Err() == nil {
		u := s.upstreams[rand.IntN(len(s.upstreams))]
		m := manner(rand.IntN(int(manners)))
		if rand.IntN(5000) == 0 {
			m = drop
		}
		s.calls.RLock()
		s.call(context.WithoutCancel(ctx), u, m)
		s.calls.RUnlock()
		// Callers that are refused at once must not leave no turn to anybody else.
		time.Sleep(time.Duration(rand.IntN(int(10 * time.Millisecond))))
	}
}

type reachedKey struct{}

// counting tells a call's context that it was let out.
type counting struct{ http.RoundTripper }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if reached, ok := r.Context().Value(reachedKey{}).(*atomic.Bool); ok {
		reached.Store(true)
	}
	return c.RoundTripper.RoundTrip(r)
}

func (c counting) CloseIdleConnections() {
	c.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// call makes one call, and books it.
func (s *soak) call(ctx context.Context, u *upstream, m manner) {
	var reached atomic.Bool
	ctx = context.WithValue(ctx, reachedKey{}, &reached)
	if m == drop {
		ctx = context.WithValue(s.endless, reachedKey{}, &reached)
	} else {
		timeout := patience
		if m == deadline {
			timeout = time.Duration(rand.IntN(int(20 * time.Millisecond)))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		if m == cancelEarly {
			time.AfterFunc(time.Duration(rand.IntN(int(5*time.Millisecond))), cancel)
		}
	}
	s.books.arrived.Add(1)
	if m == do || m == doFail {
		err := s.doOnce(ctx, &reached, m == doFail)
		s.books.decided(reached.Load(), err)
		return
	}
	resp, err := s.send(ctx, u, m)
	s.books.decided(reached.Load(), err)
	if err != nil {
		return
	}
	switch m {
	case abandon, drop:
		return
	case readSome:
		_, _ = io.CopyN(io.Discard, resp.Body, 10)
	case readAll, upload, deadline, cancelEarly:
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	_ = resp.Body.Close()
}

func (s *soak) send(ctx context.Context, u *upstream, m manner) (*http.Response, error) {
	method, body := http.MethodGet, io.Reader(nil)
	switch m {
	case head:
		method = http.MethodHead
	case upload:
		method, body = http.MethodPost, strings.NewReader(payload)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.url+"/items/7", body)
	if err != nil {
		return nil, err
	}
	return s.client.Do(r)
}

var payload = strings.Repeat("x", 32<<10)

var errFailed = errors.New("failed")

// doOnce makes a call that is not HTTP.
func (s *soak) doOnce(ctx context.Context, reached *atomic.Bool, fails bool) error {
	defer func() { _ = recover() }()
	return s.guard.Do(ctx, "queue", func(ctx context.Context) error {
		reached.Store(true)
		time.Sleep(time.Duration(rand.IntN(int(5 * time.Millisecond))))
		switch {
		case !fails:
			return nil
		case rand.IntN(2) == 0:
			panic(errFailed)
		}
		return errFailed
	})
}
