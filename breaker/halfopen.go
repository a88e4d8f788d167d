package breaker

import (
	"context"
	"slices"
	"time"
)

// A halfOpen is what a half-open breaker knows of its probes.
//
// Invariant, in HalfOpen and whenever the lock is not held: permits + len(probes)
// + ended.calls is the number of probes configured, and ended.calls is too few to
// be judged.
type halfOpen struct {
	permits int     // probes that may still be let in
	probes  []probe // those in flight, the one that began first in front
	latest  uint32  // number of the latest probe; 2^32 later a number comes again
	ended   counts  // the outcomes of the others
	enough  int     // so many of these are judged; as configured when the state began
}

// A probe is a call that a half-open breaker let in and that has not ended.
type probe struct {
	id    uint32
	start time.Duration // of what the breaker now waits for
	phase phase
}

func (h *halfOpen) admit(now time.Duration) uint32 {
	h.permits--
	h.latest++
	h.probes = append(h.probes, probe{h.latest, now, awaited})
	return h.latest
}

// find returns the index of a probe in flight, or -1. There are at most as many to
// look through as there are probes configured.
func (h *halfOpen) find(id uint32) int {
	return slices.IndexFunc(h.probes, func(p probe) bool { return p.id == id })
}

// move takes a probe to another phase. If a wait begins with that, the probe becomes
// the last of probes, which keeps them in the order of their start.
func (h *halfOpen) move(id uint32, to phase, now time.Duration) {
	i := h.find(id)
	switch {
	case i < 0: // has ended, or was given up
	case to == paused || to == responded && h.probes[i].phase == responded:
		h.probes[i].phase = to
	default:
		h.probes = append(slices.Delete(h.probes, i, i+1), probe{id, now, to})
	}
}

// endProbeLocked takes a probe out and files its outcome. A probe that is not in
// flight has ended before, or was given up: then this does nothing.
func (b *Breaker) endProbeLocked(ctx context.Context, id uint32, o Outcome, slow bool, at time.Duration) {
	h := b.half
	i := h.find(id)
	if i < 0 {
		return
	}
	h.probes = slices.Delete(h.probes, i, i+1)
	if o == Ignored {
		h.permits++
		return
	}
	h.ended.add(o == Failure, slow)
	if cause := b.rules().verdict(h.ended, h.enough); cause != 0 {
		b.moveLocked(ctx, Open, cause, at, 0)
		return
	}
	if late := b.lateProbesLocked(at); late > 0 && b.reopenLocked(ctx, late, at) {
		return
	}
	if h.ended.calls >= h.enough {
		b.moveLocked(ctx, Closed, CauseProbes, at, 0)
	}
}

// lateProbesLocked returns how many probes are overdue. There being few, it asks
// each, and needs no slots.
func (b *Breaker) lateProbesLocked(now time.Duration) int {
	late := 0
	if b.rules().width > 0 {
		for _, p := range b.half.probes {
			if p.phase == awaited && now-p.start > b.rules().slowCall {
				late++
			}
		}
	}
	return late
}

// reopenLocked opens the breaker if so many overdue probes, each a slow call in the
// count, are enough for that together with the probes that have ended. An overdue
// probe never closes it, and is not filed for good otherwise: it may yet fail.
func (b *Breaker) reopenLocked(ctx context.Context, late int, at time.Duration) bool {
	with := b.half.ended
	with.calls += late
	with.slow += late
	cause := b.rules().verdict(with, b.half.enough)
	if cause == 0 {
		return false
	}
	if cause == CauseSlowCallRate {
		cause = CauseOverdue
	}
	b.half.ended = with // what it was opened by is what its figures say
	b.moveLocked(ctx, Open, cause, at, 0)
	return true
}
