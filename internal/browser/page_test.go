package browser

import (
	"fmt"

	"github.com/stretchr/testify/require"
)

// What the script of the page promises to its tests stands in a comment at its top. Only
// this file and the selectors of the tests depend on it.

// live waits until the page shows figures that keep coming.
func (tb *tab) live() {
	tb.Helper()
	tb.until(`document.querySelector('#connection').dataset.state === 'live'`)
	tb.updated(2)
}

// updated waits until the page has been drawn n more times.
func (tb *tab) updated(n int) {
	tb.Helper()
	tb.until(`Number(document.documentElement.dataset.updates) >= ` + fmt.Sprint(tb.updates()+n))
}

func (tb *tab) updates() int {
	tb.Helper()
	return eval[int](tb, `Number(document.documentElement.dataset.updates || 0)`)
}

// A row is what the table says of a compartment.
type row struct {
	ID, Policy, Side, Key, Name, State string
	Level                              int
	InUse                              int
	Granted, Rejected                  float64 // in a second
	Wait                               float64 // P99, -1: none
	Breaker                            string
	UseText, BreakerText, RejectedText string
}

// rowsNow is an expression for the rows of the table, in their order.
const rowsNow = `[...document.querySelectorAll('#rows > tr')].map((tr) => {
	const cell = (name) => tr.querySelector('td[data-cell="' + name + '"]');
	const number = (name) => Number(cell(name).dataset.value);
	return {
		ID: tr.dataset.id, Policy: tr.dataset.policy, Side: tr.dataset.side, Key: tr.dataset.key,
		Name: tr.querySelector('button.name').textContent, State: cell('state').textContent, Level: Number(tr.dataset.level),
		InUse: number('use'), Granted: number('granted'), Rejected: number('rejected'), Wait: number('wait'),
		Breaker: cell('breaker').dataset.value,
		UseText: cell('use').textContent, BreakerText: cell('breaker').innerText, RejectedText: cell('rejected').textContent,
	};
})`

func (tb *tab) rows() []row {
	tb.Helper()
	return eval[[]row](tb, rowsNow)
}

// said returns what rows say, a line each.
func said(rows []row) []string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%+v", r))
	}
	return lines
}

// row returns the row of a policy and key.
func (tb *tab) row(policy, key string) row {
	tb.Helper()
	for _, r := range tb.rows() {
		if r.Policy == policy && r.Key == key {
			return r
		}
	}
	require.FailNow(tb, "no such row: "+policy+" "+key)
	return row{}
}

// at returns the selector of a row.
func at(policy, key string) string {
	return `#rows > tr[data-policy=` + quote(policy) + `][data-key=` + quote(key) + `]`
}

// find is at, as an expression.
func find(policy, key string) string {
	return `[...document.querySelectorAll('#rows > tr')].find((tr) => tr.dataset.policy === ` + quote(policy) + ` && tr.dataset.key === ` + quote(key) + `)`
}

// said returns the text of an element; "" if it is hidden or not there.
func (tb *tab) said(selector string) string {
	tb.Helper()
	return eval[string](tb, `((e) => e && e.checkVisibility() ? e.innerText : '')(document.querySelector(`+quote(selector)+`))`)
}

// A card is what is said of a compartment that needs attention.
type card struct {
	ID       string
	Level    int
	Label    string
	Name     string
	Sentence string
	Hint     string
}

func (tb *tab) cards() []card {
	tb.Helper()
	return eval[[]card](tb, `[...document.querySelectorAll('#cards > li')].map((li) => ({
		ID: li.dataset.id, Level: Number(li.dataset.level), Label: li.querySelector('.badge').innerText, Name: li.querySelector('button.open').innerText,
		Sentence: li.querySelector('.sentence').innerText, Hint: li.querySelector('.hint').innerText,
	}))`)
}

// card returns the card of a compartment, by its name.
func (tb *tab) card(name string) card {
	tb.Helper()
	for _, c := range tb.cards() {
		if c.Name == name {
			return c
		}
	}
	require.FailNow(tb, "no such card: "+name, "%v", tb.cards())
	return card{}
}

// counts returns what the details say of counts, by their names.
func (tb *tab) counts() map[string]string {
	tb.Helper()
	return eval[map[string]string](tb, `Object.fromEntries([...document.querySelectorAll('#details dt')].map((dt) => [dt.textContent, dt.nextElementSibling.textContent]))`)
}

// watchRates has the page remember the least and the greatest rate that it ever shows from
// now on.
func (tb *tab) watchRates() {
	tb.Helper()
	eval[bool](tb, `(() => {
		window.seen = { least: 0, most: 0, odd: '' };
		new MutationObserver(() => {
			for (const td of document.querySelectorAll('#rows td[data-cell="granted"], #rows td[data-cell="rejected"]')) {
				const v = Number(td.dataset.value || 0);
				seen.least = Math.min(seen.least, v);
				seen.most = Math.max(seen.most, v);
			}
			const odd = document.body.innerText.match(/NaN|undefined|Infinity|null|-\d[\d.,]*\/s|\[object/);
			if (odd) seen.odd = odd[0];
		}).observe(document.documentElement, { attributes: true, attributeFilter: ['data-updates'] });
		return true;
	})()`)
}

type seen struct {
	Least, Most float64
	Odd         string
}

func (tb *tab) ratesSeen() seen {
	tb.Helper()
	return eval[seen](tb, `({ Least: seen.least, Most: seen.most, Odd: seen.odd })`)
}
