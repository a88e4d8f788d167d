package main

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/middleware"
)

// Everybody does what the table says: the loops check it themselves.
func TestEveryRowRuns(t *testing.T) {
	for _, r := range rows() {
		if r.least > 50_000 {
			r = handOffRow(10) // the same code with fewer goroutines
		}
		all := r.measure(2, time.Millisecond)
		for _, l := range all {
			if l.ops < 1 || len(l.nanos) != 2 || l.nanos[0] <= 0 {
				t.Errorf("%s: %s: %d operations of %v ns", r.name, l.name, l.ops, l.nanos)
			}
		}
		var out strings.Builder
		r.print(&out, all)
		if judged := strings.Count(out.String(), "met\n") + strings.Count(out.String(), "missed by"); len(r.goals) > 0 && judged < max(1, r.ours) {
			t.Errorf("no verdict for each of %d in\n%s", max(1, r.ours), &out)
		}
	}
}

func TestHoldings(t *testing.T) {
	for _, h := range holdings() {
		for _, o := range h.owners {
			if held := o.measure(); held <= 0 {
				t.Errorf("%s: %s: %d B", h.name, o.name, held)
			}
		}
	}
}

func TestGoals(t *testing.T) {
	all := []line{
		{name: "raw", nanos: []float64{10, 20, 10}},
		{name: "ours", nanos: []float64{20, 50, 21}, allocs: []float64{1, 1.04, 2}},
		{name: clockRead, nanos: []float64{1, 1, 1}},
		{name: "rival", nanos: []float64{19, 60, 30}},
		{name: "other", nanos: []float64{20, 20, 20}},
	}
	for _, tc := range []struct {
		goal goal
		text string
		want string
	}{
		{ratio(2.1), "<= 2.1x", "met"},
		{ratio(2), "<= 2x", "missed by 0.10x"},
		{ratioAndRead(2), "<= 2x and a clock read", "met"},
		{ratioAndRead(1.9), "<= 1.9x and a clock read", "missed by 1.00 ns"},
		{twoReads("other"), "<= the line without clock reads and two of them", "met"},
		{twoReads("raw"), "<= the line without clock reads and two of them", "missed by 9.00 ns"},
		{extra(11), "<= raw + 11 ns", "met"},
		{extra(10), "<= raw + 10 ns", "missed by 1.00 ns"},
		{faster("rival"), "below rival", "met"},
		{faster("raw"), "below raw", "missed by 11.00 ns"},
		{allocs(1), "<= 1 allocs", "met"},
		{allocs(0), "<= 0 allocs", "missed by 1.00 allocs"},
		{flat(2.1, "raw", "raw"), "<= 2.1x the ratio of 1 waiter", "met"},
		{flat(2, "raw", "raw"), "<= 2x the ratio of 1 waiter", "missed by 0.10x"},
	} {
		if tc.goal.text != tc.text {
			t.Errorf("text %q, want %q", tc.goal.text, tc.text)
		}
		if got := verdict([]goal{tc.goal}, all[1], all); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.text, got, tc.want)
		}
	}
}

// What docs/performance.md shows is what the program prints: the same rows, with the same
// lines.
func TestPerformancePage(t *testing.T) {
	page, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "```\ngo1.")
	table, _, _ = strings.Cut(table, "```")
	var shown, want []string
	for _, l := range strings.Split(table, "\n")[1:] {
		if m := regexp.MustCompile(`^ +(\S.*?) +[0-9.]+ ns `).FindStringSubmatch(l); m != nil {
			shown = append(shown, m[1])
		} else if l != "" {
			shown = append(shown, l)
		}
	}
	for _, r := range telemetryRows() {
		want = append(want, r.name+", CPU time", r.raw.name)
		for _, rival := range r.rivals {
			want = append(want, rival.name)
		}
	}
	if !slices.Equal(shown, want) {
		t.Errorf("docs/performance.md shows\n%q\nwant\n%q\nrun the program and paste what it prints", shown, want)
	}
}

// A circuit that did not record would never open, and be fast for nothing.
func TestCircuitsRecord(t *testing.T) {
	ctx := context.Background()
	for _, c := range circuits {
		circuit := c.open()
		circuit.succeed(ctx, tripCalls)
		refused := false
		for range 1000 {
			refused = refused || !circuit.fail(ctx)
		}
		if !refused {
			t.Errorf("%s lets everything in after 1000 failures", c.name)
		}
	}
}

// A middleware that let everybody in would be fast for nothing, too.
func TestServersLimit(t *testing.T) {
	all := append(slices.Concat(servers, breakingServers), server{"watertight", func() wrapper {
		return middleware.New(guard("per: route, " + withBulkhead + ", " + withBreaker))
	}})
	for _, s := range all {
		atMost(t, s.name, func(visit func()) func(context.Context) {
			h := s.make()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visit() }))
			return func(ctx context.Context) { h.ServeHTTP(writer{http.Header{}}, request(ctx, "/")) }
		})
	}
}

func TestClientsLimit(t *testing.T) {
	for _, c := range clients {
		atMost(t, c.name, func(visit func()) func(context.Context) {
			rt := c.make(roundTripper(func(*http.Request) (*http.Response, error) {
				visit()
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}))
			return func(ctx context.Context) { _, _ = rt.RoundTrip(request(ctx, "/")) }
		})
	}
}

// atMost checks that of one more than the limit all but one get in at once. call
// comes by whatever it is that is limited to where visit is called.
func atMost(t *testing.T, name string, calling func(visit func()) (call func(context.Context))) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		leave := make(chan struct{})
		call := calling(func() { inside.Add(1); <-leave })
		var done sync.WaitGroup
		for range limit + 1 {
			done.Go(func() { call(t.Context()) })
		}
		synctest.Wait()
		if n := inside.Load(); n != limit {
			t.Errorf("%s: %d of %d are inside, want %d", name, n, limit+1, limit)
		}
		close(leave)
		done.Wait()
	})
}

func TestClientsBreak(t *testing.T) {
	for _, c := range clients {
		calls := 0
		rt := c.make(roundTripper(func(*http.Request) (*http.Response, error) { calls++; return nil, errFailed }))
		for range 1000 {
			_, _ = rt.RoundTrip(request(t.Context(), "/"))
		}
		if calls > 200 {
			t.Errorf("%s: %d calls got through to what always fails", c.name, calls)
		}
	}
}
