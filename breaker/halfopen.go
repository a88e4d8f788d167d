package breaker

import (
	"context"
	"slices"
	"time"
)

// A probe is a call that a half-open breaker let in and that has not ended.
type probe struct {
	id    uint64
	start time.Duration
}

func (b *Breaker) admitProbeLocked(now time.Duration) uint64 {
	b.permits--
	b.lastProbe++
	b.probes = append(b.probes, probe{b.lastProbe, now})
	return b.lastProbe
}

// findProbeLocked returns the index of a probe in flight, or -1. There are at
// most cfg.HalfOpen.Calls to look through.
func (b *Breaker) findProbeLocked(id uint64) int {
	return slices.IndexFunc(b.probes, func(p probe) bool { return p.id == id })
}

// restartProbeLocked has the time of a probe begin now. It becomes the last of
// probes, which keeps them in the order of their start.
func (b *Breaker) restartProbeLocked(id uint64, now time.Duration) {
	if i := b.findProbeLocked(id); i >= 0 {
		b.probes = append(slices.Delete(b.probes, i, i+1), probe{id, now})
	}
}

// endProbeLocked takes a probe out and files its outcome. A probe that is not in
// flight has ended before, or was given up: then this does nothing.
func (b *Breaker) endProbeLocked(ctx context.Context, id uint64, o Outcome, slow bool, at time.Duration) {
	i := b.findProbeLocked(id)
	if i < 0 {
		return
	}
	b.probes = slices.Delete(b.probes, i, i+1)
	if o == Ignored {
		b.permits++
		return
	}
	b.probed.add(o == Failure, slow)
	if b.probed.calls < b.cfg.minProbes() {
		return
	}
	if cause := b.verdictLocked(at); cause != 0 {
		b.moveLocked(ctx, Open, cause, at, 0)
	} else {
		b.moveLocked(ctx, Closed, CauseProbes, at, 0)
	}
}
