package watertight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight/breaker"
)

// A call that was let in just before a change, and comes after it was told, takes no place.
func TestFaultsOfAPeriodThatIsOver(t *testing.T) {
	var f faults
	begin := time.Now()
	f.turn(breaker.Transition{From: breaker.Closed, To: breaker.Open, At: begin})
	assert.Zero(t, f.enter(insider{start: begin.Add(-1), by: breaker.Closed}))
	assert.NotZero(t, f.enter(insider{start: begin, by: breaker.HalfOpen}))
	assert.Len(t, f.inside, 1)
}

// The full flag is what it says, whatever comes and goes.
func TestFaultsAreFull(t *testing.T) {
	var f faults
	begin := time.Now()
	var tickets []uint32
	for range maxFaults {
		assert.False(t, f.full.Load())
		tickets = append(tickets, f.enter(insider{start: begin, by: breaker.Closed}))
	}
	assert.True(t, f.full.Load())
	assert.Zero(t, f.enter(insider{start: begin, by: breaker.Closed}))
	f.leave(tickets[3])
	assert.False(t, f.full.Load())
	assert.NotZero(t, f.enter(insider{start: begin, by: breaker.Closed}))
	assert.True(t, f.full.Load())
	f.turn(breaker.Transition{From: breaker.Closed, To: breaker.Open, At: begin.Add(1)})
	assert.False(t, f.full.Load())
	f.leave(tickets[0]) // it was gone
	assert.False(t, f.full.Load())
}
