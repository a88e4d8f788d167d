package browser

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// logic evaluates a body in which l is the arithmetic and the wording of the page, without
// any page.
func logic[T any](tb *tab, body string) T {
	tb.Helper()
	return eval[T](tb, `import(new URL('logic.js', location.href)).then((l) => { `+body+` })`)
}

func openLogic(t *testing.T) *tab {
	t.Helper()
	s := serve(t, "version: 1\npolicies: []\n")
	return open(t, show(t, s.guard).home, desk)
}

// model has a Model of the script take documents of a compartment, by the second at which
// each was taken, and tells what is shown after the last.
const model = `
	const model = new l.Model();
	const doc = ([at, c, instance]) => ({
		version: 1, instance: instance || 'one', time: new Date(1.7e12 + at * 1000).toISOString(), intervalMs: 1000, transitions: [],
		compartments: c === null ? [] : [{ id: 'x', policy: 'p', side: 'server', per: 'policy', key: '', granted: 0, rejected: {}, left: 0, leaked: 0, inFlight: 0, ...c }],
	});
	for (const step of steps) model.take(doc(step));
`

func TestRates(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct {
		name  string
		steps string // [second, compartment, instance]
		want  string // granted and rejected in a second, or null
	}{
		{"one sample says nothing", `[[0, {granted: 100}]]`, `null`},
		{"two", `[[0, {granted: 100}], [1, {granted: 110, rejected: {full: 5}}]]`, `[10, 5]`},
		{"two, two seconds apart", `[[0, {granted: 100}], [2, {granted: 110}]]`, `[5, 0]`},
		{"nothing happens", `[[0, {granted: 100}], [1, {granted: 100}]]`, `[0, 0]`},
		{"all reasons", `[[0, {}], [1, {rejected: {full: 1, wait_timeout: 2, open: 3, draining: 4}}]]`, `[0, 10]`},
		{"over the last seconds, not all", `[[0, {granted: 0}], [1, {granted: 1000}], [2, {granted: 1000}], [7, {granted: 1000}], [8, {granted: 1000}]]`, `[0, 0]`},
		{"the same sample again", `[[0, {granted: 100}], [1, {granted: 110}], [1, {granted: 110}]]`, `[10, 0]`},
		{"only the same sample again", `[[1, {granted: 110}], [1, {granted: 110}]]`, `null`},
		{"no time between two that differ", `[[1, {granted: 110}], [1, {granted: 120}]]`, `null`},
		{"the clock goes back", `[[5, {granted: 100}], [1, {granted: 110}]]`, `null`},
		{"and on", `[[5, {granted: 100}], [1, {granted: 110}], [2, {granted: 112}]]`, `[2, 0]`},
		{"counts begin anew", `[[0, {granted: 100}], [1, {granted: 3}]]`, `null`},
		{"and go on", `[[0, {granted: 100}], [1, {granted: 3}], [2, {granted: 5}]]`, `[2, 0]`},
		{"only one count begins anew", `[[0, {granted: 100, rejected: {full: 9}}], [1, {granted: 101, rejected: {full: 1}}]]`, `null`},
		{"another process, which has counted more", `[[0, {granted: 100}, 'one'], [1, {granted: 9000}, 'two']]`, `null`},
		{"gone and back", `[[0, {granted: 100}], [1, null], [2, {granted: 400}]]`, `null`},
		{"gone", `[[0, {granted: 100}], [1, null]]`, `null`},
		{"without what an older version lacks", `[[0, {rejected: undefined, left: undefined, granted: 1}], [1, {rejected: undefined, left: undefined, granted: 2}]]`, `[1, 0]`},
		{"a reason that is not known", `[[0, {}], [1, {rejected: {weather: 3}}]]`, `[0, 3]`},
		{"longer than is remembered", `Array.from({ length: 500 }, (_, i) => [i, {granted: 7 * i}])`, `[7, 0]`},
		{"a long way apart", `[[0, {granted: 0}], [3600, {granted: 3600}]]`, `[1, 0]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := logic[json.RawMessage](tb.in(t), `const steps = `+tt.steps+`;`+model+`
				const r = model.rates('x');
				return r && [r.granted, r.rejected].map((x) => Number.isFinite(x) ? Math.round(1000 * x) / 1000 : String(x));`)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
}

func TestWaitPercentiles(t *testing.T) {
	tb := openLogic(t)
	waits := func(counts ...int) string {
		s := ""
		for i, n := range counts {
			s += fmt.Sprintf("{upToMs: %d, count: %d},", 1<<i, n)
		}
		return "{waits: [" + s + "]}"
	}
	for _, tt := range []struct {
		name  string
		steps string
		want  string // P50, P99, how many; or null
	}{
		{"nobody waited", `[[0, {}], [1, {}]]`, `null`},
		{"nobody since", `[[0, ` + waits(5, 5) + `], [1, ` + waits(5, 5) + `]]`, `null`},
		{"the first to wait", `[[0, {}], [1, ` + waits(0, 0, 1) + `]]`, `[4, 4, 1]`},
		{"half and half", `[[0, ` + waits(1, 1) + `], [1, ` + waits(51, 1, 0, 50) + `]]`, `[1, 8, 100]`},
		{"one of a hundred", `[[0, ` + waits(1) + `], [1, ` + waits(100, 0, 0, 1) + `]]`, `[1, 1, 100]`},
		{"two of a hundred", `[[0, ` + waits(1) + `], [1, ` + waits(99, 0, 0, 2) + `]]`, `[1, 8, 100]`},
		{"longer than all buckets", `[[0, {}], [1, {waits: [{upToMs: 1, count: 0}, {upToMs: 0, count: 3}]}]]`, `[0, 0, 3]`},
		{"counts begin anew", `[[0, ` + waits(90, 10) + `], [1, ` + waits(2) + `]]`, `null`},
		{"and go on", `[[0, ` + waits(90, 10) + `], [1, ` + waits(2) + `], [2, ` + waits(2, 3) + `]]`, `[2, 2, 3]`},
		{"a minute later they are forgotten", `[[0, {}], [1, ` + waits(9) + `], ...Array.from({ length: 80 }, (_, i) => [2 + i, ` + waits(9) + `])]`, `null`},
		{"another process", `[[0, {}, 'one'], [1, ` + waits(9) + `, 'two']]`, `null`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := logic[json.RawMessage](tb.in(t), `const steps = `+tt.steps+`;`+model+`
				const w = model.waits('x');
				return w && [w.p50, w.p99, w.count];`)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
}

func TestWords(t *testing.T) {
	tb := openLogic(t)
	for expression, want := range map[string]string{
		`l.rate(null)`:                 "–",
		`l.rate(undefined)`:            "–",
		`l.rate(0)`:                    "0",
		`l.rate(0.01)`:                 "<0.1",
		`l.rate(0.05)`:                 "0.1",
		`l.rate(1.25)`:                 "1.3",
		`l.rate(9.96)`:                 "10",
		`l.rate(12345.6)`:              "12,346",
		`l.percent(-1)`:                "–",
		`l.percent(0)`:                 "0 %",
		`l.percent(0.5)`:               "0.5 %",
		`l.percent(100)`:               "100 %",
		`l.duration(0)`:                "0 ms",
		`l.duration(999)`:              "999 ms",
		`l.duration(1000)`:             "1 s",
		`l.duration(1500)`:             "1.5 s",
		`l.duration(30000)`:            "30 s",
		`l.duration(150000)`:           "3 min",
		`l.duration(7200000)`:          "2 h",
		`l.duration(200000000)`:        "2 days",
		`l.bound(8)`:                   "≤8 ms",
		`l.bound(0)`:                   ">4 min",
		`l.count(1234567)`:             "1,234,567",
		`l.plural(1, 'call')`:          "1 call",
		`l.plural(0, 'call')`:          "0 calls",
		`l.plural(2, 'body','bodies')`: "2 bodies",
		`l.shortened('127.0.0.1', 9)`:  "127.0.0.1",
		`l.shortened('payments.internal:8443', 13)`: "paymen…l:8443",
	} {
		t.Run(expression, func(t *testing.T) {
			assert.Equal(t, want, logic[string](tb.in(t), `return `+expression+`;`))
		})
	}
}

// What somebody new on call reads first: that something is wrong, since when, why, and what
// to do.
func TestSentences(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct {
		name        string
		compartment string
		rates       string
		doc         string // of the process
		want        string // sentence and hint, or parts of them, in this order
	}{
		{"an open breaker", `{side: 'client', breaker: {state: 'open', failureRate: 60, slowCallRate: -1, calls: 10, openRemainingMs: 2500, attempt: 1, maxFailureRate: 50,
			last: {time: '2026-01-01T00:00:00Z', from: 'closed', to: 'open', cause: 'failure_rate', failureRate: 60, calls: 10, openForMs: 5000}}}`, ``, ``,
			`^Open since \d\d:00:00: 60 % of 10 calls failed, limit 50 %\. Next probe in 3 s\.\|The breaker tries again by itself`},
		{"an open breaker whose time is over", `{side: 'client', breaker: {state: 'open', failureRate: 60, slowCallRate: -1, calls: 10, openRemainingMs: 0, attempt: 1, maxFailureRate: 50,
			last: {time: '2026-01-01T00:00:00Z', from: 'closed', to: 'open', cause: 'failure_rate', failureRate: 60, calls: 10, openForMs: 5000}}}`, ``, ``,
			`limit 50 %\. The next call will be a probe\.`},
		{"the only permit is in use", `{bulkhead: {limit: 1, inFlight: 1, queued: 0, maxQueue: 0}}`, ``, ``, `^1 of 1 permits in use; nobody has to wait yet\.`},
		{"callers who give up", `{bulkhead: {limit: 1, inFlight: 1, queued: 0, maxQueue: 9, maxWaitMs: 1000}}`, `left: 4`, ``, `^Full: 1 of 1 permits in use, .* 4/s left before it was their turn\.`},
		{"a queue that callers leave", `{bulkhead: {limit: 2, inFlight: 1, queued: 1, maxQueue: 9}}`, `left: 4`, ``, `^1 waiting, .* 4/s left before it was their turn\.`},
		{"a full overflow", `{key: '(overflow)', inFlight: 1, bulkhead: {limit: 1, inFlight: 1, queued: 0, maxQueue: 0}}`, `rejected: 2, reasons: {full: 2, wait_timeout: 0, open: 0, draining: 0}`, ``,
			`^Full: .*Keys that found the table of compartments full share this one\.\|Raise maxCompartments of policy p`},
		{"a tenant that floods", `{per: 'header', key: 'globex', bulkhead: {limit: 2, inFlight: 2, queued: 0, maxQueue: 0}}`, `rejected: 9, reasons: {full: 9, wait_timeout: 0, open: 0, draining: 0}`, ``,
			`\|If these requests take longer than usual, see what they wait for\. If not, more come for globex than usual: see who sends them, or raise maxConcurrent of policy p`},
		{"a route", `{per: 'route', key: '/x', bulkhead: {limit: 2, inFlight: 2, queued: 0, maxQueue: 0}}`, `rejected: 9, reasons: {full: 9, wait_timeout: 0, open: 0, draining: 0}`, ``,
			`\|If this route answers slower than usual, see what it waits for\. If not, more calls come than usual: find the caller`},
		{"a host", `{side: 'client', per: 'host', key: 'https://x:443', bulkhead: {limit: 2, inFlight: 2, queued: 0, maxQueue: 0}}`, `rejected: 9, reasons: {full: 9, wait_timeout: 0, open: 0, draining: 0}`, ``,
			`\|If https://x:443 answers slower than usual, the cause is there\. If not, more calls come than usual`},
		{"a limit that was lowered", `{bulkhead: {limit: 2, inFlight: 5, queued: 1, maxQueue: 9}}`, ``, `{policies: {reloads: 1, since: '2026-01-01T00:00:00Z'}}`,
			`^Full: 5 of 2 .*nobody gets in until enough have left\.\|Other policies are in force since \d\d:00:00: see whether they have lowered this limit\. If these requests`},
		{"a limit of long ago", `{bulkhead: {limit: 2, inFlight: 2, queued: 1, maxQueue: 9}}`, ``, `{policies: {reloads: 1, since: '2025-12-31T23:00:00Z'}}`, `\|If these requests`},
		{"a breaker that the policy holds open", `{side: 'client', breaker: {state: 'forced_open'}}`, `rejected: 4, reasons: {full: 0, wait_timeout: 0, open: 4, draining: 0}`, `{policies: {reloads: 1, since: '2026-01-01T00:00:00Z'}}`,
			`^Held open by the policies in force since \d\d:00:00: every call is refused\. Refuses 4/s\.\|Take force: open out of policy p`},
		{"who is inside while the process ends", `{inFlight: 2, bulkhead: {limit: 2, inFlight: 2, queued: 0, maxQueue: 0}}`, `rejected: 9, reasons: {full: 3, wait_timeout: 0, open: 0, draining: 6}`, `{draining: true}`,
			`^Shutting down: 2 calls still inside, refuses 6/s\.\|The process ends when these have`},
		{"tasks are, too", `{inFlight: 1, side: 'client', pool: {max: 1, active: 1, queued: 2, waitingForRoom: 0, backlog: 4}}`, ``, `{draining: true}`, `^Shutting down: 3 tasks still inside\.\|`},
		{"nobody is inside while the process ends", `{bulkhead: {limit: 2, inFlight: 0, queued: 0, maxQueue: 0}}`, `rejected: 6, reasons: {full: 0, wait_timeout: 0, open: 0, draining: 6}`, `{draining: true}`, `^Shutting down: refuses 6/s\.\|$`},
		{"since when tasks wait", `{side: 'client', pool: {max: 2, active: 2, queued: 1, waitingForRoom: 0, backlog: 4, pressedSince: '2025-12-31T23:59:00Z'}}`, ``, ``,
			`^Full: .* Tasks wait or are refused since \d\d:59:00 \(63 s\)\.\|Tasks come faster than 2 workers do them`},
		{"a pool that is full since the page was opened", `{side: 'client', pool: {max: 2, active: 2, queued: 1, waitingForRoom: 0, backlog: 4}}`, ``, ``, `^Full: 2 of 2 workers in use, 1 waiting \(room for 4\)\.\|`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Regexp(t, tt.want, logic[string](tb.in(t), `
				const base = { id: 'x', policy: 'p', side: 'server', per: 'policy', key: '', granted: 1, rejected: {}, left: 0, leaked: 0, inFlight: 0 };
				const c = { ...base, ...`+tt.compartment+` };
				const rates = { granted: 1, left: 0, observed: 0, rejected: 0, other: 0, reasons: { full: 0, wait_timeout: 0, open: 0, draining: 0 }, `+tt.rates+` };
				const model = new l.Model();
				model.take({ version: 1, instance: 'one', time: '2026-01-01T00:00:02.5Z', compartments: [c], transitions: [] });
				const said = l.describe(c, rates, model.now, model.tracks.get('x'), undefined, `+cmp.Or(tt.doc, "{}")+`);
				return said.sentence + '|' + said.hint;`))
		})
	}
}

// While all permits are out, so many are granted as come back: that tells how long each is
// held, or that none comes back.
func TestHowLongPermitsAreHeld(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct{ name, samples, granted, want string }{
		{"the page was opened when it was full", `3`, `5`, ` A permit is held for 400 ms on average.`},
		{"full all the while", `10`, `5`, ` A permit is held for 400 ms on average.`},
		{"none comes back", `10`, `0`, ` None of the permits came free in the last 5 s.`},
		{"the page was opened a moment ago", `2`, `5`, ``},
		{"full since a moment ago, so what was granted filled it", `6, free: 3`, `5`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := logic[string](tb.in(t), `
				const of = { length: `+tt.samples+` };
				const steps = Array.from(of, (_, i) => [i, { granted: `+tt.granted+` * i, inFlight: 2, bulkhead: { limit: 2, inFlight: i < of.free ? 1 : 2, queued: 1, maxQueue: 9 } }]);`+model+`
				return l.describe(model.doc.compartments[0], model.rates('x'), model.now, model.tracks.get('x')).sentence;`)
			const before = "Full: 2 of 2 permits in use, 1 waiting (room for 9)."
			assert.Contains(t, got, before)
			assert.Regexp(t, regexp.QuoteMeta(before)+`( Full since [\d:]+ at least\.)?`+regexp.QuoteMeta(tt.want)+"$", got)
		})
	}
}

// What all compartments do together has the calls of those that came and went, and does not
// fall when a policy goes.
func TestFlow(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct{ name, docs, want string }{
		{"one sample says nothing", `[[0, [5]]]`, `null`},
		{"a compartment that came", `[[0, [5]], [1, [5, 3]]]`, `[3, 0, 0]`},
		{"some came and went", `[[0, [5], 100, 7], [1, [5], 250, 9]]`, `[150, 0, 2]`},
		{"one that is dropped takes its calls along", `[[0, [5, 100], 0, 0], [1, [6], 100, 1]]`, `[1, 0, 1]`},
		{"a policy that goes", `[[0, [5, 100]], [1, [7]], [2, [9]]]`, `[1, 0, 0]`},
		{"the same sample again", `[[0, [5]], [1, [8]], [1, [8]]]`, `[3, 0, 0]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := logic[json.RawMessage](tb.in(t), `
				const model = new l.Model();
				for (const [at, granted, gone, evicted] of `+tt.docs+`) model.take({
					version: 1, instance: 'one', time: new Date(1.7e12 + at * 1000).toISOString(), transitions: [],
					compartments: granted.map((n, i) => ({ id: 'x' + i, policy: 'p', side: 'server', per: 'route', key: 'x' + i, granted: n, rejected: {}, left: 0, inFlight: 0 })),
					dropped: evicted === undefined ? undefined : [{ granted: gone, rejected: {}, evicted }],
				});
				const f = model.still().flow();
				return f && [f.granted, f.refused, f.evicted];`)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
	assert.Equal(t, "150/s granted, none refused, 1 compartment, 12/s of them dropped at rest",
		logic[string](tb, `return l.summary([{ c: { policy: 'p', side: 'server' }, said: { level: l.OK } }], {}, { granted: 150, refused: 0, evicted: 12 }).flow;`))
}

// Policies that are not in force, or a process that ends, are not well, whatever the
// compartments are.
func TestHeadline(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct{ doc, open, want string }{
		{`{}`, `false`, "0 0 All is well"},
		{`{policies: {}}`, `false`, "0 0 All is well"},
		{`{policies: {error: 'oh'}}`, `false`, "3 1 New policies not in force"},
		{`{policies: {error: 'oh'}}`, `true`, "4 2 1 breaker open, new policies not in force"},
		{`{draining: true}`, `false`, "2 1 Shutting down"},
		{`{draining: true, policies: {error: 'oh'}}`, `false`, "3 2 Shutting down, new policies not in force"},
		{`{draining: true, closed: true}`, `false`, "3 1 Guard closed"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			assert.Equal(t, tt.want, logic[string](tb.in(t), `
				const open = `+tt.open+`;
				const c = { policy: 'p', side: 'client', breaker: { state: open ? 'open' : 'closed' } };
				const s = l.summary([{ c, rates: null, said: { level: open ? l.WORST : l.OK } }], `+tt.doc+`);
				return s.level + ' ' + s.troubled + ' ' + s.text;`))
		})
	}
}

// A limit that is just reached is in use as it is meant to be, and where it is 1, by every
// call. It is trouble once somebody suffers from it.
func TestInUseIsNotYetFull(t *testing.T) {
	tb := openLogic(t)
	for _, tt := range []struct{ name, queued, rates, want string }{
		{"nobody waits", `0`, ``, "1 Busy All is well"},
		{"one waits", `1`, ``, "2 Full 1 bulkhead full"},
		{"some are refused", `0`, `rejected: 3, reasons: { full: 3, wait_timeout: 0, open: 0, draining: 0 }`, "3 Full 1 bulkhead full, 3/s refused"},
		{"some wait in vain", `0`, `rejected: 3, reasons: { full: 0, wait_timeout: 3, open: 0, draining: 0 }`, "3 Full 1 bulkhead full, 3/s refused"},
		{"some give up", `0`, `left: 2`, "2 Full 1 bulkhead full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, logic[string](tb.in(t), `
				const rates = { granted: 1, left: 0, observed: 0, rejected: 0, other: 0, reasons: { full: 0, wait_timeout: 0, open: 0, draining: 0 }, `+tt.rates+` };
				const c = { id: 'x', policy: 'p', side: 'server', per: 'policy', key: '', granted: 9, rejected: {}, left: 0, inFlight: 1,
					bulkhead: { limit: 1, inFlight: 1, queued: `+tt.queued+`, maxQueue: 9, maxWaitMs: 1000 } };
				const model = new l.Model();
				model.take({ version: 1, instance: 'one', time: '2026-01-01T00:00:02.5Z', compartments: [c], transitions: [] });
				const said = l.describe(c, rates, model.now, model.tracks.get('x'));
				return said.level + ' ' + said.label + ' ' + l.summary([{ c, rates, said }], {}, { granted: 1, refused: rates.rejected, evicted: 0 }).text;`))
		})
	}
}

// A delta that belongs to another document is not used: what came of it would be neither
// the one nor the other.
func TestDeltas(t *testing.T) {
	tb := openLogic(t)
	const doc = `{ seq: 4, version: 1, instance: 'one', draining: false, note: 'x', compartments: [{ id: 'a', n: 1 }, { id: 'b', n: 1 }], transitions: [1, 2, 3] }`
	for _, tt := range []struct{ name, delta, want string }{
		{"nothing changed", `{ base: 4, seq: 5 }`,
			`{"seq": 5, "version": 1, "instance": "one", "draining": false, "note": "x", "compartments": [{"id": "a", "n": 1}, {"id": "b", "n": 1}], "transitions": [1, 2, 3]}`},
		{"of another document", `{ base: 3, seq: 5 }`, `null`},
		{"changes, takes away, and orders anew", `{ base: 4, seq: 5, draining: true, note: null, compartments: [{ id: 'c', n: 9 }, { id: 'b', n: 2 }], order: ['c', 'b'], forgotten: 1, transitions: [4] }`,
			`{"seq": 5, "version": 1, "instance": "one", "draining": true, "compartments": [{"id": "c", "n": 9}, {"id": "b", "n": 2}], "transitions": [2, 3, 4]}`},
		{"the last one leaves", `{ base: 4, seq: 5, order: [] }`,
			`{"seq": 5, "version": 1, "instance": "one", "draining": false, "note": "x", "compartments": [], "transitions": [1, 2, 3]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.JSONEq(t, tt.want, string(logic[json.RawMessage](tb.in(t), `return l.applyDelta(`+doc+`, `+tt.delta+`);`)))
		})
	}
	assert.Equal(t, "null", string(logic[json.RawMessage](tb, `return l.applyDelta(null, { base: 4 });`)))
}

// Whatever a newer server leaves out or adds, the page says something, and nothing absurd.
func TestSaysSomethingOfAnything(t *testing.T) {
	tb := openLogic(t)
	odd := logic[[]string](tb, `
		const base = { id: 'x', policy: 'p', side: 'client', per: 'host', key: 'k', granted: 1, rejected: {}, left: 0, leaked: 0, inFlight: 1 };
		const bulk = { limit: 2, inFlight: 2, queued: 1, peak: 2, maxQueue: 0, maxWaitMs: 0 };
		const brk = { state: 'closed', failureRate: -1, slowCallRate: -1, calls: 0, openRemainingMs: 0, overdue: 0, probesLeft: 0, attempt: 0, maxFailureRate: 50, maxSlowCallRate: 0, slowCallMs: 0, minCalls: 20 };
		const last = { time: '2026-01-01T00:00:00Z', policy: 'p', side: 'client', key: 'k', from: 'closed', to: 'open', cause: 'failure_rate', failureRate: 60, slowCallRate: -1, calls: 10, overdue: 0, openForMs: 1 };
		const rates = { granted: 1, left: 0, observed: 1, rejected: 4, reasons: { full: 1, wait_timeout: 1, open: 1, draining: 1 } };
		const all = [base, { ...base, rejected: undefined }, { ...base, bulkhead: bulk }, { ...base, bulkhead: { ...bulk, limit: 1 } }, { ...base, bulkhead: { limit: 2, inFlight: 2, queued: 0 } },
			{ ...base, pool: { max: 2, active: 2, queued: 3, waitingForRoom: 0, backlog: 5 } }, { ...base, leaked: 2 }, { ...base, key: '(overflow)' }, { ...base, policy: '(unmatched)', key: '' }, { ...base, mode: 'observe', bulkhead: bulk }];
		for (const state of ['closed', 'open', 'half_open', 'forced_open', 'disabled', 'melted']) {
			for (const cause of ['failure_rate', 'slow_call_rate', 'overdue', 'forced', 'reset', 'open_elapsed', 'probes', 'half_open_elapsed', 'weather']) {
				all.push({ ...base, breaker: { ...brk, state, probes: 2, last: { ...last, to: state, cause } } }, { ...base, breaker: { ...brk, state } }, { ...base, mode: 'observe', breaker: { ...brk, state, openRemainingMs: 5 } });
			}
		}
		const bad = [];
		for (const c of all) for (const r of [null, rates]) {
			for (const doc of [{}, { draining: true }, { policies: { reloads: 1, since: '2026-01-01T00:00:05Z' } }]) {
				const said = l.describe(c, r, Date.parse('2026-01-01T00:00:10Z'), undefined, undefined, doc);
				const text = said.label + '|' + said.sentence + '|' + said.hint;
				if (/undefined|NaN|null|Infinity|\[object|-1/.test(text) || !said.label || !said.sentence || !(said.level >= 0 && said.level <= 4)) bad.push(text);
				const sum = l.summary([{ c, rates: r, said }], {}, r && { granted: 1, refused: 4, evicted: 2 });
				if (/undefined|NaN|null|Infinity|\[object|-1/.test(sum.text + sum.steady + sum.flow)) bad.push(sum.text);
			}
		}
		return [...new Set(bad)];`)
	require.Empty(t, odd)
}
