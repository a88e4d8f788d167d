//go:build !unix

package main

import "time"

// cpuTime is the time itself where nothing better is at hand: the same on a machine that
// does nothing else.
func cpuTime() time.Duration { return time.Since(start) }
