package transport

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/watertight-go/watertight"
)

// held is what must be given back once, by whoever comes first: the reader at
// the end of the body, the closer, the end of the request's context, or the
// garbage collector. It must not refer to the body, or the garbage collector
// would never come.
type held struct {
	call watertight.Call

	// once gives the right to touch call. A flag would do for that, but then
	// Close could return while the end of the context is still at it on another
	// goroutine, and the closer's next call be refused because of this one.
	once    sync.Once
	closing atomic.Bool     // Close was called, and is what ends the body if a Read fails now
	cleanup runtime.Cleanup // ends the watch of the garbage collector
	disarm  func() bool     // ends the watch of the context; nil: none
}

// hold wraps the body of an open response so that call is released when it
// ends. A body that can be written to, as after 101, stays so.
func hold(ctx context.Context, resp *http.Response, call watertight.Call) io.ReadCloser {
	h := &held{call: call}
	b := &body{rc: resp.Body, held: h}
	h.cleanup = runtime.AddCleanup(b, (*held).dropped, h)
	if ctx.Done() != nil {
		// A context that is done already calls abandoned before AfterFunc has
		// returned, hence abandoned does not look at disarm.
		h.disarm = context.AfterFunc(ctx, h.abandoned)
	}
	w, ok := resp.Body.(io.Writer)
	if !ok {
		return b
	}
	b.session = resp.StatusCode == http.StatusSwitchingProtocols
	if cw, ok := resp.Body.(writeCloser); ok {
		return &struct {
			*body
			io.Writer
			writeCloser
		}{b, w, cw}
	}
	return &struct {
		*body
		io.Writer
	}{b, w}
}

// writeCloser is what a connection has that can close its sending half.
type writeCloser interface{ CloseWrite() error }

// ended releases the call at the end of the body. err is what Call.SettleBody wants.
func (h *held) ended(err error) {
	h.once.Do(func() {
		h.unwatch()
		h.call.SettleBody(err)
		h.call.Release()
	})
}

// abandoned releases the call at the end of the context.
func (h *held) abandoned() {
	h.once.Do(func() {
		h.cleanup.Stop()
		h.call.SettleBody(nil)
		h.call.Release()
	})
}

// dropped releases the call of a body that nobody can close any more.
func (h *held) dropped() {
	h.once.Do(func() {
		h.unwatch()
		h.call.Leak()
	})
}

func (h *held) unwatch() {
	h.cleanup.Stop()
	if h.disarm != nil {
		h.disarm()
	}
}

// A body is a response body that holds a call's permit until it ends.
type body struct {
	rc      io.ReadCloser
	held    *held
	session bool // goes both ways: when one side stops sending, the other may go on
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if err != nil && !(b.session && err == io.EOF) {
		if err != io.EOF && b.held.closing.Load() {
			b.held.ended(nil)
		} else {
			b.held.ended(err)
		}
	}
	return n, err
}

// Close releases also if the inner Close panics.
func (b *body) Close() error {
	b.held.closing.Store(true)
	// Not defer b.held.ended(nil), which would look at b for the last time here:
	// the caller may never mention it again, and while the inner Close ran the
	// garbage collector could take the body for a dropped one.
	defer func() { b.held.ended(nil) }()
	return b.rc.Close()
}
