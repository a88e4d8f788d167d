package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/watertight-go/watertight"
)

// A recorder watches for the status of a response, for a breaker that waits
// for it. It has Unwrap, for http.ResponseController; the optional interfaces
// of the writer that it wraps are kept, and none is invented: see writer.
type recorder struct {
	http.ResponseWriter
	call    watertight.Call
	status  int  // 0: not yet written
	written int  // bytes of the body that the handler wrote
	sent    bool // the client has the headers
	sniffed int  // how much of a body ReadFrom has to copy before the client has the headers
}

// buffered is the most of a body that net/http keeps back, the headers with it, until
// the handler flushes or returns. On HTTP/2 it is exactly that. On HTTP/1 the first
// 2048 bytes and the headers go on into a buffer of 4096 that they share, so that
// long headers may be sent sooner; how much, the recorder cannot see, and does not
// say that they are before they are.
const buffered = 4096

// sniffed is what recorder.sniffed is on a TCP connection. One of TLS has no ReadFrom
// that net/http could hand the rest to, so there it keeps back what it keeps of writes.
const sniffed = 512

// send tells the breaker, once, that the client has the headers: a stream may then
// last as long as it likes without being overdue.
func (w *recorder) send() {
	if !w.sent {
		w.sent = true
		w.call.Answering(w.status)
	}
}

// writing is called before n bytes are written, since that may take as long as a
// slow client likes, and the headers go first.
func (w *recorder) writing(n int) {
	w.written += n
	if w.written > buffered {
		w.send()
	}
}

// Unwrap is for http.ResponseController. A Flusher or Hijacker that the writer beneath
// hides, and only the controller would find, is not shown by the recorder either; a
// deep writer makes sure that the recorder hears of it.
func (w *recorder) Unwrap() http.ResponseWriter {
	_, shown := w.ResponseWriter.(http.Flusher)
	flush := !shown && reaches(w.ResponseWriter, flushes)
	_, shown = w.ResponseWriter.(http.Hijacker)
	hijack := !shown && reaches(w.ResponseWriter, hijacks)

	d := deep{w, w}
	switch {
	case flush && hijack:
		return struct {
			deep
			flushErrorer
			http.Hijacker
		}{d, flusher{w}, hijacker{w}}
	case flush:
		return struct {
			deep
			flushErrorer
		}{d, flusher{w}}
	case hijack:
		return struct {
			deep
			http.Hijacker
		}{d, hijacker{w}}
	}
	return w.ResponseWriter
}

// reaches reports whether the controller, going down from w, meets one that can.
func reaches(w http.ResponseWriter, can func(http.ResponseWriter) bool) bool {
	for !can(w) {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
	return true
}

func flushes(w http.ResponseWriter) bool {
	switch w.(type) {
	case flushErrorer, http.Flusher:
		return true
	}
	return false
}

func hijacks(w http.ResponseWriter) bool {
	_, ok := w.(http.Hijacker)
	return ok
}

// A deep writer is what the controller meets between the recorder and a writer that
// hides something.
type deep struct {
	http.ResponseWriter // the recorder, as far as this interface goes
	rec                 *recorder
}

func (d deep) Unwrap() http.ResponseWriter { return d.rec.ResponseWriter }

type flushErrorer interface{ FlushError() error }

// refused is how WriteRejection tells that what the handler answers is a refusal.
func (w *recorder) refused() { w.call.SettleIgnored() }

func (w *recorder) WriteHeader(status int) {
	w.record(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	w.record(http.StatusOK)
	w.writing(len(p))
	return w.ResponseWriter.Write(p)
}

// WriteString keeps io.WriteString from copying.
func (w *recorder) WriteString(s string) (int, error) {
	w.record(http.StatusOK)
	w.writing(len(s))
	return io.WriteString(w.ResponseWriter, s)
}

// record notes the final status: the first that is not informational. 101 ends
// the HTTP exchange, although it is a 1xx, and settles at once: what follows is
// a session, whose length says nothing about the handler.
func (w *recorder) record(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	if status == http.StatusSwitchingProtocols {
		w.call.SettleStatus(status)
	}
}

// final returns the status that the server sends when the handler returns now.
func (w *recorder) final() int {
	w.record(http.StatusOK)
	return w.status
}

func (w *recorder) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		// The session settles as that of a 101 does, also where the handler has answered
		// otherwise, as a proxy does to CONNECT.
		w.record(http.StatusSwitchingProtocols)
		w.call.SettleStatus(w.status)
	}
	return conn, rw, err
}

func (w *recorder) flush() error {
	w.record(http.StatusOK)
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.send()
	}
	return err
}

// readFrom records what it did, not what it is about to do: a source that
// fails before its first byte leaves the status to the handler.
//
// It has as much copied as makes the headers leave, and then the rest, which may
// take as long as the client and the source like. The source is not wrapped, for
// the operating system may send a file without our help.
func (w *recorder) readFrom(src io.Reader) (n int64, err error) {
	dst := w.ResponseWriter.(io.ReaderFrom)
	if !w.sent {
		first := int64(min(w.sniffed, max(0, buffered-w.written)+1))
		n, err = dst.ReadFrom(io.LimitReader(src, first))
		if n > 0 {
			w.record(http.StatusOK)
			w.writing(int(n))
		}
		if err != nil || n < first {
			return n, err
		}
		w.send()
	}
	rest, err := dst.ReadFrom(src)
	return n + rest, err
}

func (w *recorder) push(target string, opts *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, opts)
}

// One type for each optional interface; writer combines them.
type (
	flusher    struct{ *recorder }
	hijacker   struct{ *recorder }
	readerFrom struct{ *recorder }
	pusher     struct{ *recorder }
)

// Flush ignores the error, as http.Flusher has no way to tell it; FlushError does.
func (f flusher) Flush() { f.flush() }

// FlushError is what http.ResponseController looks for first.
func (f flusher) FlushError() error { return f.flush() }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.hijack() }

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) { return r.readFrom(src) }

func (p pusher) Push(target string, opts *http.PushOptions) error { return p.push(target, opts) }
