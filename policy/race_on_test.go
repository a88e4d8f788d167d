//go:build race

package policy_test

// The race detector allocates on its own, so allocations are not counted under it.
const raceEnabled = true
