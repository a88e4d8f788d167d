package watertight

import (
	"sync"
	"time"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/policy"
)

// A table holds the compartments of one policy on one side, at most max of
// them beside the overflow compartment.
//
// A compartment is at rest when no call holds it and its breaker, if any, is
// closed. An insert drops those at rest for longer than idle; at the bound it
// drops the one longest at rest; if none is at rest, the new key shares the
// overflow compartment. A compartment with calls inside is never dropped (its
// limit would double), nor one whose breaker is not closed (it would forget).
//
// A breaker that its policy holds in one state has nothing to forget either.
//
// Compartments that no call holds stand in a list, those left first in front.
// What state their breakers are in is asked only when one is about to be
// dropped: calls come often, new keys seldom. One whose breaker is not closed
// then leaves the list until its next call does, or a reload has changed it.
//
// Finding, leaving and inserting take constant time under one lock, apart from
// the drops, of which there is at most one for each time a call left, and for each reload.
type table struct {
	side   policy.Side
	per    policy.Per
	header string // of policy.PerHeader
	told   bool   // somebody wants to be told of changes
	build  func(was, r *policy.Rule, s policy.Side, key string) *compartment

	mu   sync.Mutex   // guards the fields below, and the table's fields of every compartment in it
	rule *policy.Rule // of the compartments to come
	was  *policy.Rule // one before it, which had the bulkhead or the breaker that rule has not; nil: none had
	max  int
	idle time.Duration
	// Invariants, whenever mu is not held:
	//   - len(byKey) <= max, once max has not been lowered
	//   - a listed compartment has refs == 0 and is in byKey
	//   - first..last is ordered by leftAt
	byKey       map[string]*compartment
	overflow    *compartment
	first, last *compartment
	closed      bool         // new bulkheads are born closed
	dropped     *compartment // has what those that were dropped had counted; nil: none was
	overflowing bool         // the latest new key had to share
}

// newTable returns an empty table. Its compartments come from build, which is called
// under the lock.
func newTable(r *policy.Rule, s policy.Side, max int, idle time.Duration, build func(was, r *policy.Rule, s policy.Side, key string) *compartment) *table {
	return &table{side: s, per: r.PerOn(s), header: r.Header, rule: r, max: max, idle: idle, build: build, byKey: make(map[string]*compartment)}
}

// divides reports whether r divides its calls as the table does.
func (t *table) divides(r *policy.Rule) bool { return t.per == r.PerOn(t.side) && t.header == r.Header }

// change makes r the rule of the compartments to come, and returns those that there
// are. Until they have gone one by one, there may be more of them than max.
//
// A call that was judged by an earlier rule may bring a new key. What is built for it
// must have what that rule asks for, as those have that are there.
func (t *table) change(r *policy.Rule, max int, idle time.Duration) []*compartment {
	t.mu.Lock()
	switch {
	case r.Bulkhead != nil && r.Breaker != nil:
		t.was = nil
	case r.Bulkhead == nil && t.rule.Bulkhead != nil, r.Breaker == nil && t.rule.Breaker != nil:
		t.was = t.rule
	}
	t.rule, t.max, t.idle = r, max, idle
	t.mu.Unlock()
	return t.all()
}

// acquire returns the compartment of key, pinned until release, and what was done for
// a new one.
func (t *table) acquire(key []byte) (*compartment, []tableChange) {
	t.mu.Lock()
	c, ok := t.byKey[string(key)]
	if ok {
		t.pinLocked(c)
	}
	t.mu.Unlock()
	if !ok {
		return t.insert(key)
	}
	return c, nil
}

func (t *table) pinLocked(c *compartment) {
	if c.listed {
		t.unlistLocked(c)
	}
	c.refs++
}

// insert is acquire for a key that has no compartment yet.
//
// It drops others one by one, and asks their breakers without the lock, since
// that may call listeners, who may ask for a snapshot, which needs the lock. A
// call may come to the other meanwhile, and even go; then drop does nothing, as
// the answer is worth nothing. If none came, the answer still holds: while no
// call holds a compartment and no reload changes it, its breaker neither leaves the
// closed state nor comes back to it.
func (t *table) insert(key []byte) (_ *compartment, changes []tableChange) {
	now := time.Since(start)
	for {
		c, other, overflow := t.insertIfRoom(key, now)
		if c != nil {
			if overflow != nil {
				changes = append(changes, tableChange{overflow: overflow})
			}
			return c, changes
		}
		if t.drop(other, other.forgettable()) && t.told {
			changes = append(changes, tableChange{evict: &EvictEvent{
				Compartment: other.Compartment,
				Cause:       other.cause,
				Rested:      max(0, now-other.since),
			}})
		}
	}
}

// A resting compartment is one that must go to make room.
type resting struct {
	*compartment
	number uint64        // of its rest
	since  time.Duration // when that began
	cause  string        // why it must go
}

// forgettable reports whether c, built anew, would be what it is: its breaker is
// closed, or is held by its policy in the state in which it is made.
func (c *compartment) forgettable() bool {
	l := c.limits.Load()
	return l.rule.Breaker == nil || l.breakerRule.Force != policy.ForceNone || l.breaker.State() == breaker.Closed
}

// insertIfRoom returns the compartment of key, pinned; or else the one that must go
// first. It also returns what is to be told of the overflow compartment, if something is.
func (t *table) insertIfRoom(key []byte, now time.Duration) (c *compartment, other resting, overflow *OverflowEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byKey[string(key)]
	switch {
	case ok:
	case string(key) == overflowKey:
		// A Host header may say so. Who calls itself that is counted there, or
		// there would be two of the name.
		c = t.overflowLocked()
	default:
		full := len(t.byKey) >= t.max
		if first := t.first; first != nil {
			switch {
			case now-first.leftAt > t.idle:
				return nil, resting{first, first.rest, first.leftAt, evictedIdle}, nil
			case full:
				return nil, resting{first, first.rest, first.leftAt, evictedBound}, nil
			}
		}
		if full {
			c = t.overflowLocked()
		} else {
			c = t.buildLocked(string(key))
			c.leftAt = now
			t.byKey[c.Key] = c
		}
		overflow = t.turnLocked(full)
	}
	t.pinLocked(c)
	return c, resting{}, overflow
}

// turnLocked notes whether a new key had to share, and returns what is to be told if the
// one before it fared otherwise.
func (t *table) turnLocked(shares bool) *OverflowEvent {
	if t.overflowing == shares {
		return nil
	}
	t.overflowing = shares
	if !t.told {
		return nil
	}
	return &OverflowEvent{Compartment: t.overflow.Compartment, Began: shares, Max: t.max}
}

// drop ends the rest of a compartment: for good if its breaker is closed, else
// until the next call. If that rest is over, it does nothing. It reports whether the
// compartment has gone.
func (t *table) drop(c resting, closed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.listed || c.rest != c.number {
		return false
	}
	t.unlistLocked(c.compartment)
	if !closed {
		return false
	}
	delete(t.byKey, c.Key)
	if t.dropped == nil {
		t.dropped = &compartment{Compartment: Compartment{Policy: c.Policy, Side: t.side, Per: t.per}}
	}
	t.dropped.add(c.compartment)
	return true
}

func (t *table) overflowLocked() *compartment {
	if t.overflow == nil {
		t.overflow = t.buildLocked(overflowKey)
	}
	return t.overflow
}

func (t *table) buildLocked(key string) *compartment {
	c := t.build(t.was, t.rule, t.side, key)
	c.table = t
	if t.closed {
		c.close()
	}
	return c
}

// release ends the pin of one acquire, as unpin says. The clock is read in any case,
// since that keeps it out of the critical section: measured, a gain where many calls
// leave.
func (t *table) release(c *compartment, at time.Duration) {
	if at == 0 {
		at = time.Since(start)
	}
	t.mu.Lock()
	c.refs--
	c.leftAt = max(c.leftAt, at) // a hook may have kept a call that gave back earlier
	if c.refs == 0 && c != t.overflow {
		t.listLocked(c)
	}
	t.mu.Unlock()
}

// listLocked appends c. A call that was overtaken between the clock and the lock
// left no earlier than the one before it: the list stays in order.
func (t *table) listLocked(c *compartment) {
	c.rest++
	c.listed = true
	c.prev = t.last
	if t.last != nil {
		c.leftAt = max(c.leftAt, t.last.leftAt)
		t.last.next = c
	} else {
		t.first = c
	}
	t.last = c
}

// relist begins a rest for all that no call holds. After a reload what their breakers
// said before is worth nothing: they may have none any more, or another.
func (t *table) relist() {
	now := time.Since(start)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byKey {
		switch {
		case c.listed:
			c.rest++
		case c.refs == 0:
			c.leftAt = now
			t.listLocked(c)
		}
	}
}

func (t *table) unlistLocked(c *compartment) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		t.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		t.last = c.prev
	}
	c.prev, c.next, c.listed = nil, nil, false
}

// all returns the compartments that the table holds now.
func (t *table) all() []*compartment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.allLocked()
}

// look returns the compartments that the table holds now, and what those had counted
// that it has dropped, if any. Both are of one moment: what a compartment counted is in
// one of the two, and never in both.
func (t *table) look() (cs []*compartment, dropped []CompartmentSnapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped != nil {
		dropped = append(dropped, t.dropped.snapshot())
	}
	return t.allLocked(), dropped
}

func (t *table) allLocked() []*compartment {
	cs := make([]*compartment, 0, len(t.byKey)+1)
	for _, c := range t.byKey {
		cs = append(cs, c)
	}
	if t.overflow != nil {
		cs = append(cs, t.overflow)
	}
	return cs
}

// close closes every bulkhead, those to come included: whoever queues is
// refused, permits that are out stay valid.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, c := range t.all() {
		c.close()
	}
}
