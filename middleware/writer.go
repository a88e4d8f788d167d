package middleware

import (
	"io"
	"net/http"
)

const (
	canFlush = 1 << iota
	canHijack
	canReadFrom
	canPush
)

// flushing is what a flusher offers: http.ResponseController looks for
// FlushError first, others for Flush.
type flushing interface {
	http.Flusher
	flushErrorer
}

// A closeNotifier is an http.CloseNotifier. That is deprecated, but who still asks for
// it seldom looks whether it is there: gin's Context.Stream panics without.
type closeNotifier interface{ CloseNotify() <-chan bool }

// writer returns the recorder with exactly those of Flusher, Hijacker,
// ReaderFrom and Pusher that the writer beneath it has. Handlers ask for these
// by type assertion: a method too few breaks uploads, WebSockets or
// server-sent events, a method too many is a lie; hence a struct for each
// combination. They embed interfaces, not the types behind them, since those
// all embed the recorder, whose methods would become ambiguous. CloseNotifier would
// double their number; it is kept beside what net/http's own writers have.
func (w *recorder) writer() http.ResponseWriter {
	var can int
	if _, ok := w.ResponseWriter.(http.Flusher); ok {
		can |= canFlush
	}
	if _, ok := w.ResponseWriter.(http.Hijacker); ok {
		can |= canHijack
	}
	if _, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		can |= canReadFrom
	}
	if _, ok := w.ResponseWriter.(http.Pusher); ok {
		can |= canPush
	}
	var (
		f flushing      = flusher{w}
		h http.Hijacker = hijacker{w}
		r io.ReaderFrom = readerFrom{w}
		p http.Pusher   = pusher{w}
	)
	if n, ok := w.ResponseWriter.(closeNotifier); ok {
		switch can {
		case canFlush | canHijack | canReadFrom: // on HTTP/1
			return struct {
				*recorder
				flushing
				http.Hijacker
				io.ReaderFrom
				closeNotifier
			}{w, f, h, r, n}
		case canFlush | canPush: // on HTTP/2
			return struct {
				*recorder
				flushing
				http.Pusher
				closeNotifier
			}{w, f, p, n}
		}
	}
	switch can {
	case canFlush:
		return struct {
			*recorder
			flushing
		}{w, f}
	case canHijack:
		return struct {
			*recorder
			http.Hijacker
		}{w, h}
	case canFlush | canHijack:
		return struct {
			*recorder
			flushing
			http.Hijacker
		}{w, f, h}
	case canReadFrom:
		return struct {
			*recorder
			io.ReaderFrom
		}{w, r}
	case canFlush | canReadFrom:
		return struct {
			*recorder
			flushing
			io.ReaderFrom
		}{w, f, r}
	case canHijack | canReadFrom:
		return struct {
			*recorder
			http.Hijacker
			io.ReaderFrom
		}{w, h, r}
	case canFlush | canHijack | canReadFrom:
		return struct {
			*recorder
			flushing
			http.Hijacker
			io.ReaderFrom
		}{w, f, h, r}
	case canPush:
		return struct {
			*recorder
			http.Pusher
		}{w, p}
	case canFlush | canPush:
		return struct {
			*recorder
			flushing
			http.Pusher
		}{w, f, p}
	case canHijack | canPush:
		return struct {
			*recorder
			http.Hijacker
			http.Pusher
		}{w, h, p}
	case canFlush | canHijack | canPush:
		return struct {
			*recorder
			flushing
			http.Hijacker
			http.Pusher
		}{w, f, h, p}
	case canReadFrom | canPush:
		return struct {
			*recorder
			io.ReaderFrom
			http.Pusher
		}{w, r, p}
	case canFlush | canReadFrom | canPush:
		return struct {
			*recorder
			flushing
			io.ReaderFrom
			http.Pusher
		}{w, f, r, p}
	case canHijack | canReadFrom | canPush:
		return struct {
			*recorder
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{w, h, r, p}
	case canFlush | canHijack | canReadFrom | canPush:
		return struct {
			*recorder
			flushing
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{w, f, h, r, p}
	}
	return w
}
