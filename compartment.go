package watertight

import (
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// Names of the compartments that no policy file can name.
const (
	unmatchedName = "(unmatched)" // policy: calls that no route or no policy matches
	exemptName    = "(exempt)"    // policy: calls of WithoutLimits
	overflowKey   = "(overflow)"  // key: shared by the keys that found the table full
)

// reasons are the refusals that a compartment counts.
var reasons = [...]policy.Reason{policy.ReasonFull, policy.ReasonWaitTimeout, policy.ReasonOpen, policy.ReasonDraining}

// A compartment is one (policy, side, key): a bulkhead, a breaker, or both.
// One that limits nothing (exempt policies, unmatched calls) has neither and
// only counts.
type compartment struct {
	Compartment
	limits atomic.Pointer[limits] // nil: of no policy; a reload changes it
	table  *table                 // nil: lives as long as its policy
	pool   *bulkhead.Pool         // not nil: that of a Pool, which alone enters

	met      atomic.Bool // by a call, while table is nil
	granted  atomic.Uint64
	rejected [len(reasons)]atomic.Uint64
	observed [len(reasons)]atomic.Uint64 // refusals that did not happen, since the policy only observes
	left     atomic.Uint64
	leaked   atomic.Uint64
	trips    atomic.Uint64
	evicted  atomic.Uint64 // how many compartments add has counted
	inFlight atomic.Int64  // only where there is no bulkhead to ask
	waits    atomic.Pointer[waits]
	pressure pressure

	// What follows belongs to the table and its lock.
	refs       int           // calls that hold the compartment, queued ones included
	leftAt     time.Duration // since when no call has held anything, while listed
	rest       uint64        // number of its latest stay in the list, from 1
	prev, next *compartment
	listed     bool // in the table's list of those that no call holds
}

func (c *compartment) reject(r policy.Reason)  { count(&c.rejected, r) }
func (c *compartment) observe(r policy.Reason) { count(&c.observed, r) }

func count(counts *[len(reasons)]atomic.Uint64, r policy.Reason) {
	for i := range reasons {
		if reasons[i] == r {
			counts[i].Add(1)
			return
		}
	}
}

// add counts what other has counted, which no call holds any more.
func (c *compartment) add(other *compartment) {
	c.granted.Add(other.granted.Load())
	c.left.Add(other.left.Load())
	c.leaked.Add(other.leaked.Load())
	c.trips.Add(other.trips.Load())
	c.evicted.Add(1)
	for i := range reasons {
		c.rejected[i].Add(other.rejected[i].Load())
		c.observed[i].Add(other.observed[i].Load())
	}
	if w := other.waits.Load(); w != nil {
		c.waits.CompareAndSwap(nil, new(waits))
		c.waits.Load().add(w)
	}
}

// keyForCallers returns the key as errors may have it, which get into logs and
// answers: a header's value may be a secret.
func (c *compartment) keyForCallers() string {
	if c.Per == policy.PerHeader {
		return ""
	}
	return c.Key
}

// retryAfter returns what the policy's refusals tell the caller, except for an
// open breaker, whose remaining time is better.
func (c *compartment) retryAfter() time.Duration {
	l := c.limits.Load()
	if l == nil {
		return defaultRetryAfter
	}
	return l.rule.RetryAfter
}

func (c *compartment) rejectStatus(r policy.Reason) int {
	l := c.limits.Load()
	if l == nil {
		return defaultStatus(r)
	}
	return l.rule.RejectStatus(r)
}

// close closes the bulkhead, if there is one: whoever queues is refused, permits that
// are out stay valid.
func (c *compartment) close() {
	if l := c.limits.Load(); l != nil && l.bulkhead != nil {
		l.bulkhead.Close()
	}
}

// meet notes that a call has met c, for those that are there before any did.
func (c *compartment) meet() {
	if !c.met.Load() { // a write would take the cache line from the other cores each time
		c.met.Store(true)
	}
}

// defaultRetryAfter is what a refusal says that no policy stands behind.
const defaultRetryAfter = time.Second
