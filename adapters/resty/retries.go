package watertightresty

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/watertight-go/watertight"
)

// retries stops resty from repeating what a Guard refused.
//
// Retry conditions cannot do that: resty goes on if any one of them says so,
// and to add one turns off its rule that errors are retried. RetryAfter can, by
// an error, but it is not told what became of the attempt; that is told to the
// retry hooks, which resty calls right before, on the same goroutine. So note
// leaves word for after in the context of the attempt's own HTTP request.
type retries struct {
	waitTimeouts bool // are not refusals

	mu sync.RWMutex // orders the accesses of beforeRequest to RetryAfter
}

// settle makes the retries of c end at a refusal.
func settle(c *resty.Client, waitTimeouts bool) {
	r := &retries{waitTimeouts: waitTimeouts}
	c.AddRetryHook(r.note)
	c.OnBeforeRequest(r.beforeRequest)
	c.OnError(closeFailed)
}

// settled reports whether settle has been here. A func is known by its code.
func settled(c *resty.Client) bool {
	for _, hook := range c.RetryHooks {
		if reflect.ValueOf(hook).Pointer() == noteCode {
			return true
		}
	}
	return false
}

var (
	noteCode  = reflect.ValueOf(new(retries).note).Pointer()
	afterCode = reflect.ValueOf(new(after).retryAfter).Pointer()
)

type refusalKey struct{}

// note is the retry hook.
func (r *retries) note(resp *resty.Response, err error) {
	raw := rawRequest(resp)
	if raw == nil {
		return
	}
	var refusal *watertight.RejectedError
	if !errors.As(err, &refusal) || refusal.Timeout() && r.waitTimeouts {
		return
	}
	// The caller may send the same resty request again: that makes a new one.
	resp.Request.RawRequest = raw.WithContext(context.WithValue(raw.Context(), refusalKey{}, refusal))
}

// refusalOf returns what note has left, or nil.
func refusalOf(resp *resty.Response) *watertight.RejectedError {
	raw := rawRequest(resp)
	if raw == nil {
		return nil
	}
	refusal, _ := raw.Context().Value(refusalKey{}).(*watertight.RejectedError)
	return refusal
}

// rawRequest returns the HTTP request of an attempt; nil if it did not get as
// far as that.
func rawRequest(resp *resty.Response) *http.Request {
	if resp == nil || resp.Request == nil {
		return nil
	}
	return resp.Request.RawRequest
}

// beforeRequest is a request middleware: it runs before each attempt and keeps
// after in place, also if the caller sets a RetryAfter of his own later.
//
// resty reads RetryAfter without a lock. That the field is written here is no
// race: an attempt reads it only after its own beforeRequest has found or put
// after there, and from then on no beforeRequest writes unless somebody else
// has, which would be a race by itself. The lock orders the one that writes and
// those that find.
func (r *retries) beforeRequest(c *resty.Client, _ *resty.Request) error {
	r.mu.RLock()
	kept := isAfter(c.RetryAfter)
	r.mu.RUnlock()
	if kept {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isAfter(c.RetryAfter) {
		c.RetryAfter = (&after{next: c.RetryAfter}).retryAfter
	}
	return nil
}

func isAfter(f resty.RetryAfterFunc) bool { return reflect.ValueOf(f).Pointer() == afterCode }

// after comes before the client's own RetryAfter.
type after struct{ next resty.RetryAfterFunc } // nil: nothing

// retryAfter is the client's RetryAfter. resty asks it when it is going to
// retry, and hands the attempt's own error, if there is one, to the caller.
func (a *after) retryAfter(c *resty.Client, resp *resty.Response) (time.Duration, error) {
	if refusal := refusalOf(resp); refusal != nil {
		return 0, refusal
	}
	var wait time.Duration
	if a.next != nil {
		var err error
		if wait, err = a.next(c, resp); err != nil {
			return wait, err
		}
	}
	// Now it is certain that nobody will be given this response.
	closeBody(resp)
	return wait, nil
}

// closeFailed is the client's OnError: nobody reads the response of a request
// that ended in an error.
func closeFailed(_ *resty.Request, err error) {
	var failed *resty.ResponseError
	if errors.As(err, &failed) {
		closeBody(failed.Response)
	}
}

func closeBody(resp *resty.Response) {
	if resp != nil && resp.RawResponse != nil && resp.RawResponse.Body != nil {
		// A body that resty has read is closed already, and may be again.
		_ = resp.RawResponse.Body.Close()
	}
}
