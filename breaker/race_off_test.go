//go:build !race

package breaker_test

// raceDetector is whether the race detector is on, which changes what allocates.
const raceDetector = false
