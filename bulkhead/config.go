package bulkhead

import (
	"fmt"
	"time"
)

// Config says how many calls a [Bulkhead] admits at once and who may wait.
type Config struct {
	// Limit is the number of permits, at least 1. More than [MaxLimit] counts
	// as MaxLimit.
	Limit int

	// Backlog is how many callers may wait at once. 0: nobody waits.
	Backlog int

	// MaxWait is the longest that one call waits for a permit. 0: a call that
	// finds no permit free is refused at once, whatever the Backlog.
	MaxWait time.Duration
}

func (c Config) check() {
	checkLimit(c.Limit)
	if c.Backlog < 0 {
		panic(fmt.Sprintf("bulkhead: backlog is %d, must not be negative", c.Backlog))
	}
	if c.MaxWait < 0 {
		panic(fmt.Sprintf("bulkhead: max wait is %v, must not be negative", c.MaxWait))
	}
}

func checkLimit(limit int) {
	if limit < 1 {
		panic(fmt.Sprintf("bulkhead: limit is %d, must be at least 1", limit))
	}
}
