//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is what the process has had of all processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
