package bulkhead

import (
	"errors"
	"fmt"
)

// ErrDiscarded is the error of a task that a full [Pool] has dropped because its
// OnFull is [Discard].
var ErrDiscarded = errors.New("bulkhead: task discarded")

// A PanicError is the error of a task that did not return: it panicked or called
// [runtime.Goexit]. Errors of this type are returned as *PanicError.
type PanicError struct {
	// Value is what the task panicked with. nil: it called [runtime.Goexit].
	Value any

	// Stack is the stack of the goroutine at that moment, in the form of
	// [runtime/debug.Stack]. It is not part of the error's text.
	Stack []byte
}

// Error says how the task ended, without its stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "bulkhead: task called runtime.Goexit"
	}
	return fmt.Sprintf("bulkhead: task panicked: %v", e.Value)
}

// Unwrap returns Value if it is an error, for [errors.Is] and [errors.As], and
// nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
