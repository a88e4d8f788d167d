package soak

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// A stock is what a process has that a leak would be made of.
type stock struct {
	goroutines int
	files      int // open; -1: not known on this system
}

func takeStock() stock {
	s := stock{goroutines: runtime.NumGoroutine(), files: -1}
	if dir, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.files = len(dir)
	}
	return s
}

// compare waits until there is no more than there was. What is closed may take a while
// to go.
func (before stock) compare(take func() stock) error {
	for end := time.Now().Add(30 * time.Second); ; {
		now := take()
		if now.goroutines <= before.goroutines && now.files <= before.files {
			return nil
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("left at the end: %d goroutines, were %d; %d open files, were %d\n%s",
				now.goroutines, before.goroutines, now.files, before.files, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// heapInUse returns the bytes that the garbage collector cannot take.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
