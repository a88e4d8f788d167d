package transport

import (
	"net/http"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
)

// WithClassifier lets f say what an answer, or the lack of one, means to the
// breaker, in place of the policy's failureStatus and of the rule that every error
// is a failure. Exactly one of resp and err is set. f returns
//
//   - [breaker.Success] or [breaker.Failure];
//   - [breaker.Ignored]: the call says nothing about the host; a probe is handed
//     back;
//   - 0: as the policy says. So f need only know what it wants to change.
//
// Whether the call was slow is not f's to say, and a failure is weighed as ever
// against what the caller itself did: its cancel is none, see
// [watertight.Call.SettleFailure]. With settle: body, f is asked when the headers
// are in; a body that breaks off is a failure, unless f had the call ignored.
//
// f is asked once for each call that a breaker watches, when the base has returned,
// and must be safe for concurrent use. It must leave resp and its body alone, which
// are the caller's. If it panics, the panic goes on to the caller, the body is closed
// and the call is ignored. The default is 0 for all; the last one given wins, and
// nil changes nothing.
func WithClassifier(f func(resp *http.Response, err error) breaker.Outcome) Option {
	return optionFunc(func(t *Transport) {
		if f != nil {
			t.classify = f
		}
	})
}

// judge asks the classifier about what the base has returned: one of both.
func (t *Transport) judge(call *watertight.Call, resp *http.Response, err error) {
	if !call.Watched() {
		return
	}
	answered := false
	defer func() {
		if answered {
			return
		}
		// It panicked. That is not the host's fault, and the caller will not get the
		// response.
		call.SettleIgnored()
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
	}()
	call.Judge(t.classify(resp, err))
	answered = true
}
