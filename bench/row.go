package main

import (
	"runtime"
	"slices"
	"time"
)

// A row of the table is one job and those who can do it.
type row struct {
	name   string
	goals  []goal            // what ours is to reach
	plus   bool              // the others are compared with raw by the difference, else by the ratio
	least  int               // operations, at least, in one turn
	raw    rival             // what nobody in the row can do without
	rivals []rival           // ours first
	ours   int               // how many of rivals are to reach the goals; 0 means 1
	own    map[string][]goal // what single lines are to reach, by their names
	cpu    bool              // times are CPU time, the garbage collector's share included
}

// A rival has a turn in each round.
type rival struct {
	name string
	run  turn
}

// A turn does ops operations between m.start and m.stop.
type turn = func(m *meter, ops int)

// A meter takes the time and counts the allocations of one turn.
type meter struct {
	cpu     bool
	before  runtime.MemStats
	began   time.Duration
	took    time.Duration
	mallocs uint64
}

func (m *meter) start() {
	runtime.GC()
	runtime.ReadMemStats(&m.before)
	m.began = m.now()
}

func (m *meter) stop() {
	m.took = m.now() - m.began
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	m.mallocs = after.Mallocs - m.before.Mallocs
}

// start is where the clock begins.
var start = time.Now()

func (m *meter) now() time.Duration {
	if m.cpu {
		return cpuTime()
	}
	return time.Since(start)
}

// A line is the figures of one in the row, with a value for each round.
type line struct {
	name          string
	ops           int
	nanos, allocs []float64 // of one operation
}

// measure returns a line for raw and one for each of the rivals.
func (r row) measure(rounds int, budget time.Duration) []line {
	everybody := append([]rival{r.raw}, r.rivals...)
	all := make([]line, len(everybody))
	for i, rival := range everybody {
		all[i] = line{name: rival.name, ops: r.calibrate(rival, budget)}
	}
	for range rounds {
		for i, rival := range everybody {
			m := meter{cpu: r.cpu}
			l := &all[i]
			rival.run(&m, l.ops)
			l.nanos = append(l.nanos, float64(m.took.Nanoseconds())/float64(l.ops))
			l.allocs = append(l.allocs, float64(m.mallocs)/float64(l.ops))
		}
	}
	return all
}

// calibrate finds how many operations take about as long as budget. It also
// warms up what there is to warm up.
func (r row) calibrate(one rival, budget time.Duration) int {
	ops := max(1000, r.least)
	for {
		m := meter{cpu: r.cpu}
		one.run(&m, ops)
		if m.took >= budget/4 || ops >= 1<<28 {
			return max(r.least, int(float64(ops)*float64(budget)/float64(max(m.took, 1))))
		}
		ops *= 4
	}
}

// round by round, f of a and b.
func rounds(a, b []float64, f func(a, b float64) float64) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = f(a[i], b[i])
	}
	return all
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
