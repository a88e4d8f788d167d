package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever opens the page in the middle of an incident reads on it, above everything else,
// what is wrong, since when, why, and where to look.
func TestNamesTheCause(t *testing.T) {
	s := serve(t, policies)
	s.get(3, "/healthz")
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	assert.Equal(t, "All is well", tb.said("#headline"))
	assert.Empty(t, tb.said("#trouble"))
	assert.Equal(t, "watertight", eval[string](tb, `document.title`))

	began := time.Now().Truncate(time.Second)
	s.trip()
	tb.until(`document.querySelectorAll('#cards > li').length === 1`)
	assert.Contains(t, tb.said("#headline"), "1 breaker open")
	c := tb.card(payments)
	assert.Equal(t, "Open", c.Label)
	assert.Contains(t, c.Sentence, "60 % of 10 calls failed")
	assert.Contains(t, c.Sentence, "40 %", "the threshold")
	assert.Contains(t, c.Sentence, "10 min", "time left open")
	assert.Contains(t, c.Hint, payments, "where to look")
	// Since when, by the clock on the wall.
	last := s.of("payments", payments).Breaker.Last.Time
	assert.Contains(t, c.Sentence, last.Local().Format("15:04:05"))
	assert.False(t, last.Before(began))

	s.fill()
	tb.until(`[...document.querySelectorAll('#cards > li')].some((e) => e.innerText.includes('reports') && /6 waiting[^]*since \d/.test(e.innerText))`)
	c = tb.card(reports)
	assert.Equal(t, "Full", c.Label)
	assert.Contains(t, c.Sentence, "8 of 8")
	assert.Contains(t, c.Sentence, "6 waiting")
	assert.Regexp(t, `since \d\d:\d\d:\d\d`, c.Sentence)
	assert.Contains(t, c.Hint, "maxConcurrent", "what to do")

	s.do(4, "search", slowly)
	tb.until(`[...document.querySelectorAll('#cards .open')].some((e) => e.innerText === 'search')`)
	assert.Contains(t, tb.card("search").Sentence, "100 % of 4 calls took longer than 1 ms")
	assert.Contains(t, tb.said("#headline"), "2 breakers open")

	s.probe(true)
	tb.until(`[...document.querySelectorAll('#cards > li')].some((e) => e.innerText.includes('orders-db') && e.innerText.includes('of 2 probes'))`)
	assert.Contains(t, tb.card("orders-db").Sentence, "1 of 2 probes")

	// The worst comes first.
	cards := tb.cards()
	for i := 1; i < len(cards); i++ {
		assert.GreaterOrEqual(t, cards[i-1].Level, cards[i].Level)
	}
	assert.True(t, strings.HasPrefix(eval[string](tb, `document.title`), fmt.Sprintf("(%d)", len(cards))))

	// Somebody who listens heard of it, without the figures that change all the time.
	tb.until(`document.querySelector('#announcer').textContent.includes('breakers open')`)
	assert.NotContains(t, eval[string](tb, `document.querySelector('#announcer').textContent`), "/s")

	// A card leads to the rest.
	tb.click("#cards > li button.open")
	tb.until(`document.querySelector('#details').checkVisibility()`)
	assert.Equal(t, cards[0].ID, eval[string](tb, `document.querySelector('#details').dataset.id`))
}

// An upstream that hangs has not failed any call yet, and is found all the same.
func TestNamesAnUpstreamThatHangs(t *testing.T) {
	s := serve(t, `
version: 1
policies:
  - name: orders-db
    side: client
    match: [{method: [DO]}]
    bulkhead: {maxConcurrent: 10}
    breaker: {slowCall: 50ms, minCalls: 3, openFor: 10m}
`)
	s.later(3, func() { s.do(1, "orders-db", func() error { <-s.gates["orders-db"].opened; return nil }) })
	tb := open(t, show(t, s.guard).home, desk)
	tb.until(`[...document.querySelectorAll('#cards .open')].some((e) => e.innerText === 'orders-db')`)
	tb.until(`document.querySelector('#cards .badge').innerText === 'Open'`)
	assert.Contains(t, tb.card("orders-db").Sentence, "3 calls in flight had no answer after 50 ms")
}

// A policy that only observes turns nobody away, and is no trouble.
func TestObservingIsNoTrouble(t *testing.T) {
	s := serve(t, policies)
	s.hold(3, "/trial")
	s.settle("trial", "GET /trial", func(c compartment) bool { return c.Observed["full"] == 2 })
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	assert.Less(t, tb.row("trial", "GET /trial").Level, 2)
	assert.Equal(t, "All is well", tb.said("#headline"))
	assert.Empty(t, tb.cards())
}

// Each trip is on the timeline, and in a list that says why.
func TestShowsTheTrips(t *testing.T) {
	s := serve(t, policies)
	for range 3 {
		s.probe(false)
	}
	s.trip()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	transitions := s.guard.Snapshot().Transitions
	periods := 0 // open or half-open
	for _, tr := range transitions {
		if tr.To != "closed" {
			periods++
		}
	}
	require.Equal(t, 7, periods)
	tb.until(fmt.Sprintf(`document.querySelectorAll('#timeline rect.span').length === %d`, periods))
	assert.Equal(t, "img", eval[string](tb, `document.querySelector('#timeline').getAttribute('role')`))
	tb.click("#transitions summary")
	tb.until(fmt.Sprintf(`document.querySelectorAll('#transition-list > li').length === %d`, len(transitions)))
	list := eval[[]string](tb, `[...document.querySelectorAll('#transition-list > li')].map((li) => li.innerText)`)
	for i, tr := range transitions {
		said := list[len(list)-1-i] // the latest first
		assert.Contains(t, said, tr.Time.Local().Format("15:04:05"))
		if tr.Key != "" {
			assert.Contains(t, said, tr.Key)
		} else {
			assert.Contains(t, said, tr.Policy)
		}
		if tr.Cause == "failure_rate" {
			assert.Contains(t, said, fmt.Sprintf("%.0f %% of %d calls failed", tr.FailureRate, tr.Calls))
		}
	}
	// One more, while the list is open.
	s.get(8, "/checkout?status=200")
	s.get(10, "/checkout?status=503")
	tb.until(`document.querySelector('#transition-list > li').innerText.includes('GET /checkout')`)
}

// A policy file that is not in force is told of until one is, with its own words; limits
// that a reload has changed, and policies that it took away, show at once.
func TestTellsOfReloads(t *testing.T) {
	s := serve(t, policies)
	s.fill()
	s.get(1, "/trial")
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	version := s.guard.Policies().Version()
	tb.until(`document.querySelector('#policies').innerText.includes(` + quote(version[:8]) + `)`)

	s.guard.ReloadFailed(fmt.Errorf("watertight.yaml:12:5: unknown key %q; did you mean %q?", "maxConcurent", "maxConcurrent"))
	tb.until(`document.querySelector('#notices [data-notice="policy-error"]')?.checkVisibility()`)
	assert.Contains(t, tb.said(`#notices [data-notice="policy-error"]`), `watertight.yaml:12:5: unknown key "maxConcurent"; did you mean "maxConcurrent"?`)
	assert.Contains(t, tb.said(`#notices [data-notice="policy-error"]`), "not in force")

	less := strings.Replace(policies, "maxConcurrent: 8", "maxConcurrent: 5", 1)
	less = strings.Replace(less, "name: trial", "name: probation", 1)
	s.guard.Reload(parse(t, less))
	tb.until(`!document.querySelector('#notices [data-notice="policy-error"]')?.checkVisibility()`)
	tb.until(find("reports", reports) + `.querySelector('[data-cell="use"]').textContent.includes('8 of 5')`)
	tb.until(`!` + find("trial", "GET /trial"))
	assert.Contains(t, tb.card(reports).Sentence, "8 of 5")
	tb.until(`document.querySelector('#policies').innerText.includes(` + quote(s.guard.Policies().Version()[:8]) + `)`)
	require.NotEqual(t, version, s.guard.Policies().Version())
	assert.Contains(t, tb.said("#policies"), "1 reload")
	assert.Contains(t, tb.said("#policies"), "1 failed")
	assert.Equal(t, http.StatusOK, s.get(1, "/trial"))
	tb.until(find("probation", "GET /trial"))
}
