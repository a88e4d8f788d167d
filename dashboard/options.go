package dashboard

import "time"

// An Option configures the page of a [Handler].
type Option interface{ apply(*options) }

type options struct {
	interval time.Duration
	watchers int
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

const (
	defaultInterval = time.Second
	minInterval     = 100 * time.Millisecond
	defaultWatchers = 32
)

// WithInterval sets how often the Guard is looked at while somebody watches. The
// default, also for 0 and less, is one second; less than 100 ms is 100 ms. The last one
// given wins.
func WithInterval(d time.Duration) Option {
	return optionFunc(func(o *options) {
		switch {
		case d <= 0:
			o.interval = defaultInterval
		default:
			o.interval = max(d, minInterval)
		}
	})
}

// WithMaxWatchers sets how many streams may be open at once: one for each page that
// somebody looks at. Those beyond are refused with 503, and their pages try again. The
// default, also for 0 and less, is 32. The last one given wins.
func WithMaxWatchers(n int) Option {
	return optionFunc(func(o *options) {
		if n <= 0 {
			n = defaultWatchers
		}
		o.watchers = n
	})
}
