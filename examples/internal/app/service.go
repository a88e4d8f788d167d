package app

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/watertight-go/watertight"
	watertightchi "github.com/watertight-go/watertight/adapters/chi"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/middleware"
)

// chi routes only the methods that it has been told of. The gateway passes those
// of WebDAV on as well.
func init() {
	for _, method := range []string{"COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "UNLOCK"} {
		chi.RegisterMethod(method)
	}
}

// service returns what the Guard guards.
func (a *App) service() http.Handler {
	r := chi.NewRouter()
	r.Use(
		pattern(r),
		otelhttp.NewMiddleware("",
			otelhttp.WithTracerProvider(a.telemetry.Provider()),
			otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
			otelhttp.WithPropagators(telemetry.Propagator())),
		watertightchi.Middleware(a.guard),
	)
	// chi does not serve HEAD where only GET is registered.
	get := func(pattern string, h http.HandlerFunc) {
		r.Get(pattern, h)
		r.Head(pattern, h)
	}
	get("/delay/{ms}", delay)
	get("/status/{code}", status)
	get("/stream/{chunks}", stream)
	get("/pool/{ms}", a.pooled)
	r.Handle("/upstream/{name}", a.gateway)
	r.Handle("/upstream/{name}/*", a.gateway)
	return r
}

// pattern looks the route up before anything else happens. chi does so last, but
// otelhttp puts http.route only on spans whose route is known as they begin.
func pattern(routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := r.URL.RawPath
			if path == "" {
				path = r.URL.Path
			}
			r.Pattern = routes.Find(chi.NewRouteContext(), r.Method, path)
			next.ServeHTTP(w, r)
		})
	}
}

// The bounds of what a caller may ask for. They keep a mistake from holding a
// permit for a day.
const (
	maxDelay  = 10 * time.Minute
	maxChunks = 100_000
	maxEvery  = time.Minute
)

// delay answers after the given number of milliseconds.
func delay(w http.ResponseWriter, r *http.Request) {
	d, ok := wanted(w, r, "/delay/MS")
	if !ok {
		return
	}
	if !sleep(r, d) {
		// The client may have closed only its sending half. It must not take
		// an empty 200 for an answer.
		text(w, http.StatusServiceUnavailable, "interrupted")
		return
	}
	text(w, http.StatusOK, "slept "+d.String())
}

// wanted returns the delay that the path asks for. Without one it has answered.
func wanted(w http.ResponseWriter, r *http.Request, want string) (time.Duration, bool) {
	ms, err := strconv.ParseUint(chi.URLParam(r, "ms"), 10, 32)
	d := time.Duration(ms) * time.Millisecond
	if err != nil || d > maxDelay {
		text(w, http.StatusBadRequest, "want "+want+" with MS a number of milliseconds from 0 to "+strconv.FormatInt(maxDelay.Milliseconds(), 10))
		return 0, false
	}
	return d, true
}

// pooled does what delay does, as a task of the pool.
func (a *App) pooled(w http.ResponseWriter, r *http.Request) {
	d, ok := wanted(w, r, "/pool/MS")
	if !ok {
		return
	}
	err := a.jobs.Do(r.Context(), func(ctx context.Context) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	var rejected *watertight.RejectedError
	switch {
	case errors.As(err, &rejected):
		middleware.WriteRejection(w, r, rejected)
	case err != nil:
		text(w, http.StatusServiceUnavailable, "interrupted")
	default:
		text(w, http.StatusOK, "a worker slept "+d.String())
	}
}

// status answers with the given status.
func status(w http.ResponseWriter, r *http.Request) {
	code, err := strconv.Atoi(chi.URLParam(r, "code"))
	if err != nil || code < 200 || code > 599 {
		text(w, http.StatusBadRequest, "want /status/CODE with CODE from 200 to 599")
		return
	}
	switch code {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		w.WriteHeader(code)
	default:
		text(w, code, strconv.Itoa(code)+" "+http.StatusText(code))
	}
}

// stream sends the given number of chunks, each as soon as it is there.
func stream(w http.ResponseWriter, r *http.Request) {
	chunks, err := strconv.ParseUint(chi.URLParam(r, "chunks"), 10, 32)
	if err != nil || chunks > maxChunks {
		text(w, http.StatusBadRequest, "want /stream/CHUNKS with CHUNKS from 0 to "+strconv.Itoa(maxChunks))
		return
	}
	every, err := parseEvery(r.URL.Query())
	if err != nil || every < 0 || every > maxEvery {
		text(w, http.StatusBadRequest, "want every=DURATION, such as 50ms, up to "+maxEvery.String())
		return
	}
	plain(w)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	for i := range chunks {
		if i > 0 && !sleep(r, every) {
			// Returning would end the stream as if it were whole.
			panic(http.ErrAbortHandler)
		}
		if _, err := w.Write([]byte("chunk " + strconv.FormatUint(i+1, 10) + " of " + strconv.FormatUint(chunks, 10) + "\n")); err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := out.Flush(); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func parseEvery(q url.Values) (time.Duration, error) {
	if !q.Has("every") {
		return 50 * time.Millisecond, nil
	}
	return time.ParseDuration(q.Get("every"))
}

// sleep waits for d and reports true, or false if the request ends before.
func sleep(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// text answers with a line of text.
func text(w http.ResponseWriter, status int, line string) {
	plain(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(line)+1))
	w.WriteHeader(status)
	// The server drops the body of an answer to HEAD; a client that is gone
	// hears of nothing.
	_, _ = w.Write([]byte(line + "\n"))
}

func plain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
