package bulkhead

import (
	"context"
	"runtime/debug"
)

// A task is what a pool holds of a submission until it has ended. It knows
// nothing of the type of the value, and may come to serve another submission
// after that: see [worker.newTask].
type task struct {
	body   body
	result *result // that of the future; nil if the caller of Do waits instead
	info   *Info   // where to say how the task fared, if that is wanted
	worker *worker // to which it was handed on arrival; nil if that could not be

	// bell gets a message when the task has ended, if somebody wants it, who is the
	// only one and may have left by then; there is room for it. err is written
	// before that and read after.
	bell chan struct{}
	err  error

	// Guarded by the pool's mutex, except that ctx belongs to the worker while
	// the task runs.
	ctx        context.Context
	state      taskState
	wanted     bool          // the message of the bell
	orphan     bool          // a worker has it, and its caller, in Do, has left
	stop       func() bool   // ends watching ctx; nil unless the task waits and is watched
	admitted   chan struct{} // closed when the task gets in from the door; nil unless it was there
	prev, next *task
}

// want has the bell rung at the end. It is called under the pool's mutex, or
// before anybody else knows of t.
func (t *task) want() {
	t.wanted = true
	if t.bell == nil {
		t.bell = make(chan struct{}, 1)
	}
}

// A body is what a task does.
type body interface {
	// run calls the function of the task and keeps its value.
	run(ctx context.Context) error

	// replaced returns the body with the fallback in place of its function. It
	// returns nil if the fallback is for another type.
	replaced(OnFull) body
}

type taskState uint8

const (
	taskRuns    taskState = iota // has a worker or its submitter's goroutine, or is about to
	taskWaits                    // in the backlog
	taskOutside                  // at the door
	taskBarred                   // at the door when the pool was closed
	taskEnded
)

// A taskOutcome is how a submission ended. Each ends in exactly one way.
type taskOutcome uint8

const (
	taskCompleted taskOutcome = iota // ran and returned nil
	taskFailed                       // ran and returned an error
	taskPanicked                     // ran and panicked or called Goexit
	taskCallerRun                    // ran on its submitter's goroutine
	taskFellBack                     // was answered by the fallback
	taskDiscarded                    // ErrDiscarded
	taskRefused                      // ErrFull
	taskTimedOut                     // ErrWaitTimeout
	taskShutOut                      // ErrClosed
	taskLeft                         // ctx.Err()
	taskOutcomes
)

// attempt runs the task on this goroutine and tells end how it went, also if
// the task panics, which goes no further, or ends this goroutine.
func (t *task) attempt(end func(taskOutcome, error)) {
	o, err := taskPanicked, error(nil)
	defer func() {
		// A return always changes o. So if o is still taskPanicked and recover has
		// nothing, the goroutine is in Goexit, which cannot be stopped.
		if o == taskPanicked {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
		end(o, err)
	}()
	if t.stop != nil {
		t.stop()
	}
	if err = t.ctx.Err(); err != nil {
		o = taskLeft
		return
	}
	if err = t.body.run(t.ctx); err != nil {
		o = taskFailed
	} else {
		o = taskCompleted
	}
}

// A taskList holds tasks, oldest first. It is doubly linked through the tasks,
// so that one leaves from the middle in constant time.
type taskList struct {
	front, back *task
	n           int
}

func (l *taskList) push(t *task) {
	t.prev = l.back
	if l.back == nil {
		l.front = t
	} else {
		l.back.next = t
	}
	l.back = t
	l.n++
}

// pop removes the oldest task and returns it. There must be one.
func (l *taskList) pop() *task {
	t := l.front
	l.remove(t)
	return t
}

// remove unlinks t, which must be in the list.
func (l *taskList) remove(t *task) {
	if t.prev == nil {
		l.front = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.back = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	l.n--
}
