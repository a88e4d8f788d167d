//go:build !race

package bulkhead_test

const crowd = 100_000
