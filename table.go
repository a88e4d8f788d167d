package watertight

import (
	"sync"
	"time"

	"github.com/watertight-go/watertight/breaker"
)

// A table holds the compartments of one policy on one side, at most max of
// them beside the overflow compartment.
//
// A compartment is at rest when no call holds it and its breaker, if any, is
// closed. Those at rest stand in a list, the longest at rest first. An insert
// drops those at rest for longer than idle; at the bound it drops the first
// of the list; if none is at rest, the new key shares the overflow
// compartment. A compartment with calls inside is never dropped (its limit
// would double), nor one whose breaker is not closed (it would forget).
//
// All of this happens under one lock and in constant time, apart from the
// drops, of which there is at most one for each earlier insert.
type table struct {
	max   int
	idle  time.Duration
	build func(key string) *compartment

	mu sync.Mutex // guards the fields below, and the table's fields of every compartment in it
	// Invariants, whenever mu is not held:
	//   - len(byKey) <= max
	//   - a listed compartment has refs == 0
	//   - first..last is ordered by restedAt
	byKey       map[string]*compartment
	overflow    *compartment
	first, last *compartment
	closed      bool // new bulkheads are born closed
}

func newTable(max int, idle time.Duration, build func(key string) *compartment) *table {
	return &table{max: max, idle: idle, build: build, byKey: make(map[string]*compartment)}
}

// acquire returns the compartment of key, pinned until release.
func (t *table) acquire(key []byte) *compartment {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byKey[string(key)]
	if !ok {
		c = t.insertLocked(key)
	}
	if c.listed {
		t.unlistLocked(c)
	}
	c.refs++
	return c
}

func (t *table) insertLocked(key []byte) *compartment {
	now := time.Now()
	for t.first != nil && now.Sub(t.first.restedAt) > t.idle {
		t.dropLocked(t.first)
	}
	if len(t.byKey) >= t.max && t.first != nil {
		t.dropLocked(t.first)
	}
	if len(t.byKey) < t.max {
		c := t.buildLocked(string(key))
		t.byKey[c.Key] = c
		return c
	}
	if t.overflow == nil {
		t.overflow = t.buildLocked(overflowKey)
	}
	return t.overflow
}

func (t *table) buildLocked(key string) *compartment {
	c := t.build(key)
	c.table = t
	if t.closed && c.bulkhead != nil {
		c.bulkhead.Close()
	}
	return c
}

// release ends the pin of one acquire.
func (t *table) release(c *compartment) {
	t.mu.Lock()
	c.refs--
	free := c.refs == 0 && c != t.overflow
	if free && c.breaker == nil {
		t.listLocked(c)
	}
	t.mu.Unlock()
	if !free || c.breaker == nil {
		return
	}
	// Asking the breaker may call its listeners, who may ask for a snapshot,
	// which needs the lock. Another call may come and go meanwhile; then the
	// later release has listed it, or will.
	if c.breaker.State() != breaker.Closed {
		return
	}
	t.mu.Lock()
	if c.refs == 0 && !c.listed && t.byKey[c.Key] == c {
		t.listLocked(c)
	}
	t.mu.Unlock()
}

func (t *table) listLocked(c *compartment) {
	c.restedAt = time.Now()
	c.listed = true
	c.prev = t.last
	if t.last != nil {
		t.last.next = c
	} else {
		t.first = c
	}
	t.last = c
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

func (t *table) dropLocked(c *compartment) {
	t.unlistLocked(c)
	delete(t.byKey, c.Key)
}

// all returns the compartments that the table holds now.
func (t *table) all() []*compartment {
	t.mu.Lock()
	defer t.mu.Unlock()
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
		if c.bulkhead != nil {
			c.bulkhead.Close()
		}
	}
}
