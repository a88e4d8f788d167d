package browser

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What the page is tested with has to be what it claims to be.
func TestStorm(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	assert.Equal(t, 8, s.of("reports", reports).Bulkhead.InFlight)
	assert.Equal(t, 6, s.of("reports", reports).Bulkhead.Queued)
	assert.EqualValues(t, 5, s.of("reports", reports).Rejected["full"])
	assert.Equal(t, "half_open", s.of("orders-db", "").Breaker.State)
	assert.Equal(t, "open", s.of("payments", "http://payments.internal:80").Breaker.State)
	assert.Equal(t, "open", s.of("checkout", "GET /checkout").Breaker.State)
	assert.Equal(t, "open", s.of("search", "").Breaker.State)
	assert.EqualValues(t, 2, s.of("trial", "GET /trial").Granted)
	for _, name := range hostile {
		assert.EqualValues(t, 1, s.of("tenants", name).Granted, name)
	}
	for _, path := range odd {
		assert.EqualValues(t, 1, s.of("odd", "GET "+path).Granted, path)
	}
	trips := 0
	for _, tr := range s.guard.Snapshot().Transitions {
		if tr.To == "open" {
			trips++
		}
	}
	assert.Equal(t, 5, trips)
}
