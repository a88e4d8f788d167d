package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// On every screen, in both colour schemes, all that there is fits in the width of the
// page, and can be told from the ground it stands on. The pictures are artifacts.
func TestFitsEveryScreen(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	s.guard.ReloadFailed(fmt.Errorf("watertight.yaml:3:7: %s", strings.Repeat("unbreakable", 30)))
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	for _, v := range []view{
		{width: 320, height: 568, still: true}, phone, phoneDark, {width: 844, height: 390, still: true},
		{width: 640, height: 900, still: true}, {width: 1024, height: 768, still: true}, desk, deskDark, {width: 1920, height: 1080, still: true},
	} {
		name := fmt.Sprintf("%d", v.width)
		if v.dark {
			name += "-dark"
		}
		t.Run(name, func(t *testing.T) {
			tb := tb.in(t)
			tb.see(v)
			tb.updated(2)
			for _, details := range []bool{false, true} {
				if details {
					eval[bool](tb, find("odd", "GET "+odd[2])+`.querySelector('button.name').click(), true`)
					tb.until(`document.querySelector('#details').checkVisibility()`)
				}
				tb.updated(1)
				wide := eval[[]string](tb, `[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
					.map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30)).slice(0, 3)`)
				assert.LessOrEqual(t, eval[int](tb, `document.documentElement.scrollWidth`), int(v.width), "details: %t: %s", details, wide)
			}
			tb.click("#details .close")
			// The longest word for a state is not cut off.
			assert.True(t, eval[bool](tb, `((badge) => {
				const longest = badge.parentElement.appendChild(badge.cloneNode(true));
				longest.lastChild.textContent = 'Forced open';
				badge.hidden = true;
				const fits = longest.getBoundingClientRect().right <= badge.parentElement.getBoundingClientRect().right;
				badge.hidden = false;
				longest.remove();
				return fits;
			})(document.querySelector('#rows td.state .badge'))`))
			tb.keep(name + ".png")
			ground := eval[float64](tb, brightness)
			if v.dark {
				assert.Less(t, ground, 60.0)
			} else {
				assert.Greater(t, ground, 200.0)
			}
		})
	}
}

// brightness of the ground, of 255.
const brightness = `((c) => Math.max(...c.match(/\d+/g).slice(0, 3)))(getComputedStyle(document.documentElement).backgroundColor)`

// What moves stands still for those who asked for that.
func TestKeepsStill(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	v := desk
	v.still = false
	tb := open(t, show(t, s.guard).home, v)
	tb.live()
	moves := `[...document.querySelectorAll('.hull i')].some((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0)`
	assert.True(t, eval[bool](tb, moves), "permits are seen filling")
	tb.see(desk)
	assert.False(t, eval[bool](tb, moves))
	s.gates["reports"].open()
	tb.until(find("reports", reports) + `.querySelector('[data-cell="use"]').dataset.value === '0'`)
	assert.Zero(t, eval[int](tb, `document.getAnimations().length`))
}

// A permit that is taken is drawn as taken.
func TestDrawsTheFilling(t *testing.T) {
	s := serve(t, policies)
	s.hold(2, "/reports/1")
	s.settle("reports", reports, func(c compartment) bool { return c.InFlight == 2 })
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	filled := `((i) => i.getBoundingClientRect().width / i.parentElement.getBoundingClientRect().width)(` + find("reports", reports) + `.querySelector('.hull .tank i'))`
	assert.InDelta(t, 0.25, eval[float64](tb, filled), 0.01)
	s.hold(6, "/reports/1")
	tb.until(filled + ` > 0.99`)

	// And the line beside it has something on it, within its canvas.
	tb.until(`((c) => c.width > 50 && new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer).some((p) => p !== 0))(` + find("reports", reports) + `.querySelector('canvas'))`)
}

// Names that others have chosen are text, and no more.
func TestHostileNamesAreText(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	s.guard.ReloadFailed(fmt.Errorf("watertight.yaml:3:7: unknown key %q", hostile[0]))
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	own := eval[int](tb, `document.scripts.length`)
	for _, name := range hostile {
		assert.Equal(t, name, tb.row("tenants", name).Name)
		eval[bool](tb, find("tenants", name)+`.querySelector('button.name').click(), true`)
		assert.Equal(t, name, eval[string](tb, `document.querySelector('#details-name').textContent`))
	}
	tb.updated(2)
	assert.Contains(t, tb.said(`#notices [data-notice="policy-error"]`), hostile[0])
	assert.Equal(t, own, eval[int](tb, `document.scripts.length`))
	assert.Zero(t, eval[int](tb, `document.images.length + document.querySelectorAll('[onerror], iframe, b.evil').length`))

	// One that is written from right to left cannot turn what stands beside it around.
	for _, path := range odd[:2] {
		eval[bool](tb, find("odd", "GET "+path)+`.querySelector('button.name').click(), true`)
		for _, where := range []string{`document.querySelector('#details-name')`, find("odd", "GET "+path) + `.querySelector('button.name')`} {
			assert.NotContains(t, eval[string](tb, where+`.innerText`), "\u202E", where)
			assert.Contains(t, []string{"isolate", "plaintext", "isolate-override"}, eval[string](tb, `getComputedStyle(`+where+`).unicodeBidi`), where)
		}
	}
}

// A violation is what axe-core has found.
type violation struct {
	ID, Impact, Help string
	Where            []string
}

// Nothing keeps people from using the page that axe-core knows of.
func TestAccessible(t *testing.T) {
	axe := axeSource(t)
	s := serve(t, policies)
	s.storm()
	st := show(t, s.guard)
	tb := open(t, st.home, desk)
	tb.live()
	eval[bool](tb, axe+"\n;true")
	check := func(name string) {
		t.Run(name, func(t *testing.T) {
			tb := tb.in(t)
			found := eval[[]violation](tb, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => ({
				ID: v.id, Impact: v.impact, Help: v.help, Where: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary),
			})))`)
			for _, v := range found {
				t.Errorf("%s (%s): %s\n%s", v.ID, v.Impact, v.Help, strings.Join(v.Where, "\n"))
			}
		})
	}
	for _, v := range []struct {
		name string
		view view
	}{{"light", desk}, {"dark", deskDark}, {"phone", phone}, {"phone, dark", phoneDark}} {
		tb.see(v.view)
		tb.updated(2)
		check(v.name)
		eval[bool](tb, find("payments", payments)+`.querySelector('button.name').click(), true`)
		tb.updated(1)
		check(v.name + ", details of a breaker")
		eval[bool](tb, find("reports", reports)+`.querySelector('button.name').click(), true`)
		tb.updated(1)
		check(v.name + ", details of a bulkhead")
		tb.click("#details .close")
	}
	tb.see(desk)
	tb.click("#transitions summary")
	tb.until(`document.querySelectorAll('#transition-list > li').length > 0`)
	check("transitions")
	s.guard.ReloadFailed(errDown)
	tb.until(`document.querySelector('#notices [data-notice="policy-error"]')`)
	check("bad policies")
	tb.click("#pause")
	check("paused")
	tb.click("#pause")
	st.cut()
	tb.until(lost)
	check("lost")
	tb.forgive("ERR_")
	tb.forgive("network error: Failed to load resource")
}

// axe-core that finds nothing where there is something would find nothing on the page.
func TestAxeFinds(t *testing.T) {
	axe := axeSource(t)
	tb := blank(t, "about:", desk)
	eval[bool](tb, `(document.body.innerHTML = '<img src="data:,"><button></button>', true)`)
	eval[bool](tb, axe+"\n;true")
	found := eval[[]string](tb, `axe.run(document).then((r) => r.violations.map((v) => v.id))`)
	require.Contains(t, found, "image-alt")
	require.Contains(t, found, "button-name")
}
