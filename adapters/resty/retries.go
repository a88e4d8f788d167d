package watertightresty

import (
	"context"
	"errors"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// retries stops resty from repeating what the Guard refused.
//
// Retry conditions cannot do that: resty goes on if any one of them says so.
// RetryAfter can, by an error, but it is not told what became of the attempt;
// that is told to the retry hooks, which resty calls right before, on the same
// goroutine and with the same request. So judge leaves its verdict in the
// request's context, and after reads it there.
type retries struct {
	next         resty.RetryAfterFunc // what the client had; nil: nothing
	waitTimeouts bool                 // are not refusals
}

type refusedKey struct{ *retries }

var errRefused = errors.New("watertightresty: the call was refused and is not retried")

// judge is the retry hook.
func (r *retries) judge(resp *resty.Response, err error) {
	if resp == nil || resp.Request == nil {
		return // the attempt did not get as far as the Guard
	}
	refused := r.refused(err)
	ctx := resp.Request.Context()
	if was, _ := ctx.Value(refusedKey{r}).(bool); was != refused {
		resp.Request.SetContext(context.WithValue(ctx, refusedKey{r}, refused))
	}
}

func (r *retries) refused(err error) bool {
	var rejected *watertight.RejectedError
	if !errors.As(err, &rejected) {
		return false
	}
	return rejected.Reason != policy.WaitTimeout || !r.waitTimeouts
}

// after is the client's RetryAfter. resty asks it when it is going to retry,
// and hands the attempt's own error, if there is one, to the caller.
func (r *retries) after(c *resty.Client, resp *resty.Response) (time.Duration, error) {
	if refused, _ := resp.Request.Context().Value(refusedKey{r}).(bool); refused {
		return 0, errRefused
	}
	var wait time.Duration
	if r.next != nil {
		var err error
		if wait, err = r.next(c, resp); err != nil {
			return wait, err
		}
	}
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
