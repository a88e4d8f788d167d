package watertight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

func TestPressure(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	var p pressure
	assert.Nil(t, p.began(begin), "nobody has met it full")

	p.note(at(0), at(0))
	p.note(at(9*time.Second), at(9*time.Second))
	p.note(at(10*time.Second), at(18*time.Second)) // one that waited
	assert.True(t, p.began(at(28*time.Second)).Equal(begin), "one stretch, as long as the pauses are short")
	assert.Nil(t, p.began(at(28*time.Second+1)), "after a long pause it is over")

	p.note(at(29*time.Second), at(29*time.Second))
	assert.True(t, p.began(at(30*time.Second)).Equal(at(29*time.Second)), "and the next begins anew")
}

// A stretch begins no later than the wait of any call that was told of since the latest pause,
// and no earlier than all that was told of, put together, does.
func TestPressureAgainstAllThatWasTold(t *testing.T) {
	type wait struct{ from, to time.Time }
	rapid.Check(t, func(t *rapid.T) {
		var p pressure
		var told, since []wait // since there was the latest pause
		now := time.Unix(1_000_000, 0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(2, 12_000).Draw(t, "later")) * time.Millisecond)
			waited := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 5_000, 11_000, 60_000}).Draw(t, "waited")) * time.Millisecond
			w := wait{now.Add(-waited), now}
			if len(told) > 0 && w.from.Sub(told[len(told)-1].to) > pressurePause {
				since = nil
			}
			told, since = append(told, w), append(since, w)
			p.note(w.from, w.to)

			require.Nil(t, p.began(now.Add(pressurePause+1)))
			began := p.began(now.Add(pressurePause))
			require.NotNil(t, began)
			for _, w := range since {
				require.False(t, w.from.Before(*began), "began %v, but from %v to %v there was none", began, w.from, w.to)
			}
			earliest := now
			for grown := true; grown; {
				grown = false
				for _, w := range told {
					if w.from.Before(earliest) && earliest.Sub(w.to) <= pressurePause {
						earliest, grown = w.from, true
					}
				}
			}
			require.False(t, began.Before(earliest))
		}
	})
}

func TestSnapshotTellsSinceWhenCallsFindNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := policy.Parse("test.yaml", []byte(`
version: 1
policies:
  - name: small
    side: client
    per: policy
    bulkhead: {maxConcurrent: 1, maxQueue: 1, maxWait: 2s}
`))
		require.NoError(t, err)
		g := New(set)
		pressed := func() *time.Time { return g.Snapshot().Compartments[0].Bulkhead.PressedSince }
		hold, release := make(chan struct{}), make(chan struct{})
		go func() {
			_ = g.Do(t.Context(), "small", func(context.Context) error { close(hold); <-release; return nil })
		}()
		<-hold
		assert.Nil(t, pressed(), "all permits are out, but nobody wanted another")

		time.Sleep(time.Second)
		arrived := time.Now()
		require.ErrorIs(t, g.Do(t.Context(), "small", func(context.Context) error { return nil }), bulkhead.ErrWaitTimeout)
		require.NotNil(t, pressed())
		assert.True(t, pressed().Equal(arrived), "since the first who had to wait came")

		time.Sleep(pressurePause)
		assert.NotNil(t, pressed())
		time.Sleep(time.Nanosecond)
		assert.Nil(t, pressed())
		close(release)
	})
}

func TestSnapshotTellsSinceWhenCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := policy.Parse("test.yaml", []byte(`
version: 1
policies:
  - {name: small, side: client, per: policy, bulkhead: {maxConcurrent: 1}}
`))
		require.NoError(t, err)
		g := New(set)
		nothing := func(context.Context) error { return nil }
		require.NoError(t, g.Do(t.Context(), "small", func(ctx context.Context) error {
			time.Sleep(time.Second)
			assert.Error(t, g.Do(context.Background(), "small", nothing))
			return nil
		}))
		since := g.Snapshot().Compartments[0].Bulkhead.PressedSince
		require.NotNil(t, since)
		assert.True(t, since.Equal(time.Now()))
	})
}

// Of a pool too: by who waited, and by who was refused.
func TestSnapshotTellsSinceWhenTasksFindNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(nil)
		defer func() { require.NoError(t, g.Drain(context.Background())) }()
		pool, err := g.Pool("jobs", bulkhead.PoolConfig{Core: 1, Max: 1, Backlog: 1})
		require.NoError(t, err)
		pressed := func() *time.Time { return g.Snapshot().Compartments[0].Pool.PressedSince }
		work := func(context.Context) (int, error) { time.Sleep(3 * time.Second); return 0, nil }

		began := time.Now()
		first, err := Submit(pool, t.Context(), work)
		require.NoError(t, err)
		assert.Nil(t, pressed(), "the worker is busy, but nobody wanted another")
		_, err = Submit(pool, t.Context(), work)
		require.NoError(t, err)
		_, err = first.Wait(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.NotNil(t, pressed())
		assert.True(t, pressed().Equal(began), "since the one came that had to wait")

		time.Sleep(pressurePause + 1)
		assert.Nil(t, pressed())
		for range 2 {
			_, err = Submit(pool, t.Context(), work)
			require.NoError(t, err)
		}
		_, err = Submit(pool, t.Context(), work)
		require.ErrorIs(t, err, bulkhead.ErrFull)
		require.NotNil(t, pressed())
		assert.True(t, pressed().Equal(time.Now()), "since one was refused")
	})
}

// What a refusal pays for it, beside its error.
func BenchmarkPressure(b *testing.B) {
	b.ReportAllocs()
	var p pressure
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			now := time.Now()
			p.note(now, now)
		}
	})
}
