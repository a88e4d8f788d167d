package bulkhead_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
)

// A call is one AcquireInfo on a goroutine of its own. Its fields may be read
// once done is closed.
type call struct {
	done   chan struct{}
	permit bulkhead.Permit
	err    error
	info   bulkhead.Info
}

// begin starts a call and, which needs a bubble, waits until it is either done
// or in the queue: the order of begins is the order of arrival.
func begin(ctx context.Context, b *bulkhead.Bulkhead) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.permit, c.err = b.AcquireInfo(ctx, &c.info)
	}()
	synctest.Wait()
	return c
}

func (c *call) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// isGranted needs a bubble: it lets everybody run first.
func (c *call) isGranted() bool {
	synctest.Wait()
	return c.isDone() && c.err == nil
}

// hold takes every free permit of b.
func hold(t testing.TB, b *bulkhead.Bulkhead) []bulkhead.Permit {
	t.Helper()
	var out []bulkhead.Permit
	for {
		p, err := b.TryAcquire()
		if err != nil {
			require.ErrorIs(t, err, bulkhead.ErrFull)
			return out
		}
		out = append(out, p)
	}
}

// ended is how many calls b has counted, whatever became of them.
func ended(s bulkhead.Snapshot) uint64 {
	return s.Granted + s.Full + s.TimedOut + s.Left + s.Closed
}

// E22: nonsense is refused when the bulkhead is built or changed, never at the
// first call.
func TestNonsensePanics(t *testing.T) {
	ok := bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Second}
	for name, cfg := range map[string]bulkhead.Config{
		"zero":             {},
		"limit 0":          {Limit: 0, Backlog: 1, MaxWait: time.Second},
		"limit negative":   {Limit: -1},
		"limit lowest":     {Limit: math.MinInt},
		"backlog negative": {Limit: 1, Backlog: -1},
		"wait negative":    {Limit: 1, MaxWait: -time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			assertPanics(t, func() { bulkhead.New(cfg) })
			b := bulkhead.New(ok)
			assertPanics(t, func() { b.Configure(cfg) })
			if cfg.Limit < 1 {
				assertPanics(t, func() { b.Resize(cfg.Limit) })
			}
			want := bulkhead.Snapshot{Limit: ok.Limit, Backlog: ok.Backlog, MaxWait: ok.MaxWait}
			assert.Equal(t, want, b.Snapshot(), "a refused change must change nothing")
		})
	}
}

// assertPanics wants a panic that names the package.
func assertPanics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		assert.Regexp(t, `^bulkhead: `, recover())
	}()
	f()
}

func TestOddButValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: math.MaxInt, Backlog: math.MaxInt, MaxWait: math.MaxInt64})
		p, err := b.Acquire(t.Context())
		require.NoError(t, err)
		b.Resize(1)
		waiting := begin(t.Context(), b)
		time.Sleep(1000 * time.Hour)
		p.Release()
		require.True(t, waiting.isGranted())
	})
}

func TestZeroBulkheadRefuses(t *testing.T) {
	var b bulkhead.Bulkhead
	_, err := b.Acquire(t.Context())
	require.ErrorIs(t, err, bulkhead.ErrFull)
	b.Resize(1)
	_, err = b.Acquire(t.Context())
	require.NoError(t, err)
}

func TestErrors(t *testing.T) {
	sentinels := []error{bulkhead.ErrFull, bulkhead.ErrWaitTimeout, bulkhead.ErrClosed}
	for i, err := range sentinels {
		assert.Regexp(t, `^bulkhead: `, err.Error())
		for j, other := range sentinels {
			assert.Equal(t, i == j, errors.Is(err, other), "errors.Is(%q, %q)", err, other)
		}
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)

		var timeout interface{ Timeout() bool }
		isTimeout := errors.As(err, &timeout) && timeout.Timeout()
		assert.Equal(t, err == bulkhead.ErrWaitTimeout, isTimeout, "Timeout of %q", err)
	}
}

// E22: without a max wait, or without a backlog, a call is refused at once.
func TestRefusedAtOnce(t *testing.T) {
	for name, cfg := range map[string]bulkhead.Config{
		"no wait":            {Limit: 2, Backlog: 5},
		"no backlog":         {Limit: 2, MaxWait: time.Second},
		"neither":            {Limit: 2},
		"wait, backlog full": {Limit: 2, Backlog: 1, MaxWait: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bulkhead.New(cfg)
				held := hold(t, b)
				if cfg.Backlog > 0 && cfg.MaxWait > 0 {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					begin(ctx, b)
				}
				before := b.Snapshot()
				start := time.Now()

				var info bulkhead.Info
				p, err := b.AcquireInfo(t.Context(), &info)
				require.ErrorIs(t, err, bulkhead.ErrFull)
				assert.Equal(t, bulkhead.Info{Limit: 2, InFlight: 2, Queued: before.Queued}, info)
				_, err = b.TryAcquire()
				require.ErrorIs(t, err, bulkhead.ErrFull)
				assert.Zero(t, time.Since(start))
				before.Full += 2
				assert.Equal(t, before, b.Snapshot())

				// E16: what came with a refusal holds nothing.
				p.Release()
				assert.Equal(t, before, b.Snapshot())
				for _, p := range held {
					p.Release()
				}
			})
		})
	}
}

func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: 5 * time.Second})
		held := hold(t, b)
		start := time.Now()

		var info bulkhead.Info
		_, err := b.AcquireInfo(t.Context(), &info)
		require.ErrorIs(t, err, bulkhead.ErrWaitTimeout)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, bulkhead.Info{
			Limit: 1, InFlight: 1, Queued: 0, Position: 1, Arrived: start, Waited: 5 * time.Second,
		}, info)

		held[0].Release()
		assert.Equal(t, bulkhead.Snapshot{
			Limit: 1, Backlog: 1, MaxWait: 5 * time.Second, Peak: 1, Granted: 1, Full: 1, TimedOut: 1,
		}, b.Snapshot())
	})
}

// E15, golang/go#63615: a select that finds both a permit and a dead context
// admits half of the dead calls.
func TestDeadContextNeverAdmitted(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()

	free := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	full := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 1, MaxWait: time.Hour})
	hold(t, full)
	closed := bulkhead.New(bulkhead.Config{Limit: 1})
	closed.Close()

	for name, b := range map[string]*bulkhead.Bulkhead{"free": free, "full": full, "closed": closed} {
		t.Run(name, func(t *testing.T) {
			want := b.Snapshot()
			for range 1000 {
				_, err := b.Acquire(canceled)
				require.Same(t, canceled.Err(), err)
				_, err = b.Acquire(expired)
				require.Equal(t, expired.Err(), err)
				require.NotErrorIs(t, err, bulkhead.ErrWaitTimeout)
			}
			want.Left += 2000
			assert.Equal(t, want, b.Snapshot())
		})
	}
}

// A custom cause stays in the context: Acquire returns ctx.Err() itself.
func TestCallersOwnEndIsUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: 2, MaxWait: time.Hour})
		hold(t, b)
		canceled, cancel := context.WithCancelCause(t.Context())
		expiring, stop := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too late"))
		defer stop()

		first, second := begin(canceled, b), begin(expiring, b)
		cancel(errors.New("changed my mind"))
		<-first.done
		<-second.done
		assert.Equal(t, context.Canceled, first.err)
		assert.Equal(t, context.DeadlineExceeded, second.err)
		assert.Equal(t, 1, first.info.Position)
		assert.Equal(t, 2, second.info.Position)
		assert.Zero(t, first.info.Waited)
		assert.Equal(t, time.Second, second.info.Waited)
		assert.EqualValues(t, 2, b.Snapshot().Left)
	})
}

func TestReleaseTwicePanics(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 2})
	p, err := b.TryAcquire()
	require.NoError(t, err)
	p.Release()
	want := b.Snapshot()
	assertPanics(t, p.Release)
	assert.Equal(t, want, b.Snapshot(), "misuse must change nothing, nor leave the bulkhead locked")
	assert.Len(t, hold(t, b), 2)
}

func TestZeroPermitReleasesNothing(t *testing.T) {
	assert.NotPanics(t, bulkhead.Permit{}.Release)
}

// E16, envoyproxy/envoy#22390: a refused call that gives back what it never
// had takes the count below zero, or lets two in.
func TestRefusalsReleaseNothing(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1})
	held := hold(t, b)
	for range 100 {
		p, err := b.Acquire(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrFull)
		p.Release()
		require.Equal(t, 1, b.Snapshot().InFlight)
	}
	held[0].Release()
	assert.Zero(t, b.Snapshot().InFlight)
	assert.Len(t, hold(t, b), 1)
}

func TestNilInfoLeavesBulkheadUsable(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 1})
	assert.Panics(t, func() { _, _ = b.AcquireInfo(t.Context(), nil) })
	assert.Len(t, hold(t, b), 1)
}

func TestPeak(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{Limit: 5})
	for _, p := range hold(t, b)[:3] {
		p.Release()
	}
	assert.Equal(t, 5, b.Snapshot().Peak)
	b.Resize(2)
	assert.Equal(t, 5, b.Snapshot().Peak, "the peak is of all time")
	b.Resize(7)
	hold(t, b)
	assert.Equal(t, 7, b.Snapshot().Peak)
}
