package bulkhead

import (
	"fmt"
	"time"
)

// PoolConfig says how many tasks a [Pool] runs at once, how many may wait, and
// what becomes of the others.
type PoolConfig struct {
	// Core is how many workers stay when there is nothing to do, at most Max.
	// They too are started only when a task needs them. 0: none stays.
	Core int

	// Max is how many workers there are at most, and so how many tasks run at
	// once. At least 1.
	Max int

	// KeepAlive is how long a worker beyond Core stays without a task. 0: it
	// ends with its task, unless the next one waits already.
	KeepAlive time.Duration

	// Backlog is how many accepted tasks may wait for a worker at once. 0: a
	// task is handed to a worker directly or not accepted.
	Backlog int

	// OnFull is what becomes of a task that finds Max workers busy and the
	// backlog full. The zero value is [Abort].
	OnFull OnFull
}

func (c PoolConfig) check() {
	if c.Max < 1 {
		panic(fmt.Sprintf("bulkhead: max workers is %d, must be at least 1", c.Max))
	}
	if c.Core < 0 || c.Core > c.Max {
		panic(fmt.Sprintf("bulkhead: core workers is %d, must be from 0 to the maximum of %d", c.Core, c.Max))
	}
	if c.KeepAlive < 0 {
		panic(fmt.Sprintf("bulkhead: keep-alive is %v, must not be negative", c.KeepAlive))
	}
	if c.Backlog < 0 {
		panic(fmt.Sprintf("bulkhead: backlog is %d, must not be negative", c.Backlog))
	}
}

// Resize changes core and max of a live pool as [Pool.Configure] does, and
// panics where that does.
func (p *Pool) Resize(core, max int) {
	p.mu.Lock()
	defer p.mu.Unlock() // held by nobody if the check panics
	cfg := p.cfg
	cfg.Core, cfg.Max = core, max
	cfg.check()
	p.configureLocked(cfg)
}

// Configure changes a live pool in one step and returns at once. It panics where
// [NewPool] does, and then changes nothing.
//
// If Max grows, exactly the waiting tasks that now fit start, oldest first. If it
// shrinks, no task that runs is disturbed: surplus workers end when they are
// idle, and no task starts until fewer than Max run. Workers that a smaller Core
// makes surplus have their keep-alive from now on; a new KeepAlive holds at once,
// also for those that are idle already. Tasks that wait keep their
// places, even beyond a smaller backlog. Submitters that wait for room keep
// theirs and the max wait that was in force when they came; OnFull applies to
// those who come from now on.
func (p *Pool) Configure(cfg PoolConfig) {
	cfg.check()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configureLocked(cfg)
}

func (p *Pool) configureLocked(cfg PoolConfig) {
	core := p.cfg.Core
	p.cfg = cfg
	p.retireLocked(min(len(p.idle), max(0, p.workers-cfg.Max)))
	for p.workers < cfg.Max {
		t := p.nextLocked()
		if t == nil {
			break
		}
		w := p.claimLocked() // a new one: something waited, so nobody was idle
		p.noteLocked(t.info)
		w.hand(t)
	}
	p.admitLocked()
	if cfg.Core < core {
		now := time.Now()
		for _, w := range p.idle[min(len(p.idle), max(0, p.workers-core)):] {
			w.since = now // it was core until now
		}
	}
	p.stopReaperLocked() // it may be set too late for a shorter keep-alive
	p.reapLocked()
}
