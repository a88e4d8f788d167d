//go:build !linux

package program

import "syscall"

// endsWithTest leaves it to Cleanup functions to end the process.
func endsWithTest() *syscall.SysProcAttr { return nil }
