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
// garbage collector. It must not refer to the body or to its watch, or the garbage
// collector would never come.
type held struct {
	call watertight.Call

	// once gives the right to touch call, if there is disarm. Without, only the body
	// comes, and when that has gone, the garbage collector. A flag would do for the
	// right, but then Close could return while the end of the context is still at it on
	// another goroutine, and the closer's next call be refused because of this one.
	once    sync.Once
	disarm  func() bool // ends the watch of the context; nil: none
	abandon func()      // abandoned, made once
}

// A watch is what the garbage collector looks for: it is reachable as long as its
// body is. That body alone refers to it, and lets go of it at its end.
//
// A cleanup costs two allocations and twice a lock of the whole heap, so a watch with
// its cleanup serves one body after the other. Between two of them it is in watches,
// unless somebody might still come to its held: the end of the context, if it could
// not be disarmed. One that watches drops holds nothing; its cleanup does nothing.
type watch struct{ held *held }

var watches = sync.Pool{New: func() any {
	h := new(held)
	h.abandon = h.abandoned
	w := &watch{h}
	runtime.AddCleanup(w, (*held).dropped, h)
	return w
}}

// hold returns resp with its body wrapped so that call is released when it ends.
func hold(ctx context.Context, resp *http.Response, call *watertight.Call) *http.Response {
	watched := watches.Get().(*watch)
	h := watched.held
	h.call = *call
	b := &body{rc: resp.Body, watch: watched}
	out := resp
	if resp.ProtoMajor > 1 {
		// A connection of HTTP/2 refers to the responses whose streams are open, and
		// must not by these to their wrapped bodies, which nobody could drop then. It
		// writes the trailer into its own response, too.
		apart := *resp
		out = &apart
		b.from, b.to = resp, out
	}
	if ctx.Done() != nil {
		// A context that is done already calls abandoned before AfterFunc has
		// returned, hence abandoned does not look at disarm.
		h.disarm = context.AfterFunc(ctx, h.abandon)
	}
	out.Body = b.writer(resp.StatusCode)
	return out
}

// writer returns b as a body that can be written to, as that of a 101, if the one
// that it wraps can.
func (b *body) writer(status int) io.ReadCloser {
	w, ok := b.rc.(io.Writer)
	if !ok {
		return b
	}
	b.session = status == http.StatusSwitchingProtocols
	if cw, ok := b.rc.(writeCloser); ok {
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
// It reports whether nobody else will come to h.
func (h *held) ended(err error) (alone bool) {
	if h.disarm == nil {
		h.release(err)
		return true
	}
	h.once.Do(func() {
		alone = h.disarm()
		h.release(err)
	})
	return alone
}

func (h *held) release(err error) {
	h.call.SettleBody(err)
	h.call.Release()
}

// abandoned releases the call at the end of the context.
func (h *held) abandoned() {
	h.once.Do(func() { h.release(nil) })
}

// dropped releases the call of a body that nobody can close any more. Hooks and loggers
// may take their time, and must not hold up the cleanups of the whole program.
func (h *held) dropped() { go h.leak() }

func (h *held) leak() {
	h.once.Do(func() {
		if h.disarm != nil {
			h.disarm()
		}
		h.call.Leak()
	})
}

// A body is a response body that holds a call's permit until it ends.
type body struct {
	rc      io.ReadCloser
	session bool        // goes both ways: when one side stops sending, the other may go on
	closing atomic.Bool // Close was called, and is what ends the body if a Read fails now

	once  sync.Once // gives the right to touch watch, which may be another body's after it
	watch *watch

	from, to *http.Response // whose trailer is known at EOF, and who is to get it; nil: that is one response
}

// end releases the call. Whoever comes second returns when it has been released.
func (b *body) end(err error) {
	b.once.Do(func() {
		w := b.watch
		// Whoever keeps the body after its end must not keep the next one's watch.
		b.watch = nil
		if h := w.held; h.ended(err) {
			*h = held{abandon: h.abandon}
			watches.Put(w)
		}
	})
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if err == io.EOF && b.from != nil {
		b.to.Trailer, b.from = b.from.Trailer, nil
	}
	if err != nil && !(b.session && err == io.EOF) {
		if err != io.EOF && b.closing.Load() {
			b.end(nil)
		} else {
			b.end(err)
		}
	}
	return n, err
}

// Close releases also if the inner Close panics.
func (b *body) Close() error {
	b.closing.Store(true)
	// Not defer b.end(nil), which would look at b for the last time here: the
	// caller may never mention it again, and while the inner Close ran the garbage
	// collector could take the body for a dropped one.
	defer func() { b.end(nil) }()
	return b.rc.Close()
}
