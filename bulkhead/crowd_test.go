//go:build !race

package bulkhead_test

const (
	crowd     = 100_000
	histories = 5_000
)
