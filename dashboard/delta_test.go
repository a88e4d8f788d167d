package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/watertight-go/watertight"
)

// apply does what docs/dashboard.md says of a delta.
func apply(t require.TestingT, document, delta []byte) []byte {
	var doc, d map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(document, &doc))
	require.NoError(t, json.Unmarshal(delta, &d))
	require.JSONEq(t, string(doc["seq"]), string(d["base"]), "made for another document")
	list := func(text json.RawMessage) (l []json.RawMessage) {
		if text != nil {
			require.NoError(t, json.Unmarshal(text, &l))
		}
		return l
	}
	rows := make(map[string]json.RawMessage)
	var order []string
	idOf := func(row json.RawMessage) string {
		var r struct{ ID string }
		require.NoError(t, json.Unmarshal(row, &r))
		return r.ID
	}
	for _, row := range list(doc["compartments"]) {
		rows[idOf(row)] = row
		order = append(order, idOf(row))
	}
	for _, row := range list(d["compartments"]) {
		rows[idOf(row)] = row
	}
	if d["order"] != nil {
		order = nil
		require.NoError(t, json.Unmarshal(d["order"], &order))
	}
	compartments := []json.RawMessage{}
	for _, id := range order {
		require.Contains(t, rows, id)
		compartments = append(compartments, rows[id])
	}
	forgotten := 0
	if d["forgotten"] != nil {
		require.NoError(t, json.Unmarshal(d["forgotten"], &forgotten))
	}
	transitions := append(list(doc["transitions"])[forgotten:], list(d["transitions"])...)
	for name, text := range d {
		if string(text) == "null" {
			delete(doc, name)
		} else if name != "base" && name != "order" && name != "forgotten" {
			doc[name] = text
		}
	}
	encode := func(v any) json.RawMessage {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	doc["compartments"], doc["transitions"] = encode(compartments), encode(transitions)
	return encode(doc)
}

// drawSnapshot makes one of few keys and values, so that they meet again.
func drawSnapshot(t *rapid.T, transitions *[]watertight.TransitionSnapshot) watertight.Snapshot {
	s := watertight.Snapshot{Version: 1, Compartments: []watertight.CompartmentSnapshot{}}
	s.Policies.Reloads = rapid.Uint64Range(0, 2).Draw(t, "reloads")
	s.Policies.Error = rapid.SampledFrom([]string{"", "bad"}).Draw(t, "error")
	s.Draining = rapid.Bool().Draw(t, "draining")
	for range rapid.IntRange(0, 6).Draw(t, "compartments") {
		c := watertight.CompartmentSnapshot{
			Policy:  rapid.SampledFrom([]string{"a", "b/c", "b"}).Draw(t, "policy"),
			Side:    rapid.SampledFrom([]string{"server", "client"}).Draw(t, "side"),
			Per:     "header",
			Key:     rapid.SampledFrom([]string{"", "x", "c/x", "<b>", "\xff", "\xfe"}).Draw(t, "key"),
			Granted: rapid.Uint64Range(0, 2).Draw(t, "granted"),
		}
		if rapid.Bool().Draw(t, "bulkhead") {
			c.Bulkhead = &watertight.BulkheadSnapshot{Limit: 1}
		}
		s.Compartments = append(s.Compartments, c)
	}
	if rapid.Bool().Draw(t, "dropped") {
		s.Dropped = []watertight.CompartmentSnapshot{{Policy: "gone", Granted: rapid.Uint64Range(0, 1).Draw(t, "counted")}}
	}
	for range rapid.IntRange(0, 5).Draw(t, "transitions") {
		*transitions = append(*transitions, watertight.TransitionSnapshot{
			Time: time.Unix(int64(rapid.IntRange(0, 1).Draw(t, "time")), 0).UTC(), // some are the same
			To:   rapid.SampledFrom([]string{"open", "closed"}).Draw(t, "to"),
		})
		*transitions = (*transitions)[max(0, len(*transitions)-6):]
	}
	s.Transitions = slices.Clone(*transitions)
	return s
}

func TestDeltasLeadToTheNewestSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var transitions []watertight.TransitionSnapshot
		var newest *sample
		var seq uint64
		look := func() *sample {
			seq++
			s, err := encode(drawSnapshot(t, &transitions), source{"i", time.Second}, time.Unix(int64(seq), 0).UTC(), seq, newest)
			require.NoError(t, err)
			newest = s
			return s
		}
		shown := look()
		document, err := shown.document()
		require.NoError(t, err)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(1, 3).Draw(t, "skipped") {
				look()
			}
			delta, err := newest.delta(shown)
			require.NoError(t, err)
			document = apply(t, document, delta)
			want, err := newest.document()
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(document))
			shown = newest
		}
	})
}

func TestIDsAreUniqueAndStay(t *testing.T) {
	s := watertight.Snapshot{Compartments: []watertight.CompartmentSnapshot{
		{Policy: "a/b", Side: "server", Per: "header", Key: "c"},
		{Policy: "a", Side: "server", Per: "header", Key: "b/c"},
		{Policy: "a", Side: "server", Per: "header", Key: "b/c"}, // of before a reload
		{Policy: "a", Side: "server", Per: "header", Key: "b/c/2"},
	}}
	one, err := encode(s, source{}, time.Time{}, 1, nil)
	require.NoError(t, err)
	assert.Len(t, one.byID, 4)
	assert.Contains(t, one.byID, "server/a/header/b%2Fc")
	assert.Contains(t, one.byID, "server/a/header/b%2Fc/2")
}

// FuzzKeys: whatever a caller makes a key of, an event stays one line of JSON that no
// HTML can be in.
func FuzzKeys(f *testing.F) {
	f.Add("tenant", "</script><script>alert(1)</script>")
	f.Add("a\nb", "data: x\n\nevent: evil\r\n")
	f.Add("\u2028", "\xff\xfe\x00")
	f.Add("__proto__", "constructor")
	f.Fuzz(func(t *testing.T, policy, key string) {
		s := watertight.Snapshot{
			Compartments: []watertight.CompartmentSnapshot{{Policy: policy, Side: "server", Key: key}, {Policy: policy, Side: "server", Key: key}},
			Transitions:  []watertight.TransitionSnapshot{{Policy: policy, Key: key}},
		}
		one, err := encode(s, source{}, time.Time{}, 1, nil)
		require.NoError(t, err)
		require.Len(t, one.byID, 2)
		text, err := one.document()
		require.NoError(t, err)
		require.NotContains(t, string(text), "\n")
		require.NotContains(t, string(text), "\r")
		require.NotContains(t, string(text), "<")
		require.NotContains(t, string(text), "\u2028")
		var back watertight.Snapshot
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, strings.ToValidUTF8(key, ""), strings.ReplaceAll(back.Compartments[0].Key, "\ufffd", ""), "as it is")

		empty, err := encode(watertight.Snapshot{}, source{}, time.Time{}, 0, nil)
		require.NoError(t, err)
		before, err := empty.document()
		require.NoError(t, err)
		delta, err := one.delta(empty)
		require.NoError(t, err)
		require.JSONEq(t, string(text), string(apply(t, before, delta)))
	})
}

// crowd is a snapshot of n compartments that have everything.
func crowd(n int) watertight.Snapshot {
	s := watertight.Snapshot{Version: 1}
	for i := range n {
		c := watertight.CompartmentSnapshot{
			Policy: "upstreams", Side: "client", Per: "host", Key: fmt.Sprintf("https://service-%04d.example.internal:8443", i),
			Granted: 123456789, Rejected: map[string]uint64{"full": 1234, "wait_timeout": 1234, "open": 1234, "draining": 0}, InFlight: 17,
			Bulkhead: &watertight.BulkheadSnapshot{Limit: 200, InFlight: 17, Queued: 3, Peak: 200, MaxQueue: 300, MaxWaitMs: 250},
			Breaker:  &watertight.BreakerSnapshot{State: "closed", FailureRate: 12.5, Calls: 100, MaxFailureRate: 50, MaxSlowCallRate: 80, SlowCallMs: 800, MinCalls: 20},
		}
		for k := range 12 {
			c.Waits = append(c.Waits, watertight.WaitSnapshot{UpToMs: float64(int(1) << k), Count: 1000})
		}
		s.Compartments = append(s.Compartments, c)
	}
	return s
}

// A thousand compartments cost less than a picture would, and at rest nearly nothing.
func TestAThousandCompartmentsAreSmall(t *testing.T) {
	s := crowd(1000)
	one, err := encode(s, source{}, time.Unix(1, 0), 1, nil)
	require.NoError(t, err)
	whole, err := one.document()
	require.NoError(t, err)
	assert.Less(t, len(whole), 1_200_000)

	two, err := encode(s, source{}, time.Unix(2, 0), 2, one)
	require.NoError(t, err)
	rest, err := two.delta(one)
	require.NoError(t, err)
	assert.Less(t, len(rest), 200)

	s.Compartments[500].Granted++
	three, err := encode(s, source{}, time.Unix(3, 0), 3, two)
	require.NoError(t, err)
	step, err := three.delta(two)
	require.NoError(t, err)
	assert.Less(t, len(step), 1500)
	t.Logf("whole %d bytes, nothing new %d, one changed %d", len(whole), len(rest), len(step))
}

func BenchmarkSample(b *testing.B) {
	s := crowd(1000)
	before, err := encode(s, source{}, time.Unix(1, 0), 1, nil)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		now, err := encode(s, source{}, time.Unix(2, 0), 2, before)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := now.delta(before); err != nil {
			b.Fatal(err)
		}
	}
}
