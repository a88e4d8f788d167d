package breaker

import (
	"context"
	"time"
)

// Configure puts c in force in place of what the breaker was made with, at once. It
// panics where [New] does. InitialState and OnTransition are not looked at: the
// listener stays, as does the state, with all that belongs to it:
//
//   - The window keeps its outcomes, the latest of them if the new one has room for
//     fewer, as failed and as slow as they were filed. It starts empty if it is of the
//     other kind, or of time with buckets of another length.
//   - An open period ends when it was to end. The next ones are of the new OpenFor,
//     which goes on with the attempt that has been reached.
//   - A half-open breaker lets in as many probes as it was to when that began, and
//     decides by as many, by the new rates and limits of time. What these would have
//     ended before now ends now.
//   - If the overdue rule comes or goes, or its slots change with SlowCall, it counts
//     anew. Calls that were let in before count for nothing then, as after a change of
//     state.
//
// A rate that the new thresholds would not have allowed opens the breaker with the next
// outcome.
func (b *Breaker) Configure(c Config) {
	c = c.withDefaults()
	ctx := context.Background()
	now := b.look(ctx, b.now())
	recount := newRules(c).width != b.rules().width
	b.config.Store(shared(newRules(c)))
	b.window = b.window.resized(c.Window, now)
	b.overdueLimit = c.OverdueLimit
	switch {
	case b.state != Closed && b.state != MetricsOnly:
		b.setLocked(b.slot.Load(), time.Duration(b.from.Load()), time.Duration(b.until.Load()))
		b.catchUpLocked(ctx, now)
	case recount:
		b.since, b.overdue = now, overdue{}
		b.enterGateLocked(now, b.stepDue(now, now))
	default:
		b.stepLocked()
	}
	b.judgeOverdueLocked(ctx, now)
	b.unlock()
}
