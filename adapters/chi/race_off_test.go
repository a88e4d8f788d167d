//go:build !race

package watertightchi_test

const raceEnabled = false
