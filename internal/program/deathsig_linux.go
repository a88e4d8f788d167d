package program

import "syscall"

// endsWithTest has the kernel kill the process when the thread that started it
// ends. Cleanup functions do not run when a test times out, or when a goroutine
// of its own panics.
func endsWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
