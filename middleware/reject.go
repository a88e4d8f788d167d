package middleware

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// problemBase is where docs/rejections.md explains each problem type.
const problemBase = "https://github.com/watertight-go/watertight/blob/main/docs/rejections.md#"

// A problem is the body of a refusal: RFC 9457, with the reason as extension.
// Nothing in it comes from the request.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`
}

// ofAnotherBody are the headers, in canonical form, that somebody may have set
// in advance for a body that is now not sent. Transfer-Encoding is one of them:
// beside a Content-Length the server would complain.
var ofAnotherBody = [...]string{
	"Accept-Ranges", "Content-Digest", "Content-Disposition", "Content-Encoding", "Content-Language",
	"Content-Location", "Content-Md5", "Content-Range", "Digest", "Etag", "Last-Modified",
	"Repr-Digest", "Trailer", "Transfer-Encoding",
}

// WriteRejection answers r with a refusal, as the middleware itself does. It is
// for gateways, whose ErrorHandler finds a *watertight.RejectedError of the
// client side in the error that it gets.
//
// The answer has the status that the policy gives, a body of type
// application/problem+json (none for HEAD), Retry-After in whole seconds,
// rounded up, unless it is unknown, and Cache-Control: no-store. Headers set
// earlier stay, but for those that describe another body; so a middleware further
// out that compresses must not announce it before the answer begins. On HTTP/1
// the connection closes if the request has a body: the server would otherwise
// wait for a body that may never come before it sends the answer. The client may
// go on to send it for a second.
//
// To the breakers of the handlers that w belongs to, the answer is no outcome:
// refusals say nothing about who passes them on.
func WriteRejection(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) {
	status := rejected.StatusCode()
	answer := answerFor(rejected.Reason, status)

	f := prepare(w, r, rejected)
	f.set("Content-Type", "application/problem+json")
	f.set("Content-Length", answer.length)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// The client may be gone; there is nobody to tell.
		_, _ = w.Write(answer.body)
	}
}

// prepare does what every refusal needs, whoever writes it: the headers that do
// not depend on the body, an end to the request's body, and the word to breakers
// further out that what follows is a refusal. It returns what sets further headers.
func prepare(w http.ResponseWriter, r *http.Request, rejected *watertight.RejectedError) fields {
	f := fields{header: w.Header(), values: make([]string, 0, 5)}
	if len(f.header) > 0 {
		for _, other := range ofAnotherBody {
			delete(f.header, other)
		}
	}
	f.set("Cache-Control", "no-store")
	if s := retryAfterSeconds(rejected.RetryAfter); s > 0 {
		f.set("Retry-After", strconv.FormatInt(s, 10))
	} else {
		delete(f.header, "Retry-After")
	}
	// Never on HTTP/2, where it would close the connection under the other
	// streams. The length, not r.Body, says whether there is a body: middleware
	// further out may have wrapped one that is empty.
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		f.set("Connection", "close")
		// net/http goes on to read what is owed of the body before it closes the
		// connection. Without an end to that, callers who send nothing would hold
		// one goroutine and one connection each, just when there are too many.
		// Where there are no deadlines, there is no connection to hold either.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(linger))
	}
	ignore(w)
	return f
}

// fields sets headers by names in canonical form. Header.Set would make a slice for
// each; these share an array, which no other refusal shares, for a middleware
// further out may write into what it finds in a header.
type fields struct {
	header http.Header
	values []string
}

func (f *fields) set(name, value string) {
	f.values = append(f.values, value)
	n := len(f.values)
	f.header[name] = f.values[n-1 : n : n]
}

// An answer is what is the same for all refusals of one reason and status.
type answer struct {
	body   []byte
	length string // of body
}

// answers are those that were needed so far.
var answers [reasons][maxStatus + 1 - minStatus]atomic.Pointer[answer]

// What there is an answer for. A policy cannot give another status.
const (
	reasons              = int(policy.ReasonCanceled) + 1
	minStatus, maxStatus = 400, 599
)

func answerFor(reason policy.Reason, status int) *answer {
	if int(reason) >= reasons || status < minStatus || status > maxStatus {
		return newAnswer(reason, status)
	}
	place := &answers[reason][status-minStatus]
	a := place.Load()
	if a == nil {
		a = newAnswer(reason, status)
		place.Store(a) // whoever is second stores the same
	}
	return a
}

func newAnswer(reason policy.Reason, status int) *answer {
	title, detail := describe(reason)
	body, err := json.Marshal(problem{
		Type:   problemBase + reason.String(),
		Title:  title,
		Status: status,
		Detail: detail,
		Reason: reason.String(),
	})
	if err != nil { // strings and an int cannot fail
		panic("middleware: " + err.Error())
	}
	body = append(body, '\n')
	return &answer{body, strconv.Itoa(len(body))}
}

// linger is how long a refused caller may go on to send its body. One that is cut
// off before it has read the answer may never see it.
const linger = time.Second

// ignore keeps a refusal from counting as a failure of the handler that passes it
// on, as a gateway does for the upstream that is full: the breaker of the route
// would otherwise shut out the other upstreams as well.
func ignore(w http.ResponseWriter) {
	for w != nil {
		if r, ok := w.(interface{ refused() }); ok {
			r.refused()
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = outer.Unwrap()
	}
}

// retryAfterSeconds rounds up: a caller that comes back early is refused again.
func retryAfterSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

func describe(r policy.Reason) (title, detail string) {
	switch r {
	case policy.ReasonFull:
		return "At capacity", "All permits for this kind of request are in use. The request was not processed."
	case policy.ReasonWaitTimeout:
		return "Waited too long", "No permit for this kind of request became free in time. The request was not processed."
	case policy.ReasonOpen:
		return "Temporarily suspended", "Requests of this kind have been failing or slow and are suspended. The request was not processed."
	case policy.ReasonDraining:
		return "Shutting down", "This server is shutting down. The request was not processed."
	case policy.ReasonCanceled:
		return "Given up", "The client left, or the time for the request ran out, before it got a permit. The request was not processed."
	}
	return "Refused", "The request was not processed."
}
