//go:build race

package bulkhead_test

// The race detector dies at 8128 goroutines.
const crowd = 5_000
