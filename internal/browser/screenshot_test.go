package browser

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/dashboard"
)

var update = flag.Bool("update", false, "take the picture for the README anew, into docs/live-page.png")

// largest is how large the picture for the README may be.
const largest = 300 << 10

// The page in an incident, as an artifact, and with -update as the picture in the README: a
// full bulkhead with a queue, breakers that are open and have been, and what was before.
func TestScreenshot(t *testing.T) {
	s := serve(t, `
version: 1
policies:
  - name: health
    match: [{path: /healthz}]
    exempt: true
  - name: reports
    side: server
    match: [{path: "/reports/{id}"}]
    bulkhead: {maxConcurrent: 8, maxQueue: 6, maxWait: 20s}
  - name: tenants
    side: server
    match: [{path: /tenants}]
    per: header:X-Tenant
    bulkhead: {maxConcurrent: 4}
  - name: payments
    side: client
    match: [{host: payments.internal}]
    bulkhead: {maxConcurrent: 20, maxWait: 100ms}
    breaker: {failureRate: 40, window: {calls: 20}, minCalls: 10, openFor: 30s}
  - name: orders-db
    side: client
    match: [{method: [DO]}]
    bulkhead: {maxConcurrent: 4}
    breaker: {failureRate: 50, window: {calls: 4}, minCalls: 4, openFor: 400ms, halfOpen: {calls: 2}}
`)
	v := view{width: 1280, height: 1000, still: true}
	tb := open(t, show(t, s.guard, dashboard.WithInterval(often)).home, v)
	tb.live()

	// All is well for a while.
	for i := range 20 {
		s.get(1+i%3, "/healthz")
		for _, name := range []string{"acme", "globex", "initech"} {
			s.get(1, "/tenants", "X-Tenant", name)
		}
		s.hold(i%3, "/reports/1")
		s.get(2, "/tenants", "X-Tenant", "acme")
		s.pay(2, "")
		tb.updated(1)
		s.gates["reports"].open()
		s.held.Wait()
		s.gates["reports"] = newGate()
	}
	// A database that comes and goes,
	for range 3 {
		s.probe(false)
		tb.updated(6)
	}
	// a report that hangs,
	for range 4 {
		s.hold(2, "/reports/1")
		tb.updated(2)
	}
	s.settle("reports", reports, func(c compartment) bool { return c.Bulkhead.InFlight == 8 })
	for range 3 {
		s.hold(2, "/reports/2")
		tb.updated(3)
	}
	// and a payment provider that fails.
	s.pay(9, "?status=502")
	for i := range 12 {
		s.get(3, "/reports/3")
		s.pay(2, "")
		s.get(1+i%3, "/healthz")
		s.get(2, "/tenants", "X-Tenant", "acme")
		tb.updated(1)
	}
	tb.until(`document.querySelectorAll('#cards > li').length >= 2`)
	assert.Equal(t, "open", s.of("payments", payments).Breaker.State)

	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), "live-page.png"), png, 0o600))
	assert.Less(t, len(png), largest)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, "docs", "live-page.png"), png, 0o644))
		t.Logf("docs/live-page.png, %d KiB", len(png)>>10)
	}
}
