package watertight_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
)

func TestTheZeroCallDoesNothing(t *testing.T) {
	var c watertight.Call
	c.SettleStatus(500)
	c.SettleFailure()
	c.Leak()
	c.Release()
	assert.False(t, c.Watched())
	ctx, derived := c.Context()
	assert.Nil(t, ctx)
	assert.False(t, derived)
	ctx, derived = c.MarkedContext()
	assert.Nil(t, ctx)
	assert.False(t, derived)
}

// A refused call is as good as a zero one.
func TestARefusedCallDoesNothing(t *testing.T) {
	g := guard(t, watched)
	require.NoError(t, g.Drain(t.Context()))
	c, err := g.Admit(t.Context(), to("a"))
	require.ErrorIs(t, err, bulkhead.ErrClosed)
	assert.False(t, c.Watched())
	c.SettleFailure()
	c.Leak()
	c.Release()
	s := compartment(t, g, "all", "")
	assert.Zero(t, s.Breaker.Calls)
	assert.Zero(t, s.Leaked)
}

// A call may change hands: it is admitted here, settled there and released
// elsewhere.
func TestACallMayChangeHands(t *testing.T) {
	g := guard(t, watched)
	calls, settled := make(chan watertight.Call), make(chan watertight.Call)
	done := make(chan struct{})
	go func() {
		for c := range calls {
			c.SettleStatus(200)
			settled <- c
		}
		close(settled)
	}()
	go func() {
		defer close(done)
		for c := range settled {
			c.Release()
			c.Release()
		}
	}()
	for range 1000 {
		calls <- *admit(t, g, to("a"))
	}
	close(calls)
	<-done
	c := compartment(t, g, "all", "")
	assert.EqualValues(t, 1000, c.Granted)
	assert.Zero(t, c.InFlight)
	assert.Equal(t, 100, c.Breaker.Calls, "the window")
	assert.Zero(t, c.Breaker.FailureRate)
}

// What is settled after the release, or twice, is not filed.
func TestOnlyTheFirstSettleBeforeTheReleaseCounts(t *testing.T) {
	g := guard(t, watched)
	c := admit(t, g, to("a"))
	c.Release()
	c.SettleFailure()
	assert.Zero(t, compartment(t, g, "all", "").Breaker.Calls)

	c = admit(t, g, to("a"))
	c.SettleStatus(200)
	c.SettleFailure()
	c.SettleStatus(500)
	c.Release()
	assert.Equal(t, "ok", filed(t, g))
	assert.Equal(t, 1, compartment(t, g, "all", "").Breaker.Calls)
}

// A settled call still holds its permit: the client's is that of the body.
func TestSettlingReleasesNothing(t *testing.T) {
	g := guard(t, `
version: 1
policies: [{name: all, per: policy, bulkhead: {maxConcurrent: 1}, breaker: {}}]
`)
	c := admit(t, g, to("a"))
	c.SettleStatus(200)
	refused(t, g, to("a"), bulkhead.ErrFull)
	c.Release()
	admit(t, g, to("a")).Release()
}

// A call that only a breaker watches is in flight all the same.
func TestABreakerAloneCountsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, `
version: 1
policies: [{name: all, per: policy, breaker: {}}]
`, watertight.WithLogger(slog.New(slog.DiscardHandler)))
		a, b := admit(t, g, on("/")), admit(t, g, on("/"))
		c := compartment(t, g, "all", "")
		assert.EqualValues(t, 2, c.InFlight)
		assert.EqualValues(t, 2, c.Granted)
		a.Release()
		a.Release()
		assert.EqualValues(t, 1, compartment(t, g, "all", "").InFlight)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Drain(ctx), context.DeadlineExceeded)
		b.Leak()
		require.NoError(t, g.Drain(t.Context()))
		assert.Zero(t, compartment(t, g, "all", "").InFlight)
		assert.EqualValues(t, 1, compartment(t, g, "all", "").Leaked)
	})
}

func TestALeakIsCountedAndReportedOnceForEachCompartment(t *testing.T) {
	var log bytes.Buffer
	g := guard(t, `
version: 1
policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 9}}]
`, watertight.WithLogger(nil), watertight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), watertight.WithLogger(nil))
	for range 3 {
		for _, host := range []string{"a", "b"} {
			c := admit(t, g, to(host))
			c.Leak()
			c.Leak()
			c.Release()
		}
	}
	for _, key := range []string{"http://a:80", "http://b:80"} {
		c := compartment(t, g, "hosts", key)
		assert.EqualValues(t, 3, c.Leaked)
		assert.Zero(t, c.Bulkhead.InFlight)
	}
	assert.Equal(t, 2, strings.Count(log.String(), "policy=hosts"))
}

// Without a logger of its own, a Guard takes the default of the moment.
func TestTheDefaultLogger(t *testing.T) {
	g := guard(t, watched)
	c := admit(t, g, to("a"))
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	c.Leak()
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "policy=all side=client")
}
