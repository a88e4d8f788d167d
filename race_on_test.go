//go:build race

package watertight_test

const raceEnabled = true
