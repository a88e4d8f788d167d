package browser

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// What a page with a thousand compartments may cost.
const (
	maxFirstPaint = 1000.0 // ms from the navigation
	maxScript     = 50.0   // ms of an update, the median of many
	maxGrowth     = 2 << 20
)

const thousand = `
version: 1
policies:
  - name: tenants
    side: server
    per: header:X-Tenant
    bulkhead: {maxConcurrent: 8, maxQueue: 4, maxWait: 1h}
    breaker: {minCalls: 10, openFor: 10m}
`

// quiet returns a Guard that keeps to itself what it would log.
func quiet(t testing.TB, yaml string) *watertight.Guard {
	t.Helper()
	return watertight.New(parse(t, yaml), watertight.WithLogger(slog.New(slog.DiscardHandler)))
}

// callers calls for each of n tenants once.
func callers(t testing.TB, wt *watertight.Guard, n int) {
	t.Helper()
	for i := range n {
		call, err := wt.Admit(context.Background(), tenant(i))
		if err == nil {
			call.SettleStatus(200 + 300*(i%7/6))
			call.Release()
		}
	}
}

func tenant(i int) *policy.Request {
	return &policy.Request{Side: policy.Server, Method: "GET", Path: "/", Header: map[string][]string{"X-Tenant": {fmt.Sprintf("tenant-%04d", i)}}}
}

// A thousand compartments that all have something to tell, all the time, do not make the
// page slow, nor does it grow. Figures are logged; how good they have to be is checked
// where WATERTIGHT_BROWSER_FIGURES is set, as in .ci/run.
func TestThousandCompartments(t *testing.T) {
	wt := quiet(t, thousand)
	callers(t, wt, 1000)
	st := show(t, wt)

	var paints []float64
	var tb *tab
	for range 3 {
		if tb != nil {
			tb.close() // or it would go on drawing
		}
		tb = open(t, st.home, desk)
		tb.until(`document.querySelectorAll('#rows > tr').length > 50 && performance.getEntriesByName('first-contentful-paint').length`)
		paints = append(paints, eval[float64](tb, `performance.getEntriesByName('first-contentful-paint')[0].startTime`))
	}
	assert.Contains(t, tb.said("#shown"), "1,000 compartments")

	// The time of the thread, not that on the wall: others may need the processor too.
	require.NoError(t, call(tb, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}))
	strict, _ := strconv.ParseBool(os.Getenv("WATERTIGHT_BROWSER_FIGURES"))
	t.Logf("1,000 compartments, all of which change: first paint %.0f ms, the median of %d", median(paints), len(paints))
	if strict {
		assert.Less(t, median(paints), maxFirstPaint)
	}
	for _, all := range []bool{false, true} {
		if all {
			for eval[bool](tb, `document.querySelector('#more').checkVisibility()`) {
				eval[bool](tb, `document.querySelector('#more').click(), true`)
			}
			require.Len(t, tb.rows(), 1000)
		}
		c := tb.cost(func() { callers(t, wt, 1000) })
		t.Logf("%d rows shown: an update is %.1f ms of script by the browser, %.1f ms by the page, %.1f ms with layout and painting, the medians of %d; heap %.1f to %.1f MB",
			len(tb.rows()), median(c.script), median(c.own), median(c.task), len(c.script), c.heap[0]/(1<<20), c.heap[len(c.heap)-1]/(1<<20))
		if strict {
			assert.Less(t, median(c.script), maxScript)
			assert.Less(t, c.heap[len(c.heap)-1]-c.heap[0], float64(maxGrowth), "%v", c.heap)
		}
	}
}

// A cost is what updates have cost, in ms and bytes.
type cost struct{ script, own, task, heap []float64 }

// cost measures updates, each of which shows what change has changed.
func (tb *tab) cost(change func()) cost {
	tb.Helper()
	const warm, n = 5, 20
	var c cost
	for i := range warm + n {
		before, drawn := tb.metrics(), tb.updates()
		change()
		// One look only, or looking would be part of the cost.
		eval[bool](tb, fmt.Sprintf(`new Promise((done) => {
			const enough = () => Number(document.documentElement.dataset.updates) > %d && done(true);
			new MutationObserver(enough).observe(document.documentElement, { attributes: true });
			enough();
		})`, drawn))
		after := tb.metrics()
		if i < warm {
			continue
		}
		updates := float64(tb.updates() - drawn)
		c.script = append(c.script, 1000*(after["ScriptDuration"]-before["ScriptDuration"])/updates)
		c.task = append(c.task, 1000*(after["TaskDuration"]-before["TaskDuration"])/updates)
		c.own = append(c.own, eval[float64](tb, `Number(document.documentElement.dataset.scriptMs)`))
		if i%5 == 0 {
			require.NoError(tb, call(tb, heapprofiler.CollectGarbage, cdp.Empty{}))
			c.heap = append(c.heap, tb.metrics()["JSHeapUsedSize"])
		}
	}
	return c
}

// metrics returns what the browser has counted for the tab, in seconds and bytes.
func (tb *tab) metrics() map[string]float64 {
	tb.Helper()
	r, err := chromedp.Call(tb.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(tb, err)
	m := make(map[string]float64)
	for _, x := range r.Metrics {
		m[x.Name] = x.Value
	}
	return m
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// Compartments that come and go, as those of tenants do, leave nothing behind: not in the
// document, and not in what is remembered of them.
func TestForgetsCompartments(t *testing.T) {
	wt := quiet(t, strings.Replace(thousand, "policies:", "defaults: {maxCompartments: 50}\npolicies:", 1))
	tb := open(t, show(t, wt).home, desk)
	require.NoError(t, call(tb, performance.Enable, performance.EnableParams{}))
	var nodes []float64
	for i := range 12 {
		for j := range 50 {
			call, err := wt.Admit(context.Background(), tenant(1000*i+j))
			require.NoError(t, err)
			call.SettleStatus(200)
			call.Release()
		}
		tb.until(fmt.Sprintf(`%s && document.querySelectorAll('#rows > tr').length === 50`, find("tenants", fmt.Sprintf("tenant-%04d", 1000*i))))
		require.NoError(t, call(tb, heapprofiler.CollectGarbage, cdp.Empty{}))
		nodes = append(nodes, tb.metrics()["Nodes"])
	}
	// Some rows may be kept for a while, but not those of all.
	assert.Less(t, nodes[11], nodes[7]*1.1, "%v", nodes)
}
