package main

import (
	"fmt"
	"runtime"
)

// printMemory prints what a gate occupies that nobody has used yet.
func printMemory() {
	fmt.Printf("\nmemory, idle (target: <= 128 B)\n")
	const n = 10_000
	for _, g := range gates {
		all := make([]gate, n)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range all {
			all[i] = g.open(10, 10)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		fmt.Printf("%s%6d B\n", pad(g.name), int64(after.HeapAlloc-before.HeapAlloc)/n)
		runtime.KeepAlive(all)
	}
}
