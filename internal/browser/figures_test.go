package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
)

// At rest, the page says what the snapshot says: all compartments that are in it, in the
// table and in the details, down to the last count.
func TestShowsTheFigures(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()

	snapshot := s.guard.Snapshot()
	assert.Len(t, tb.rows(), len(snapshot.Compartments))
	assert.Equal(t, fmt.Sprintf("%d compartments", len(snapshot.Compartments)), tb.said("#shown"))
	for _, c := range snapshot.Compartments {
		t.Run(short(c), func(t *testing.T) {
			tb := tb.in(t)
			r := tb.row(c.Policy, c.Key)
			assert.Equal(t, c.Side, r.Side)
			assert.Equal(t, c.Key, eval[string](tb, find(c.Policy, c.Key)+`.dataset.key`))
			eval[bool](tb, find(c.Policy, c.Key)+`.querySelector('button.name').click(), true`)
			require.Equal(t, r.ID, eval[string](tb, `document.querySelector('#details').dataset.id`))
			compare(t, c, r, tb.counts())
		})
	}
}

// compare compares a compartment with what the page says of it.
func compare(t *testing.T, c watertight.CompartmentSnapshot, r row, counts map[string]string) {
	t.Helper()
	var used, limit, queued int
	switch {
	case c.Bulkhead != nil:
		used, limit, queued = c.Bulkhead.InFlight, c.Bulkhead.Limit, c.Bulkhead.Queued
		assert.Equal(t, fmt.Sprint(c.Bulkhead.Peak), counts["most ever in flight"])
	case c.Pool != nil:
		used, limit, queued = c.Pool.Active, c.Pool.Max, c.Pool.Queued
		assert.Equal(t, fmt.Sprint(c.Pool.Workers), counts["workers"])
		assert.Equal(t, fmt.Sprint(c.Pool.Completed), counts["completed"])
	default:
		used = int(c.InFlight)
	}
	assert.Equal(t, used, r.InUse)
	if limit > 0 {
		assert.Contains(t, r.UseText, fmt.Sprintf("%d of %d", used, limit))
	}
	if queued > 0 {
		assert.Contains(t, r.UseText, fmt.Sprintf("%d waiting", queued))
	}
	figure := func(name string) string {
		n, _, _ := strings.Cut(counts[name], " ") // the rate follows
		return strings.ReplaceAll(n, ",", "")
	}
	assert.Equal(t, fmt.Sprint(c.Granted), figure("granted"))
	assert.Equal(t, fmt.Sprint(c.Rejected["full"]), figure("rejected: full"))
	assert.Equal(t, fmt.Sprint(c.Rejected["wait_timeout"]), figure("rejected: timed out waiting"))
	assert.Equal(t, fmt.Sprint(c.Rejected["open"]), figure("rejected: breaker open"))
	assert.Equal(t, fmt.Sprint(c.Rejected["draining"]), figure("rejected: shutting down"))
	assert.Equal(t, fmt.Sprint(c.Left), figure("left while waiting"))
	if c.Mode == "observe" {
		assert.Equal(t, fmt.Sprint(c.Observed["full"]), figure("would have been rejected: full"))
	}
	if c.Breaker == nil {
		assert.Empty(t, r.Breaker)
		return
	}
	assert.Equal(t, c.Breaker.State, r.Breaker)
	if c.Breaker.FailureRate >= 0 {
		assert.Contains(t, r.BreakerText, fmt.Sprintf("%.0f %%", c.Breaker.FailureRate))
	}
}

// What calls do is on the page without anybody's doing.
func TestUpdates(t *testing.T) {
	s := serve(t, policies)
	tb := open(t, show(t, s.guard).home, desk)
	tb.until(`document.querySelector('#connection').dataset.state === 'live'`)
	tb.until(`document.querySelector('#headline').textContent === 'All is well'`)
	require.Len(t, tb.rows(), 1, "the pool")

	s.get(1, "/tenants", "X-Tenant", "first")
	tb.until(find("tenants", "first"))

	s.fill()
	full := find("reports", reports)
	tb.until(full + `?.querySelector('[data-cell="use"]').textContent.includes('8 of 8')`)
	tb.until(full + `.querySelector('[data-cell="use"]').textContent.includes('6 waiting')`)
	tb.until(full + `.dataset.level >= 2`)

	// Rates come with calls, by reason, and go with them.
	s.get(5, "/reports/4")
	tb.until(`Number(` + full + `.querySelector('[data-cell="rejected"]').dataset.value) > 0`)
	assert.Contains(t, tb.row("reports", reports).RejectedText, "full")
	assert.Contains(t, tb.said("#headline"), "refused")
	tb.until(`Number(` + full + `.querySelector('[data-cell="rejected"]').dataset.value) === 0`)

	s.gates["reports"].open()
	tb.until(full + `.querySelector('[data-cell="use"]').textContent.includes('0 of 8')`)
	tb.until(`Number(` + full + `.querySelector('[data-cell="wait"]').dataset.value) > 0`)
	tb.until(`document.querySelector('#headline').textContent === 'All is well'`)
	assert.EqualValues(t, 14, s.of("reports", reports).Granted)

	s.trip()
	tb.until(find("payments", payments) + `?.querySelector('[data-cell="breaker"]').dataset.value === 'open'`)
	tb.until(`document.title.startsWith('(1)')`)
}

const payments = "http://payments.internal:80"
