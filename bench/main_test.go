package main

import (
	"testing"
	"time"
)

// Everybody does what the table says: the gates check it themselves.
func TestEveryRowRuns(t *testing.T) {
	for _, r := range bulkheadRows() {
		if r.least > 10_000 {
			continue // the same code with more goroutines
		}
		for i, f := range r.measure(1, time.Millisecond) {
			if f.ops < 1 || f.nanos[0] <= 0 {
				t.Errorf("%s, number %d: %d operations of %v ns", r.name, i, f.ops, f.nanos[0])
			}
		}
	}
}
