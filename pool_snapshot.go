package watertight

import (
	"time"

	"github.com/watertight-go/watertight/policy"
)

// A PoolSnapshot is the pool of a [CompartmentSnapshot]; see
// [bulkhead.PoolSnapshot] for what the figures mean. How many tasks were refused
// and how many left is among the compartment's counts.
type PoolSnapshot struct {
	Core           int `json:"core"`
	Max            int `json:"max"`
	Backlog        int `json:"backlog"`
	Workers        int `json:"workers"`
	Active         int `json:"active"`
	Abandoned      int `json:"abandoned"`
	Idle           int `json:"idle"`
	Queued         int `json:"queued"`
	WaitingForRoom int `json:"waitingForRoom"`
	CallerRunning  int `json:"callerRunning"`
	Peak           int `json:"peak"`

	// Since when tasks have not found a worker free, as far as those tell that have waited
	// or were refused; nil if there was none for ten seconds.
	PressedSince *time.Time `json:"pressedSince,omitempty"`

	Completed uint64 `json:"completed"`
	Failed    uint64 `json:"failed"`
	Panicked  uint64 `json:"panicked"`
	CallerRun uint64 `json:"callerRun"`
	FellBack  uint64 `json:"fellBack"`  // among those rejected as full
	Discarded uint64 `json:"discarded"` // likewise
}

// ofPool fills in what the pool itself counts: all but what was granted, since
// the pool knows only of tasks that it has handed to a worker, and of those that
// ended; one whose context ends between the two would count and count no more.
func (s *CompartmentSnapshot) ofPool(c *compartment) {
	p := c.pool.Snapshot()
	s.Pool = &PoolSnapshot{
		Core:           p.Core,
		Max:            p.Max,
		Backlog:        p.Backlog,
		Workers:        p.Workers,
		Active:         p.Active,
		Abandoned:      p.Abandoned,
		Idle:           p.Idle,
		Queued:         p.Queued,
		WaitingForRoom: p.WaitingForRoom,
		CallerRunning:  p.CallerRunning,
		Peak:           p.Peak,
		PressedSince:   c.pressure.began(time.Now()),
		Completed:      p.Completed,
		Failed:         p.Failed,
		Panicked:       p.Panicked,
		CallerRun:      p.CallerRun,
		FellBack:       p.FellBack,
		Discarded:      p.Discarded,
	}
	s.InFlight = int64(p.Active + p.CallerRunning)
	s.Left = p.Left
	s.Rejected[policy.ReasonFull.String()] = p.Full + p.FellBack + p.Discarded
	s.Rejected[policy.ReasonWaitTimeout.String()] = p.TimedOut
	s.Rejected[policy.ReasonDraining.String()] = p.Closed
}
