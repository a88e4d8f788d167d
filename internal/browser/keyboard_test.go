package browser

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// focused names what has the focus, in a way that tells it from all else on the page.
const focused = `((e) => {
	const within = e.closest('tr[data-id], li[data-id], th[data-col], #details');
	const where = within ? (within.id || within.dataset.id || within.dataset.col) + ' ' + within.tagName + ' ' : '';
	return where + e.tagName + ' ' + (e.id || e.textContent.trim().slice(0, 40));
})`

// With the Tab key alone one comes to everything that does something, in an order that
// ends, and sees where one is.
func TestTabReachesEverything(t *testing.T) {
	s := serve(t, policies)
	s.fill()
	s.trip()
	s.probe(false)
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	tb.until(`document.querySelectorAll('#cards > li').length === 2`)
	want := eval[[]string](tb, `[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter((e) => e.checkVisibility() && !e.disabled).map(`+focused+`)`)
	require.Greater(t, len(want), 18)

	var got []string
	for range len(want) + 5 {
		tb.press(keyTab)
		now := eval[string](tb, focused+`(document.activeElement)`)
		if strings.HasPrefix(now, "BODY") || slices.Contains(got, now) {
			break // once around
		}
		got = append(got, now)
		assert.True(t, eval[bool](tb, `((e) => {
			const s = getComputedStyle(e);
			const box = e.getBoundingClientRect();
			return (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== 'none') && box.width > 0 && box.height > 0;
		})(document.activeElement)`), "one should see that the focus is on %s", now)
	}
	for _, w := range want {
		assert.Contains(t, got, w)
	}
	assert.True(t, strings.Contains(got[0], "Skip"), "whoever does not want to go through all of it need not: %s", got[0])
}

// All that can be done with a mouse can be done with keys, and updates do not take the
// focus away from where it is.
func TestWorksByKeyboard(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()

	tb.press("/")
	tb.press(strings.Split("reports", "")...)
	tb.until(`document.querySelectorAll('#rows > tr').length === 1`)
	assert.Equal(t, "filter", eval[string](tb, `document.activeElement.id`))
	assert.Equal(t, "reports", eval[string](tb, `document.activeElement.value`), "the key that leads here is not typed")

	focus := func(selector string) {
		t.Helper()
		for range 200 {
			if eval[bool](tb, `document.activeElement.matches(`+quote(selector)+`)`) {
				return
			}
			tb.press(keyTab)
		}
		require.FailNow(t, "Tab does not lead to "+selector)
	}
	focus("#rows button.name")
	tb.press(keyEnter)
	tb.until(`document.querySelector('#details').checkVisibility() && document.querySelector('#details').contains(document.activeElement)`)
	assert.Contains(t, tb.said("#details"), reports)
	tb.updated(3)
	assert.True(t, eval[bool](tb, `document.querySelector('#details').contains(document.activeElement)`))
	tb.press(keyEscape)
	tb.until(`!document.querySelector('#details').checkVisibility()`)
	assert.True(t, eval[bool](tb, `document.activeElement.matches('#rows button.name')`), "back where one came from")

	focus("#pause")
	tb.press(keySpace)
	tb.until(`document.querySelector('#connection').dataset.state === 'paused'`)
	tb.press(keyEnter)
	tb.until(`document.querySelector('#connection').dataset.state === 'live'`)

	focus(`th[data-col="inflight"] button`)
	tb.press(keySpace)
	tb.until(`document.querySelector('th[data-col="inflight"]').ariaSort === 'descending'`)
	tb.press(keyEnter)
	tb.until(`document.querySelector('th[data-col="inflight"]').ariaSort === 'ascending'`)
	tb.updated(3)
	assert.True(t, eval[bool](tb, `document.activeElement.matches('th[data-col="inflight"] button')`))

	focus("#only-trouble")
	tb.press(keySpace)
	tb.until(`document.querySelector('#only-trouble').checked`)
}

// Whoever stands on a row stays there when others come, go and overtake.
func TestKeepsTheFocus(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	tb.click(`th[data-col="granted"] button`)
	eval[bool](tb, find("health", "")+`.querySelector('button.name').focus(), true`)
	here := eval[string](tb, focused+`(document.activeElement)`)
	require.Contains(t, here, "health")
	eval[bool](tb, `(() => { window.blurred = 0; document.activeElement.addEventListener('blur', () => blurred++); return true; })()`)

	s.get(50, "/healthz") // to the top, or it would be
	for _, name := range []string{"a", "b", "c"} {
		s.get(1, "/tenants", "X-Tenant", name)
		tb.until(find("tenants", name))
	}
	s.guard.Reload(parse(t, strings.Replace(policies, "  - name: odd", "  - name: even", 1)))
	tb.until(`!` + find("odd", "GET "+odd[0]))
	tb.updated(3)
	assert.Equal(t, here, eval[string](tb, focused+`(document.activeElement)`))
	assert.Zero(t, eval[int](tb, `blurred`))
}
