package flood_test

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/internal/flood"
)

const interval = 10 * time.Second

// A log keeps what was told.
type log struct {
	mu   sync.Mutex
	told []flood.Left[string]
}

func (l *log) tell(left flood.Left[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, left)
}

// take returns what was told since it was last called.
func (l *log) take() []flood.Left[string] {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told
	l.told = nil
	return told
}

func newLimiter(burst, keys int) (*flood.Limiter[string], *log) {
	l := new(log)
	return flood.New(flood.Config[string]{Interval: interval, Burst: burst, Keys: keys, Tell: l.tell}), l
}

func TestWhatIsLeftOutIsToldOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := newLimiter(2, 1)
		for i := range 5 {
			assert.Equal(t, i < 2, l.Write("a"))
		}
		time.Sleep(interval)
		synctest.Wait()
		assert.Equal(t, []flood.Left[string]{{Key: "a", Count: 3, Over: interval}}, log.take())
		assert.False(t, l.Write("a"), "the flood goes on")
		time.Sleep(interval)
		synctest.Wait()
		assert.Equal(t, []flood.Left[string]{{Key: "a", Count: 1, Over: interval}}, log.take())
		time.Sleep(interval)
		synctest.Wait()
		assert.Empty(t, log.take())
		assert.True(t, l.Write("a"), "the flood is over")
	})
}

func TestKeysBeyondTheBoundAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := newLimiter(1, 2)
		assert.True(t, l.Write("a"))
		assert.True(t, l.Write("b"))
		assert.False(t, l.Write("c"))
		assert.False(t, l.Write("d"))
		assert.False(t, l.Write("a"))
		time.Sleep(interval)
		synctest.Wait()
		assert.ElementsMatch(t, []flood.Left[string]{
			{Key: "a", Count: 1, Over: interval},
			{Others: true, Count: 2, Over: interval},
		}, log.take())
		assert.False(t, l.Write("b"), "it lost its run, and the others have one")
		time.Sleep(2 * interval)
		synctest.Wait()
		assert.Equal(t, []flood.Left[string]{{Others: true, Count: 1, Over: interval}}, log.take())
		assert.True(t, l.Write("c"))
	})
}

func TestFlushTellsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := newLimiter(1, 1)
		l.Flush()
		l.Write("a")
		l.Flush()
		assert.Empty(t, log.take())
		l.Write("a")
		l.Write("b")
		time.Sleep(time.Second)
		l.Flush()
		assert.ElementsMatch(t, []flood.Left[string]{
			{Key: "a", Count: 1, Over: time.Second},
			{Others: true, Count: 1, Over: time.Second},
		}, log.take())
		time.Sleep(interval)
		synctest.Wait()
		assert.Empty(t, log.take(), "told once")
	})
}

// Who is told may come back, take its time, panic, or end its goroutine, and holds up
// nobody but itself.
func TestWhoIsToldHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *flood.Limiter[string]
		var told []uint64
		stall := make(chan struct{})
		l = flood.New(flood.Config[string]{Interval: interval, Burst: 1, Keys: 1, Tell: func(left flood.Left[string]) {
			told = append(told, left.Count)
			switch len(told) {
			case 1:
				l.Write(left.Key)
				l.Flush() // which tells of that one
				panic("told")
			case 3:
				runtime.Goexit()
			case 4:
				<-stall
			}
		}})
		storm := func(n int) {
			for range n {
				l.Write("a")
			}
			time.Sleep(interval)
			synctest.Wait()
		}
		storm(4)
		require.Equal(t, []uint64{3, 1}, told)
		storm(5)
		require.Equal(t, []uint64{3, 1, 5}, told)
		storm(6)
		require.Equal(t, []uint64{3, 1, 5, 6}, told)
		storm(7) // while the log stalls
		storm(8)
		require.Equal(t, []uint64{3, 1, 5, 6}, told)
		close(stall)
		time.Sleep(interval)
		synctest.Wait()
		require.Equal(t, []uint64{3, 1, 5, 6, 15}, told)
	})
}

// A naive is what a Limiter should be like, one event after the other.
type naive struct {
	burst, keys int
	runs        map[string]*naiveRun
	others      *naiveRun
}

type naiveRun struct {
	written, left int
	told, next    time.Duration
}

func (n *naive) write(key string, now time.Duration) bool {
	r := n.runs[key]
	switch {
	case r != nil:
	case n.others != nil:
		r = n.others
	case len(n.runs) < n.keys:
		r = &naiveRun{told: now, next: now + interval}
		n.runs[key] = r
	default:
		n.others = &naiveRun{written: n.burst, told: now, next: now + interval}
		r = n.others
	}
	if r.written < n.burst {
		r.written++
		return true
	}
	r.left++
	return false
}

// pass lets the time pass to now, and returns what is told until then.
func (n *naive) pass(now time.Duration, flush bool) (told []flood.Left[string]) {
	look := func(key string, r *naiveRun) (goes bool) {
		for ; r.next <= now; r.next += interval {
			if r.left == 0 {
				return true
			}
			told = append(told, flood.Left[string]{Key: key, Others: r == n.others, Count: uint64(r.left), Over: r.next - r.told})
			r.left, r.told = 0, r.next
		}
		if flush && r.left > 0 {
			told = append(told, flood.Left[string]{Key: key, Others: r == n.others, Count: uint64(r.left), Over: now - r.told})
			r.left, r.told = 0, now
		}
		return false
	}
	for key, r := range n.runs {
		if look(key, r) {
			delete(n.runs, key)
		}
	}
	if n.others != nil && look("", n.others) {
		n.others = nil
	}
	return told
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			model := naive{
				burst: rapid.IntRange(1, 3).Draw(t, "burst"),
				keys:  rapid.IntRange(1, 3).Draw(t, "keys"),
				runs:  map[string]*naiveRun{},
			}
			l, log := newLimiter(model.burst, model.keys)
			start := time.Now()
			written, left, events := 0, 0, 0
			compare := func(want []flood.Left[string]) {
				told := log.take()
				slices.SortFunc(told, byKeyAndTime)
				slices.SortFunc(want, byKeyAndTime)
				require.Equal(t, want, told)
				for _, l := range told {
					left += int(l.Count)
				}
			}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				switch rapid.SampledFrom([]string{"write", "write", "write", "sleep", "flush"}).Draw(t, "do") {
				case "write":
					key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "key")
					got := l.Write(key)
					require.Equal(t, model.write(key, time.Since(start)), got)
					events++
					if got {
						written++
					}
				case "sleep":
					// Not to the instant of a look, when either may come first.
					time.Sleep(time.Duration(rapid.IntRange(1, 25).Draw(t, "seconds"))*time.Second + time.Nanosecond)
					synctest.Wait()
					compare(model.pass(time.Since(start), false))
				case "flush":
					l.Flush()
					compare(model.pass(time.Since(start), true))
				}
			}
			l.Flush()
			compare(model.pass(time.Since(start), true))
			require.Equal(t, events, written+left)
			time.Sleep(2 * interval)
			synctest.Wait()
			require.Empty(t, log.take())
			require.True(t, l.Write("z"), "all is forgotten")
			time.Sleep(2 * interval)
		})
	})
}

func byKeyAndTime(a, b flood.Left[string]) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Count, b.Count), cmp.Compare(a.Over, b.Over))
}

// Each event is written or told of, once, whatever happens at the same time: also while
// runs end all the time, which they do the sooner the shorter the interval.
func TestHammer(t *testing.T) {
	for _, interval := range []time.Duration{time.Nanosecond, 50 * time.Microsecond} {
		t.Run(interval.String(), func(t *testing.T) { hammer(t, interval) })
	}
}

func hammer(t *testing.T, interval time.Duration) {
	const each = 20_000
	var written, left atomic.Uint64
	l := flood.New(flood.Config[int]{Interval: interval, Burst: 1, Keys: 3, Tell: func(x flood.Left[int]) { left.Add(x.Count) }})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range each {
				if l.Write((g + i) % 5) {
					written.Add(1)
				}
				if i%1000 == 0 {
					l.Flush()
				}
				if i%4 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	// What a timer has taken it may be about to tell.
	for end := time.Now().Add(10 * time.Second); written.Load()+left.Load() < 8*each && time.Now().Before(end); runtime.Gosched() {
		l.Flush()
	}
	assert.EqualValues(t, 8*each, written.Load()+left.Load())
	assert.Positive(t, written.Load())
}

func TestLeavingOutAllocatesNothing(t *testing.T) {
	l, _ := newLimiter(1, 1)
	l.Write("a")
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Write("a") }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Write("b") }))
}

func BenchmarkLeaveOut(b *testing.B) {
	type key struct {
		policy, key string
		side        int
	}
	l := flood.New(flood.Config[key]{Interval: time.Hour, Burst: 1, Keys: 20, Tell: func(flood.Left[key]) {}})
	for name, k := range map[string]key{"known": {policy: "payments", key: "https://payments.internal:443", side: 1}, "others": {policy: "others"}} {
		for i := range 20 {
			l.Write(key{policy: "payments", key: "https://payments.internal:443", side: i})
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Write(k)
				}
			})
		})
	}
}
