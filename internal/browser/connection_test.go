package browser

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const lost = `document.querySelector('#connection').dataset.state === 'lost'`
const live = `document.querySelector('#connection').dataset.state === 'live'`

// When the program goes away the page says so, and for how long; when another takes its
// place, the page begins anew with its counts, and shows no rate that there never was.
func TestSurvivesAReconnect(t *testing.T) {
	before := serve(t, policies)
	before.get(500, "/healthz")
	before.fill()
	st := show(t, before.guard)
	tb := open(t, st.home, desk)
	tb.live()
	tb.watchRates()

	st.cut()
	tb.until(lost)
	tb.until(`document.querySelector('#connection').innerText.includes('Connection lost')`)
	assert.Contains(t, tb.said(`#notices [data-notice="lost"]`), "old")
	assert.Equal(t, 8, tb.row("reports", reports).InUse, "what was last seen stays")

	// The same program: it was the network.
	before.get(5, "/healthz")
	st.mend()
	tb.until(live)
	tb.until(`!document.querySelector('#notices [data-notice="lost"]')?.checkVisibility()`)

	// Another, which has counted less.
	after := serve(t, policies)
	after.get(3, "/healthz")
	st.cut()
	tb.until(lost)
	st.of(after.guard)
	st.mend()
	tb.until(live)
	tb.until(`!` + find("reports", reports))
	tb.updated(3)

	// And another, which has counted more, before the page saw it.
	last := serve(t, policies)
	last.get(700, "/healthz")
	st.cut()
	tb.until(lost)
	st.of(last.guard)
	st.mend()
	tb.until(live)
	tb.updated(3)

	seen := tb.ratesSeen()
	assert.Zero(t, seen.Least)
	// Those that there were: 500 calls went before, 5 while it was lost, for a moment at least.
	assert.LessOrEqual(t, seen.Most, 5/often.Seconds())
	assert.Empty(t, seen.Odd)
	assert.Equal(t, float64(0), tb.row("health", "").Granted)
	tb.forgive("ERR_")
	tb.forgive("network error: Failed to load resource")
}

// While the program is being shut down the page says that it is, and then that it was.
func TestTellsOfTheEnd(t *testing.T) {
	s := serve(t, policies)
	s.hold(1, "/reports/1")
	s.settle("reports", reports, func(c compartment) bool { return c.InFlight == 1 })
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	drained := make(chan error, 1)
	go func() { drained <- s.guard.Drain(t.Context()) }()
	tb.until(`document.querySelector('#notices [data-notice="draining"]')?.checkVisibility()`)
	s.gates["reports"].open()
	assert.NoError(t, <-drained)
	s.guard.Close()
	tb.until(`document.querySelector('#connection').innerText.includes('closed')`)
	assert.NotEmpty(t, tb.said(`#notices [data-notice="closed"]`))
}

// The page is where it is mounted, with the slash at the end or without.
func TestWorksWhereverItIsMounted(t *testing.T) {
	s := serve(t, policies)
	s.trip()
	for _, m := range mounts(t, s.guard) {
		for _, url := range m.urls {
			t.Run(m.name+" "+url[len(m.base):], func(t *testing.T) {
				tb := blank(t, m.base, desk)
				tb.load(url)
				tb.live()
				assert.Equal(t, "open", tb.row("payments", payments).Breaker)
			})
		}
	}
}
