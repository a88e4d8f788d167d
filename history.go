package watertight

import (
	"sync"
	"time"

	"github.com/watertight-go/watertight/breaker"
)

// A history keeps the latest transitions of all breakers of a Guard, for whoever looks
// when it is too late to listen.
type history struct {
	mu   sync.Mutex           // guards the fields below
	ring []TransitionSnapshot // once full, next is the oldest
	next int
}

// historyLength is how many transitions are kept.
const historyLength = 200

// A TransitionSnapshot is a breaker's change of state, in a [Snapshot].
type TransitionSnapshot struct {
	Time         time.Time `json:"time"`
	Policy       string    `json:"policy"`
	Side         string    `json:"side"`
	Key          string    `json:"key"`
	From         string    `json:"from"`
	To           string    `json:"to"`
	Cause        string    `json:"cause"`
	FailureRate  float64   `json:"failureRate"`  // percent, of the period that ended; -1: too few calls
	SlowCallRate float64   `json:"slowCallRate"` // likewise
	Calls        int       `json:"calls"`
	Overdue      int       `json:"overdue"`
	OpenForMs    int64     `json:"openForMs"` // how long it was to stay open; 0 unless To is "open"
}

// add returns what it has added.
func (h *history) add(c Compartment, t breaker.Transition) *TransitionSnapshot {
	s := TransitionSnapshot{
		Time:         t.At,
		Policy:       c.Policy,
		Side:         c.Side.String(),
		Key:          c.Key,
		From:         t.From.String(),
		To:           t.To.String(),
		Cause:        t.Cause.String(),
		FailureRate:  t.FailureRate,
		SlowCallRate: t.SlowCallRate,
		Calls:        t.Calls,
		Overdue:      t.Overdue,
		OpenForMs:    milliseconds(t.OpenFor),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < historyLength {
		h.ring = append(h.ring, s)
		return &s
	}
	h.ring[h.next] = s
	h.next = (h.next + 1) % historyLength
	return &s
}

// latest returns the transitions, the oldest first.
func (h *history) latest() []TransitionSnapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(append([]TransitionSnapshot{}, h.ring[h.next:]...), h.ring[:h.next]...)
}
