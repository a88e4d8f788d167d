package breaker

import (
	"math/rand/v2"
	"slices"
	"time"
)

// maxGrowing bounds the length of what Growing returns.
const maxGrowing = 1000

// Growing returns open periods, for [Config].OpenFor, that begin with initial and
// grow by the factor multiplier from one to the next, up to longest, which is the
// last. For 5s, 2m and 2 these are 5s, 10s, 20s, 40s, 80s and 2m.
//
// Growing panics unless 0 < initial <= longest and multiplier > 1, and if there
// would be more than 1000 of them.
func Growing(initial, longest time.Duration, multiplier float64) []time.Duration {
	check(initial > 0, "initial open period", initial)
	check(longest >= initial, "longest open period", longest)
	check(multiplier > 1, "multiplier of the open period", multiplier)
	var periods []time.Duration
	for d := float64(initial); d < float64(longest); d *= multiplier {
		check(len(periods) < maxGrowing, "multiplier of the open period", multiplier)
		periods = append(periods, time.Duration(d))
	}
	return append(periods, longest)
}

// baseFor returns the length of the open period number attempt, counted from 1,
// before jitter.
func (r *rules) baseFor(attempt int) time.Duration {
	return r.openFor[min(attempt, len(r.openFor))-1]
}

// drawFor is baseFor with jitter: any length within jitter of it is as likely as
// any other, up to the longest configured. Cutting the range there, rather than
// what was drawn, leaves breakers apart from each other also when all of them
// have reached the longest.
func (r *rules) drawFor(attempt int) time.Duration {
	base := r.baseFor(attempt)
	if r.jitter == 0 {
		return base
	}
	longest := slices.Max(r.openFor)
	low := float64(base) * (1 - r.jitter)
	high := min(float64(base)*(1+r.jitter), float64(longest))
	d := low + rand.Float64()*(high-low)
	if d >= float64(longest) { // which may be too large to convert back
		return longest
	}
	return max(1, time.Duration(d))
}
