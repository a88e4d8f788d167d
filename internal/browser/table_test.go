package browser

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each column sorts, the most first, and the other way round when it is asked again; the
// name from A. Whoever cannot see it hears it.
func TestSorts(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	s.stream("/checkout", "/reports/5", "/trial", "/healthz") // refused, refused, granted, granted
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	tb.until(`Number(` + find("health", "") + `.querySelector('[data-cell="granted"]').dataset.value) > 0`)
	tb.until(`Number(` + find("reports", reports) + `.querySelector('[data-cell="rejected"]').dataset.value) > 0`)

	full := make(map[string]float64) // by ID: how much of it is taken
	for _, c := range s.guard.Snapshot().Compartments {
		r := tb.row(c.Policy, c.Key)
		full[r.ID] = -1
		if c.Bulkhead != nil {
			full[r.ID] = float64(c.Bulkhead.InFlight+c.Bulkhead.Queued) / float64(c.Bulkhead.Limit)
		}
		if c.Pool != nil {
			full[r.ID] = float64(c.Pool.Active+c.Pool.Queued) / float64(c.Pool.Max)
		}
	}
	states := []string{"", "closed", "half_open", "forced_open", "open"}
	columns := []struct {
		name   string
		before func(a, b row) int
	}{
		{"name", func(a, b row) int { return slices.Compare(utf16.Encode([]rune(a.Name)), utf16.Encode([]rune(b.Name))) }},
		{"trouble", func(a, b row) int { return b.Level - a.Level }},
		{"use", func(a, b row) int { return cmp.Compare(full[b.ID], full[a.ID]) }},
		{"granted", func(a, b row) int { return cmp.Compare(b.Granted, a.Granted) }},
		{"rejected", func(a, b row) int { return cmp.Compare(b.Rejected, a.Rejected) }},
		{"wait", func(a, b row) int { return cmp.Compare(b.Wait, a.Wait) }},
		{"breaker", func(a, b row) int { return slices.Index(states, b.Breaker) - slices.Index(states, a.Breaker) }},
		{"inflight", func(a, b row) int { return b.InUse - a.InUse }},
	}
	assert.Equal(t, len(columns), eval[int](tb, `document.querySelectorAll('th[data-col]').length`), "all columns sort")
	for _, col := range columns {
		t.Run(col.name, func(t *testing.T) {
			tb := tb.in(t)
			for _, reversed := range []bool{false, true} {
				button := fmt.Sprintf("th[data-col=%q] button", col.name)
				// At once, since figures go on changing, and rows do not jump with each.
				rows := eval[[]row](tb, `(document.querySelector(`+quote(button)+`).click(), `+rowsNow+`)`)
				sorted := slices.IsSortedFunc(rows, func(a, b row) int {
					if reversed {
						a, b = b, a
					}
					return col.before(a, b)
				})
				assert.True(t, sorted, "%s, reversed: %t: %v", col.name, reversed, rows)
				want := "descending"
				if (col.name == "name") != reversed {
					want = "ascending"
				}
				assert.Equal(t, []string{col.name + " " + want}, eval[[]string](tb,
					`[...document.querySelectorAll('th[aria-sort]')].filter((th) => th.ariaSort !== 'none').map((th) => th.dataset.col + ' ' + th.ariaSort)`))
				differ := slices.ContainsFunc(rows, func(r row) bool { return col.before(r, rows[0]) != 0 })
				assert.True(t, differ || col.name == "wait", "there should be something to sort")
			}
		})
	}
	tb.click(`th[data-col="name"] button`)
	tb.updated(2)
	tb.load(tb.home + eval[string](tb, `location.hash`))
	tb.do(reload())
	tb.live()
	assert.Equal(t, "ascending", eval[string](tb, `document.querySelector('th[data-col="name"]').ariaSort`), "the URL keeps it")
}

// The filter finds what somebody on call would type, and says how much it found.
func TestFilters(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	all := s.guard.Snapshot().Compartments
	count := func(keep func(r row) bool) int {
		n := 0
		for _, r := range tb.rows() {
			if keep(r) {
				n++
			}
		}
		return n
	}
	servers := count(func(r row) bool { return r.Side == "server" })
	troubled := count(func(r row) bool { return r.Level >= 2 })
	require.NotZero(t, troubled)

	filter := func(text string) {
		t.Helper()
		tb.click("#filter")
		eval[bool](tb, `document.querySelector('#filter').select(), true`)
		tb.press(strings.Split(text, "")...)
	}
	for _, tt := range []struct {
		text string
		want []string // names
	}{
		{"payments", []string{payments}},
		{"PAYMENTS client", []string{payments}},
		{"half-open", []string{"orders-db"}},
		{"<img", []string{hostile[0]}},
		{"onerror server tenants", []string{hostile[0]}},
		{"nothing like it", nil},
	} {
		t.Run(tt.text, func(t *testing.T) {
			tb := tb.in(t)
			filter(tt.text)
			tb.until(fmt.Sprintf(`document.querySelectorAll('#rows > tr').length === %d`, len(tt.want)))
			var names []string
			for _, r := range tb.rows() {
				names = append(names, r.Name)
			}
			assert.Equal(t, tt.want, names)
			assert.Contains(t, tb.said("#shown"), fmt.Sprintf("%d of %d", len(tt.want), len(all)))
			assert.Equal(t, len(tt.want) == 0, tb.said("#empty") != "")
		})
	}
	filter("payments")
	tb.updated(3)
	assert.Len(t, tb.rows(), 1, "updates do not undo it")
	tb.press(keyEscape)
	eval[bool](tb, `((e) => { e.value = ''; e.dispatchEvent(new Event('input')); return true; })(document.querySelector('#filter'))`)
	tb.until(fmt.Sprintf(`document.querySelectorAll('#rows > tr').length === %d`, len(all)))

	tb.click("#only-trouble")
	tb.until(fmt.Sprintf(`document.querySelectorAll('#rows > tr').length === %d`, troubled))
	tb.click("#only-trouble")
	eval[bool](tb, `((e) => { e.value = 'server'; e.dispatchEvent(new Event('change')); return true; })(document.querySelector('#side'))`)
	tb.until(fmt.Sprintf(`document.querySelectorAll('#rows > tr').length === %d`, servers))
	tb.do(reload())
	tb.live()
	assert.Len(t, tb.rows(), servers, "the URL keeps it")
}

// A paused page holds still, whatever is done with it, and goes on with the newest.
func TestPauses(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	// Until nothing moves any more, so that what changes does so by the calls below.
	tb.until(`!/\d\/s refused/.test(document.querySelector('#headline').textContent)`)
	tb.click("#pause")
	tb.until(`document.querySelector('#connection').dataset.state === 'paused'`)
	assert.Equal(t, "true", eval[string](tb, `document.querySelector('#pause').ariaPressed`))
	before := said(tb.rows())

	s.get(20, "/healthz")
	s.gates["reports"].open()
	s.settle("reports", reports, func(c compartment) bool { return c.InFlight == 0 })
	arrived := tb.received()
	tb.wait("events while the page is paused", func() bool { return tb.received() >= arrived+3 })
	assert.Equal(t, before, said(tb.rows()))

	// Somebody who holds the picture still wants to look at it from all sides.
	tb.click(`th[data-col="name"] button`)
	tb.until(`document.querySelector('th[data-col="name"]').ariaSort === 'ascending'`)
	assert.ElementsMatch(t, before, said(tb.rows()))
	tb.click(at("reports", reports) + " button.name")
	tb.until(`document.querySelector('#details').checkVisibility()`)
	assert.Equal(t, "8", tb.counts()["in flight"])
	assert.ElementsMatch(t, before, said(tb.rows()))

	tb.click("#pause")
	tb.until(`document.querySelector('#connection').dataset.state === 'live'`)
	tb.until(find("reports", reports) + `.querySelector('[data-cell="use"]').dataset.value === '0'`)
}

// The link in the details leads to the same compartment tomorrow, whatever its name.
func TestLinksToACompartment(t *testing.T) {
	s := serve(t, policies)
	s.storm()
	tb := open(t, show(t, s.guard).home, desk)
	tb.live()
	for _, c := range s.guard.Snapshot().Compartments {
		t.Run(short(c), func(t *testing.T) {
			tb := tb.in(t)
			eval[bool](tb, find(c.Policy, c.Key)+`.querySelector('button.name').click(), true`)
			id := tb.row(c.Policy, c.Key).ID
			link := eval[string](tb, `document.querySelector('#details [data-field="link"] a').href`)
			require.True(t, strings.HasPrefix(link, tb.home+"#"), link)
			eval[bool](tb, `document.querySelector('#details .close').click(), true`)
			tb.until(`!document.querySelector('#details').checkVisibility()`)
			eval[bool](tb, `location.href = `+quote(link)+`, true`)
			tb.until(`document.querySelector('#details').checkVisibility() && document.querySelector('#details').dataset.id === ` + quote(id))
			assert.Equal(t, fmt.Sprint(c.Granted), strings.Fields(strings.ReplaceAll(tb.counts()["granted"], ",", ""))[0])
		})
	}
	// And in a page that is opened by it.
	id := tb.row("tenants", hostile[0]).ID
	eval[bool](tb, find("tenants", hostile[0])+`.querySelector('button.name').click(), true`)
	tb.do(reload())
	tb.live()
	assert.Equal(t, id, eval[string](tb, `document.querySelector('#details').dataset.id`))
	assert.Contains(t, tb.said("#details"), hostile[0])

	// One that is not there says so.
	tb.load(tb.home + "#c=server%2Ftenants%2Fheader%2Fnobody")
	tb.do(reload())
	tb.live()
	assert.Contains(t, tb.said("#details"), "nobody")
	assert.Contains(t, tb.said("#details"), "not there")
}
