//go:build race

package watertightchi_test

// The race detector allocates too.
const raceEnabled = true
