package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// writeTimeout is how long a watcher may take to read one event. It is far longer
	// than a network needs, so who exceeds it is gone or stopped.
	writeTimeout = 10 * time.Second
	// keepAlive is how long a stream may be silent, so that no proxy takes it for dead.
	keepAlive = 15 * time.Second
)

func (s *sampler) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	now, err := s.look(0, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text, err := now.document()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(append(text, '\n')) // who has gone cannot be told
}

func (s *sampler) serveEvents(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if err := s.join(); err != nil {
		h.Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // nginx would keep the events until it has enough of them
	if r.Method == http.MethodHead {
		return
	}
	e := eventWriter{w: w, rc: http.NewResponseController(w)}
	if err := e.begin(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = s.stream(r.Context(), &e) // either it has ended, or nobody is there any more to tell
}

// stream sends what the Guard looks like, and then what changes of it, until ctx is
// done, a write fails or the Guard is closed.
func (s *sampler) stream(ctx context.Context, e *eventWriter) error {
	shown, err := s.next()
	if err != nil {
		return err
	}
	text, err := shown.document()
	if err != nil {
		return err
	}
	if err := e.send("snapshot", text); err != nil {
		return err
	}
	silent := time.NewTimer(keepAlive)
	defer silent.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for !shown.closed {
		silent.Reset(keepAlive)
		due.Reset(time.Until(shown.taken.Add(s.source.interval)))
		if err := e.wait(ctx, due, silent); err != nil {
			return err
		}
		now, err := s.next()
		if err != nil {
			return err
		}
		if now == shown {
			continue
		}
		text, err := s.between(shown, now)
		if err != nil {
			return err
		}
		if err := e.send("delta", text); err != nil {
			return err
		}
		shown = now
	}
	return e.send("closed", []byte("{}"))
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// begin sends the headers. It takes the server's time-outs off this one response, since
// they are meant for those that end.
func (e *eventWriter) begin() error {
	if err := e.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if err := e.extend(); err != nil {
		return err
	}
	if err := e.rc.Flush(); err != nil {
		return fmt.Errorf("dashboard: events need a ResponseWriter that can flush: %w", err)
	}
	return nil
}

// extend gives the next write its time.
func (e *eventWriter) extend() error {
	err := e.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// wait returns nil when due fires, and sends a comment whenever silent does.
func (e *eventWriter) wait(ctx context.Context, due, silent *time.Timer) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due.C:
			return nil
		case <-silent.C:
			if err := e.write([]byte(": still here\n\n")); err != nil {
				return err
			}
			silent.Reset(keepAlive)
		}
	}
}

// send sends an event. Its data is JSON, which has no line breaks.
func (e *eventWriter) send(name string, data []byte) error {
	var b bytes.Buffer
	b.Grow(len(name) + len(data) + len("event: \ndata: \n\n"))
	b.WriteString("event: ")
	b.WriteString(name)
	b.WriteString("\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return e.write(b.Bytes())
}

func (e *eventWriter) write(text []byte) error {
	if err := e.extend(); err != nil {
		return err
	}
	if _, err := e.w.Write(text); err != nil {
		return err
	}
	return e.rc.Flush()
}
