//go:build race

package bulkhead_test

const (
	crowd     = 5_000 // the race detector dies at 8128 goroutines
	histories = 1_000
)
