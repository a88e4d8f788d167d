package policy

import "strings"

// A setting is a field of any type.
type setting interface {
	writtenAt() (name string, at at, ok bool)
}

func (f *field[T]) writtenAt() (string, at, bool) { return f.name, f.at, f.ok() && f.at.line > 0 }

// whereOf returns where the settings of a policy are written, by their keys. It is nil
// for one that was written in code.
func whereOf(d *policyDraft) map[string]at {
	if d.place.line == 0 {
		return nil
	}
	where := map[string]at{"": d.name.at}
	note := func(settings ...setting) {
		for _, s := range settings {
			if name, at, ok := s.writtenAt(); ok {
				where[strings.TrimPrefix(name, d.label)] = at
			}
		}
	}
	note(&d.name, &d.side, &d.per, &d.mode, &d.exempt, &d.reject.retryAfter)
	if b := d.bulkhead; b != nil {
		note(&b.maxConcurrent, &b.maxQueue, &b.maxWait)
	}
	if b := d.breaker; b != nil {
		note(&b.failureRate, &b.slowCall, &b.slowCallRate, &b.window, &b.windowCalls, &b.windowTime, &b.minCalls,
			&b.openFor, &b.openForMax, &b.multiplier, &b.jitter, &b.heed,
			&b.halfOpenCalls, &b.probeTimeout, &b.halfOpenMaxWait, &b.failureStatusList, &b.settle, &b.force)
	}
	for i := range d.reject.status {
		note(&d.reject.status[i].status)
	}
	return where
}
