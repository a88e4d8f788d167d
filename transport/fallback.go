package transport

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/watertight-go/watertight"
)

// WithFallback lets f answer a call that was refused: from a cache, or by asking a
// standby. What f returns is what the caller gets, with these exceptions: if it
// returns neither a response nor an error, the call stays refused; if it returns
// both, the error counts and the response's body is closed.
//
// The refusal is counted and told as ever; f's answer is no call, it holds no permit
// and files no outcome. If f asks another host through this or another [Transport],
// that is a call of its own. f is not asked about a caller that left before it was
// admitted.
//
// f gets a copy of the request, on the goroutine of the call. Its body has not been
// read. Whoever begins to read it has to close it, as every RoundTripper does; if
// nobody has by the time that f returns, it is closed then. f must be safe for
// concurrent use, and must not change what the copy shares with the request, its
// header above all. If it panics, the panic goes on to the caller. The default is no
// fallback; the last one given wins, and nil changes nothing.
func WithFallback(f func(r *http.Request, refused *watertight.RejectedError) (*http.Response, error)) Option {
	return optionFunc(func(t *Transport) {
		if f != nil {
			t.fallback = f
		}
	})
}

// fallBack answers a refused call by the fallback.
func (t *Transport) fallBack(r *http.Request, refused *watertight.RejectedError) (*http.Response, error) {
	sent := r.WithContext(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		body := &unread{ReadCloser: r.Body}
		sent.Body = body
		defer body.closeUnlessTaken()
	}
	resp, err := t.fallback(sent, refused)
	switch {
	case err != nil:
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	case resp == nil:
		return nil, refused
	}
	if resp.Request == nil || resp.Request == sent {
		resp.Request = r
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	return resp, nil
}

// An unread body knows whether somebody has taken it: has begun to read it, or has
// closed it.
type unread struct {
	io.ReadCloser
	taken atomic.Bool
}

func (b *unread) Read(p []byte) (int, error) {
	b.taken.Store(true)
	return b.ReadCloser.Read(p)
}

func (b *unread) Close() error {
	b.taken.Store(true)
	return b.ReadCloser.Close()
}

func (b *unread) closeUnlessTaken() {
	if !b.taken.Swap(true) {
		// Nobody wanted it, and the answer is there.
		_ = b.ReadCloser.Close()
	}
}
