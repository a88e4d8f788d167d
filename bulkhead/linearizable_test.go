package bulkhead_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/internal/linear"
)

// An op is a [linear.Step]: something that a call did while others ran beside it,
// with what it was told.
type op struct {
	called, returned int64
	kind             kind
	limit            int // for resize
	err              error
	info             bulkhead.Info     // for acquire
	seen             bulkhead.Snapshot // for snapshot
}

type kind int

const (
	try kind = iota
	acquire
	release
	resize
	snapshot
	shutdown
	count // of what a call was told, where it is a step of its own
)

// A sequential is the bulkhead without concurrency.
type sequential struct {
	limit, inFlight, peak int
	granted, full, shut   uint64
	closed                bool
}

func (o op) Begun() int64 { return o.called }
func (o op) Over() int64  { return o.returned }

func (o op) Next(s sequential) (sequential, bool) {
	free := !s.closed && s.inFlight < s.limit
	switch o.kind {
	case try, acquire:
		ok := s.closed
		switch o.err {
		case nil:
			ok = free
			s.inFlight++
			s.peak = max(s.peak, s.inFlight)
		case bulkhead.ErrFull:
			ok = !s.closed && !free
		}
		if !o.countsLater() {
			s = s.count(o.err)
		}
		if o.kind == acquire && (o.err == nil || o.info.Position == 0) {
			ok = ok && o.info.Limit == s.limit && o.info.InFlight == s.inFlight
		}
		return s, ok
	case release:
		s.inFlight--
		return s, s.inFlight >= 0
	case resize:
		s.limit = o.limit
		return s, true
	case shutdown:
		s.closed = true
		return s, true
	case count:
		return s.count(o.err), true
	default:
		return s, o.seen.Limit == s.limit && o.seen.InFlight == s.inFlight && o.seen.Peak == s.peak &&
			o.seen.Granted == s.granted && o.seen.Full == s.full && o.seen.Closed == s.shut
	}
}

// countsLater reports whether the call is counted after it was decided upon:
// that is so for refusals and for what has waited.
func (o op) countsLater() bool { return o.err == bulkhead.ErrFull || o.info.Position > 0 }

func (s sequential) count(err error) sequential {
	switch err {
	case nil:
		s.granted++
	case bulkhead.ErrFull:
		s.full++
	default:
		s.shut++
	}
	return s
}

func TestLinearizable(t *testing.T) {
	for _, queues := range []bool{false, true} {
		t.Run(fmt.Sprintf("queues=%v", queues), func(t *testing.T) {
			for round := range histories {
				limit := 1 + round%3
				cfg := bulkhead.Config{Limit: limit}
				if queues {
					cfg.Backlog, cfg.MaxWait = 8, time.Hour
				}
				ops := history(t, bulkhead.New(cfg), round%7 == 0)
				if !linear.Explains(sequential{limit: limit}, ops) {
					var lines strings.Builder
					for _, o := range ops {
						fmt.Fprintf(&lines, "%+v\n", o)
					}
					t.Fatalf("limit %d: no order explains\n%s", limit, &lines)
				}
			}
		})
	}
}

// history lets goroutines loose on b, each with some calls at random, and
// returns what they saw.
func history(t *testing.T, b *bulkhead.Bulkhead, shut bool) []op {
	const goroutines, steps = 3, 5
	var clock atomic.Int64
	var ready atomic.Int32
	all := make([][]op, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			var held []bulkhead.Permit
			ops := make([]op, 0, 2*steps)
			call := func(k kind) {
				o := op{kind: k, limit: 1 + rand.IntN(3), called: clock.Add(1)}
				var p bulkhead.Permit
				switch k {
				case try:
					p, o.err = b.TryAcquire()
				case acquire:
					p, o.err = b.AcquireInfo(context.Background(), &o.info)
				case release:
					held[0].Release()
					held = held[1:]
				case resize:
					b.Resize(o.limit)
				case snapshot:
					o.seen = b.Snapshot()
				case shutdown:
					b.Close()
				}
				o.returned = clock.Add(1)
				if p != (bulkhead.Permit{}) {
					held = append(held, p)
				}
				ops = append(ops, o)
				if o.countsLater() {
					o.kind = count
					ops = append(ops, o)
				}
			}
			ready.Add(1)
			for ready.Load() < goroutines {
				runtime.Gosched() // then all at once
			}
			for range steps {
				switch n := rand.IntN(16); {
				case len(held) > 0 && n < 8:
					call(release)
				case n < 5:
					call(try)
				case n < 9 && len(held) == 0: // who may have to wait holds nothing
					call(acquire)
				case n < 11:
					call(resize)
				case n == 11 && shut:
					call(shutdown)
				default:
					call(snapshot)
				}
			}
			for len(held) > 0 {
				call(release)
			}
			all[g] = ops
		})
	}
	wg.Wait()
	var ops []op
	for _, o := range all {
		ops = append(ops, o...)
	}
	return ops
}

// The check must be able to fail: these histories never happened to a bulkhead.
func TestLinearizableTellsWrongFromRight(t *testing.T) {
	inFlight := func(n int) bulkhead.Snapshot {
		return bulkhead.Snapshot{Limit: 1, InFlight: n, Peak: n, Granted: uint64(n)}
	}
	for name, tt := range map[string]struct {
		ops  []op
		want bool
	}{
		"one after the other": {[]op{
			{called: 1, returned: 2, kind: try},
			{called: 3, returned: 4, kind: try, err: bulkhead.ErrFull},
		}, true},
		"not counted": {[]op{
			{called: 1, returned: 2, kind: try},
			{called: 3, returned: 4, kind: snapshot, seen: bulkhead.Snapshot{Limit: 1, InFlight: 1, Peak: 1}},
		}, false},
		"refused before the permit was taken": {[]op{
			{called: 1, returned: 2, kind: try, err: bulkhead.ErrFull},
			{called: 3, returned: 4, kind: try},
		}, false},
		"refused while the permit was taken": {[]op{
			{called: 1, returned: 3, kind: try, err: bulkhead.ErrFull},
			{called: 2, returned: 4, kind: try},
		}, true},
		"two with one permit": {[]op{
			{called: 1, returned: 3, kind: try},
			{called: 2, returned: 4, kind: try},
		}, false},
		"not seen": {[]op{
			{called: 1, returned: 2, kind: try},
			{called: 3, returned: 4, kind: snapshot, seen: inFlight(0)},
		}, false},
		"seen, then not": {[]op{
			{called: 1, returned: 9, kind: try},
			{called: 2, returned: 3, kind: snapshot, seen: inFlight(1)},
			{called: 4, returned: 5, kind: snapshot, seen: inFlight(0)},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, linear.Explains(sequential{limit: 1}, tt.ops))
		})
	}
}

// Under load, who arrived while another was in the queue never gets the permit
// first. With one permit the order inside is certain, and Arrived is read where
// the place in the queue is taken.
func TestNobodyOvertakesUnderLoad(t *testing.T) {
	const goroutines = 8
	type visit struct{ called, queued time.Time }
	b := bulkhead.New(bulkhead.Config{Limit: 1, Backlog: goroutines, MaxWait: time.Hour})
	var visits []visit // appended to by whoever has the permit
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range histories {
				var info bulkhead.Info
				called := time.Now()
				p, err := b.AcquireInfo(t.Context(), &info)
				if err != nil {
					t.Error(err)
					return
				}
				visits = append(visits, visit{called, info.Arrived})
				runtime.Gosched() // or, with one processor to run on, nobody ever meets anybody
				p.Release()
			}
		})
	}
	wg.Wait()
	require.Len(t, visits, goroutines*histories)
	waited := 0
	var queued time.Time // the earliest of those that come later
	for i := len(visits) - 1; i >= 0; i-- {
		v := visits[i]
		require.False(t, !queued.IsZero() && queued.Before(v.called), "visit %d overtook one that was queued %v before it came", i, v.called.Sub(queued))
		if !v.queued.IsZero() {
			waited++
			if queued.IsZero() || v.queued.Before(queued) {
				queued = v.queued
			}
		}
	}
	require.NotZero(t, waited)
}
