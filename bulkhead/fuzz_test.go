package bulkhead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// FuzzSchedule runs a schedule of arrivals, cancels, releases, resizes and a
// close, in a bubble where they fall on few instants. Nothing waits between two
// steps of one instant, so they meet in whatever order the scheduler finds. The
// order cannot be foreseen, but the books must balance: each call is told one
// thing and is counted as that, and no permit is lost.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte{0x11, 0, 0, 0, 0, 3, 3, 5, 2, 7, 2})          // wait, hand over, cancel
	f.Add([]byte{0x21, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 2, 2}) // time out as permits come
	f.Add([]byte{0x32, 0, 0, 0, 0, 8, 16, 24, 0, 9, 2, 1})     // grow and shrink
	f.Add([]byte{0x13, 0, 0, 0, 0, 6, 2, 0, 2})                // close under waiters
	f.Add([]byte{0x12, 0, 0, 0, 10, 0, 0, 18, 5, 5, 2, 2, 2})  // shorter and longer max wait
	f.Fuzz(func(t *testing.T, schedule []byte) {
		if len(schedule) == 0 {
			return
		}
		synctest.Test(t, func(t *testing.T) { runSchedule(t, schedule[0], schedule[1:min(len(schedule), 200)]) })
	})
}

func runSchedule(t *testing.T, config byte, steps []byte) {
	b := bulkhead.New(bulkhead.Config{
		Limit: 1 + int(config&3), Backlog: 1 + int(config>>2&7), MaxWait: time.Duration(config>>5) * time.Second,
	})
	var want bulkhead.Snapshot // the totals, by what the callers were told
	permits := make(chan bulkhead.Permit, len(steps))
	told := make(chan error, len(steps))
	var cancels []context.CancelFunc
	tried := 0
	for _, step := range steps {
		switch arg := int(step >> 3); step & 7 {
		case 0, 1:
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			go func() {
				var info bulkhead.Info
				p, err := b.AcquireInfo(ctx, &info)
				if err == nil {
					permits <- p
					if info.InFlight > info.Limit {
						t.Errorf("admitted as number %d of %d", info.InFlight, info.Limit)
					}
				}
				told <- err
			}()
		case 2:
			go func() {
				select {
				case p := <-permits:
					p.Release()
				case <-time.After(time.Minute):
				}
			}()
		case 3:
			if len(cancels) > 0 {
				go cancels[arg%len(cancels)]()
			}
		case 4:
			go b.Resize(1 + arg%4)
		case 5:
			time.Sleep(time.Second)
		case 6:
			if arg == 0 {
				go b.Close()
				continue
			}
			go b.Configure(bulkhead.Config{Limit: 1 + arg%4, Backlog: arg % 8, MaxWait: time.Duration(arg%5) * time.Second})
		case 7:
			tried++
			go func() {
				p, err := b.TryAcquire()
				if err == nil {
					permits <- p
				}
				told <- err
			}()
		}
	}

	time.Sleep(time.Hour) // every wait and every wish to release has ended
	require.Len(t, told, len(cancels)+tried)
	for range len(cancels) + tried {
		switch <-told {
		case nil:
			want.Granted++
		case bulkhead.ErrFull:
			want.Full++
		case bulkhead.ErrWaitTimeout:
			want.TimedOut++
		case bulkhead.ErrClosed:
			want.Closed++
		case context.Canceled:
			want.Left++
		}
	}
	got := b.Snapshot()
	require.Equal(t, len(permits), got.InFlight)
	require.Zero(t, got.Queued)
	require.Equal(t, [...]uint64{want.Granted, want.Full, want.TimedOut, want.Left, want.Closed},
		[...]uint64{got.Granted, got.Full, got.TimedOut, got.Left, got.Closed})
	for len(permits) > 0 {
		(<-permits).Release()
	}
	require.NoError(t, b.Drain(t.Context()))
	require.Zero(t, b.Snapshot().InFlight)
	for _, cancel := range cancels {
		cancel()
	}
}
