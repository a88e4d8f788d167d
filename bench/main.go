// Command bench measures the primitives of watertight beside their rivals and
// prints one table. From this directory:
//
//	GOWORK=off go run .                  everything, some two minutes
//	GOWORK=off go run . -rows hand       the rows whose name matches
//	GOWORK=off go run . -rounds 15       more rounds, for a busy machine
//
// Each row has a raw operation that nothing of its kind can do without, and
// everybody in the row is measured against it, turn by turn in each round, so
// that a disturbance of the machine meets all alike. The columns are the least
// time of an operation over all rounds; its ratio to the raw operation in the
// same round, as the median and the range over the rounds; and allocations per
// operation.
//
// It is a module of its own so that the rivals are no dependency of watertight.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A row of the table is one job and those who can do it.
type row struct {
	name   string
	target string // what ours is meant to reach
	least  int    // operations, at least, in one turn
	raw    rival
	rivals []rival
}

// A rival does ops operations between m.start and m.stop.
type rival struct {
	name string
	run  func(m *meter, ops int)
}

// A meter takes the time and counts the allocations of one turn.
type meter struct {
	before  runtime.MemStats
	began   time.Time
	took    time.Duration
	mallocs uint64
}

func (m *meter) start() {
	runtime.GC()
	runtime.ReadMemStats(&m.before)
	m.began = time.Now()
}

func (m *meter) stop() {
	m.took = time.Since(m.began)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	m.mallocs = after.Mallocs - m.before.Mallocs
}

// figures are those of one rival, with a value for each round.
type figures struct {
	nanos, ratios, allocs []float64
	ops                   int
}

func main() {
	rounds := flag.Int("rounds", 5, "turns that each gets")
	budget := flag.Duration("budget", 40*time.Millisecond, "about how long a turn takes")
	rows := flag.String("rows", "", "only rows whose name matches this `regexp`")
	flag.Parse()
	wanted, err := regexp.Compile(*rows)
	if err != nil || *rounds < 1 || *budget <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	fmt.Printf("%s %s/%s, %d processors, %d rounds of %v\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *rounds, *budget)
	for _, r := range bulkheadRows() {
		if wanted.MatchString(r.name) {
			r.print(r.measure(*rounds, *budget))
		}
	}
	if wanted.MatchString("memory") {
		printMemory()
	}
}

func (r row) measure(rounds int, budget time.Duration) []figures {
	everybody := append([]rival{r.raw}, r.rivals...)
	all := make([]figures, len(everybody))
	for i, rival := range everybody {
		all[i].ops = calibrate(rival, r.least, budget)
	}
	for range rounds {
		var raw float64
		for i, rival := range everybody {
			var m meter
			f := &all[i]
			rival.run(&m, f.ops)
			nanos := float64(m.took.Nanoseconds()) / float64(f.ops)
			if i == 0 {
				raw = nanos
			}
			f.nanos = append(f.nanos, nanos)
			f.ratios = append(f.ratios, nanos/raw)
			f.allocs = append(f.allocs, float64(m.mallocs)/float64(f.ops))
		}
	}
	return all
}

// calibrate finds how many operations take about as long as budget. It also
// warms up what there is to warm up.
func calibrate(r rival, least int, budget time.Duration) int {
	ops := max(1000, least)
	for {
		var m meter
		r.run(&m, ops)
		if m.took >= budget/4 || ops >= 1<<28 {
			return max(least, int(float64(ops)*float64(budget)/float64(max(m.took, 1))))
		}
		ops *= 4
	}
}

func (r row) print(all []figures) {
	fmt.Printf("\n%s (target: %s)\n", r.name, r.target)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, f := range all {
		name := r.raw.name
		if i > 0 {
			name = r.rivals[i-1].name
		}
		slices.Sort(f.ratios)
		fmt.Fprintf(w, "%s\t%.1f ns\t%.2fx\t(%.2f-%.2f)\t%.1f allocs\t\n", pad(name), slices.Min(f.nanos),
			f.ratios[len(f.ratios)/2], f.ratios[0], f.ratios[len(f.ratios)-1], slices.Min(f.allocs))
	}
	w.Flush()
}

// pad keeps names to the left in a table whose cells are on the right.
func pad(name string) string { return "  " + name + strings.Repeat(" ", max(0, 34-len(name))) }
