package watertight

import (
	"sync/atomic"
	"time"
)

// A pressure remembers since when calls have not found a permit free, or tasks no worker:
// they had to wait or were refused. Moments that are less than pressurePause apart are one stretch. Only
// calls that found no permit write here.
type pressure struct {
	since atomic.Int64 // when the stretch began, in nanoseconds of Unix time
	until atomic.Int64 // the latest moment; 0: there was none
}

// pressurePause is how long calls have to find permits free until the stretch is over.
const pressurePause = 10 * time.Second

// note says that permits were out from one moment to another, the latter now. Of two
// calls that begin a stretch at once either may be right about its beginning. One that
// waited may have come before the stretch began that others have told of: it has waited
// all through that.
func (p *pressure) note(from, to time.Time) {
	until := p.until.Load()
	if begin := from.UnixNano(); begin-until > int64(pressurePause) || begin < p.since.Load() {
		p.since.Store(begin)
	}
	// Many calls may be refused at once, on all cores. A figure that is off by a
	// millisecond is no reason to take the cache line from all of them.
	if to.UnixNano()-until > int64(time.Millisecond) {
		p.until.Store(to.UnixNano())
	}
}

// began returns when the stretch began that now is in, or nil.
func (p *pressure) began(now time.Time) *time.Time {
	until := p.until.Load()
	if until == 0 || now.UnixNano()-until > int64(pressurePause) {
		return nil
	}
	since := time.Unix(0, p.since.Load())
	return &since
}
