// Command bench measures watertight beside its rivals and prints one table. From
// this directory:
//
//	GOWORK=off go run .                  everything, some five minutes
//	GOWORK=off go run . -rows hand       the rows whose name matches
//	GOWORK=off go run . -rounds 15       more rounds, for a busy machine
//
// README.md says how to read the table, and has one.
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
	"time"

	"github.com/zeromicro/go-zero/core/logx"
)

func rows() []row {
	return slices.Concat(bulkheadRows(), breakerRows(), poolRows(), serverRows(), clientRows(), telemetryRows())
}

func main() {
	logx.Disable() // or go-zero writes what it uses of the machine into the table
	rounds := flag.Int("rounds", 9, "turns that each gets")
	budget := flag.Duration("budget", 40*time.Millisecond, "about how long a turn takes")
	pattern := flag.String("rows", "", "only rows whose name matches this `regexp`")
	flag.Parse()
	wanted, err := regexp.Compile(*pattern)
	if err != nil || *rounds < 1 || *budget <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	fmt.Printf("%s %s/%s, %d processors, %d rounds of %v\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *rounds, *budget)
	for _, r := range rows() {
		if wanted.MatchString(r.name) {
			r.print(os.Stdout, r.measure(*rounds, *budget))
		}
	}
	for _, r := range holdings() {
		if wanted.MatchString(r.name) {
			r.print(os.Stdout)
		}
	}
}
