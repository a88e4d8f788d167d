package jaegertest_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

// plenty is more traces than a test makes, and no more than Jaeger keeps.
const plenty = 20000

// The demonstration, which is the program to try first, leaves in Jaeger what
// happened to its calls.
func TestClient(t *testing.T) {
	j := demonstrate(t)

	// The program sends its last spans before it ends.
	services, err := j.services()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{j.probe, clientService, serverService}, services)
	assert.Subset(t, j.operations(t, serverService), kinds)
	assert.Subset(t, j.operations(t, clientService), []string{"bulkhead.grant"})

	c := contractOf(t, "../../client/server.yaml", "../../client/client.yaml")
	for _, service := range []string{serverService, clientService} {
		for _, kind := range kinds {
			if service == clientService && kind != "bulkhead.grant" {
				continue // the client is never the one to suffer
			}
			t.Run(service+"/"+kind, func(t *testing.T) {
				traces, err := j.find(search{service: service, operation: kind, limit: 200})
				require.NoError(t, err)
				require.NotEmpty(t, traces)
				for _, tr := range traces {
					require.NotEmpty(t, tr.named(kind))
					c.hold(t, tr)
					acrossTheWire(t, tr)
				}
			})
		}
	}
	t.Run("refusals by error.type", func(t *testing.T) { refusals(t, j) })
	t.Run("what the breaker did", func(t *testing.T) { breakerStory(t, j, c) })
	t.Run("a trace by its ID", func(t *testing.T) {
		traces, err := j.find(search{service: serverService, operation: "breaker.trip", limit: 1})
		require.NoError(t, err)
		require.Len(t, traces, 1)
		tr, err := j.trace(traces[0].id)
		require.NoError(t, err)
		assert.Equal(t, traces[0].String(), tr.String())
	})
}

// demonstrate runs the demonstration and returns the Jaeger that got its spans.
func demonstrate(t *testing.T) *jaeger {
	t.Helper()
	bin := build(t, "client")
	const attempts = 3
	for i := 1; ; i++ {
		j := startJaeger(t)
		p := program.Start(t, nil, bin, "-otlp", j.otlp, "-duration", "5s")
		err := p.Wait(t, time.Minute)
		if err == nil {
			return j
		}
		// Other tests, which run at the same time, may leave it too little of
		// the machine to be as fast as it promises. There is no such excuse for
		// its other promises.
		if i == attempts || !onlySlow(p.Output()) {
			require.NoError(t, err)
		}
		t.Logf("once more, since the machine was busy:\n%s", p.Output())
	}
}

// onlySlow reports whether the only promises that were not kept are those of
// speed.
func onlySlow(report string) bool {
	broken := regexp.MustCompile(`(?m)^ *BROKEN .*$`).FindAllString(report, -1)
	return len(broken) > 0 && !slices.ContainsFunc(broken, func(promise string) bool {
		return !strings.Contains(promise, "stayed fast")
	})
}

// acrossTheWire checks that the trace is whole, from the client to what the
// server did for it.
func acrossTheWire(t *testing.T, tr *trace) {
	t.Helper()
	tops := tr.tops()
	require.Len(t, tops, 1, "%s", tr)
	assert.Empty(t, tops[0].parentID)
	assert.Equal(t, clientService, tops[0].service)
	assert.Regexp(t, "^call ", tops[0].name)

	requests := tr.where(func(s *span) bool { return s.text("span.kind") == "server" })
	require.Len(t, requests, 1, "%s", tr)
	assert.Equal(t, serverService, requests[0].service)
	assert.Equal(t, clientService, tr.parent(requests[0]).service)

	// The handler of /upstream/ runs under the permit of its request, and so
	// does the admission of the call that it makes.
	for _, s := range tr.named("bulkhead.grant") {
		if s.text("watertight.policy") == "gateway" {
			assert.NotEmpty(t, tr.under(s), "%s", tr)
		}
	}
}

// refusals checks that each refusal is found by its reason.
func refusals(t *testing.T, j *jaeger) {
	found := make(map[string]int)
	for reason, operation := range map[string]string{
		"full":         "bulkhead.reject",
		"wait_timeout": "bulkhead.reject",
		"open":         "breaker.reject",
	} {
		traces, err := j.find(search{service: serverService, tags: map[string]string{"error.type": reason}, limit: plenty})
		require.NoError(t, err)
		require.NotEmpty(t, traces, reason)
		for _, tr := range traces {
			marked := tr.where(func(s *span) bool { return s.tags["error.type"] == reason })
			require.Len(t, marked, 1, "%s", tr)
			require.Equal(t, operation, marked[0].name, "%s", tr)
		}
		found[operation] += len(traces)
	}
	for operation, n := range found {
		traces, err := j.find(search{service: serverService, operation: operation, limit: plenty})
		require.NoError(t, err)
		assert.Len(t, traces, n, "%s: some are not found by error.type", operation)
	}
	none, err := j.find(search{service: serverService, tags: map[string]string{"error.type": "bad_luck"}, limit: plenty})
	require.NoError(t, err)
	assert.Empty(t, none, "Jaeger does not look at the tags")
}

// breakerStory checks that the transitions make one story: each begins in the
// state in which the one before ended, and the end is a recovery.
func breakerStory(t *testing.T, j *jaeger, c contract) {
	var story []*span
	for _, kind := range []string{"breaker.trip", "breaker.half_open", "breaker.close"} {
		traces, err := j.find(search{service: serverService, operation: kind, limit: plenty})
		require.NoError(t, err)
		for _, tr := range traces {
			story = append(story, tr.named(kind)...)
		}
	}
	slices.SortFunc(story, func(a, b *span) int { return a.start.Compare(b.start) })
	require.NotEmpty(t, story)

	state, key := "closed", story[0].text("watertight.key")
	var opened time.Time // according to the trip
	for _, s := range story {
		require.Equal(t, key, s.text("watertight.key"), "only one upstream was broken")
		require.Equal(t, state, s.text("watertight.breaker.from"))
		state = s.text("watertight.breaker.to")
		// When it was due, which is before somebody saw it.
		due := s.start.Add(-time.Duration(max(s.number("watertight.breaker.late_ms"), 0) * float64(time.Millisecond)))
		switch s.name {
		case "breaker.trip":
			opened = due
			behind(t, j, s)
		case "breaker.half_open":
			openFor := c.rules[s.text("watertight.policy")].Breaker.OpenFor
			// The span is begun a moment after its time was looked at.
			assert.InDelta(t, openFor.Seconds(), due.Sub(opened).Seconds(), 0.25)
		}
	}
	assert.Equal(t, "closed", state)
}

// behind checks that the links of a trip lead to calls of the same upstream.
func behind(t *testing.T, j *jaeger, trip *span) {
	t.Helper()
	assert.NotEmpty(t, trip.links)
	assert.LessOrEqual(t, len(trip.links), 8)
	for _, l := range trip.links {
		tr, err := j.trace(l.traceID)
		require.NoError(t, err)
		calls := tr.where(func(s *span) bool { return s.id == l.spanID })
		require.Len(t, calls, 1)
		assert.Equal(t, "bulkhead.grant", calls[0].name)
		assert.Equal(t, trip.text("watertight.key"), calls[0].text("watertight.key"))
	}
}
