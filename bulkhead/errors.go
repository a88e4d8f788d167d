package bulkhead

import "errors"

var (
	// ErrFull reports that no permit was free and that the call may not wait:
	// MaxWait is 0, the backlog is full, or the call was [Bulkhead.TryAcquire].
	ErrFull = errors.New("bulkhead: full")

	// ErrWaitTimeout reports that the call waited MaxWait in the queue and got
	// no permit. It has a method Timeout() bool that answers true, which is how
	// net.Error and *url.Error recognise a time-out. It is not
	// context.DeadlineExceeded: the limit was the bulkhead's, not the caller's.
	ErrWaitTimeout error = waitTimeoutError{}

	// ErrClosed reports that the bulkhead was closed before the call got a
	// permit, whether it was waiting or had just arrived.
	ErrClosed = errors.New("bulkhead: closed")
)

type waitTimeoutError struct{}

func (waitTimeoutError) Error() string { return "bulkhead: waited too long for a permit" }
func (waitTimeoutError) Timeout() bool { return true }
